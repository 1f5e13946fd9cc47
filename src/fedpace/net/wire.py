"""Core's messages as they travel, and back. What a peer sends is taken apart here and checked later."""

from msgspec.structs import replace

from fedpace.core import codec
from fedpace.core.commands import Cancel, Probe, Train, Work
from fedpace.core.errors import JournalError, PeerError, PolicyError
from fedpace.core.events import Arrived, Rates, TaskResult
from fedpace.net import federation_pb2 as pb


def order(command: Probe | Train | Cancel, left_s: float | None) -> pb.FromServer:
    """A command to a client. left_s: seconds until its work must end, None: no limit."""
    match command:
        case Probe():
            return pb.FromServer(
                probe=pb.Probe(
                    task=command.task,
                    version=command.version,
                    slot=command.slot,
                    batch_size=command.batch_size,
                    go_on=command.go_on,
                    max_epochs=command.max_epochs,
                )
            )
        case Train():
            return pb.FromServer(
                train=pb.Train(
                    task=command.task,
                    version=command.version,
                    slot=command.slot,
                    left_s=left_s,
                    work=codec.encode(command.work).decode(),
                )
            )
        case Cancel():
            return pb.FromServer(cancel=pb.Cancel(task=command.task, reason=command.reason[:500]))


def work(train: pb.Train, stop_at: float | None) -> Work:
    """The work in an order. stop_at: by the clock of whoever does it."""
    try:
        return replace(codec.decode_as(Work, train.work.encode()), stop_at=stop_at)
    except (JournalError, PolicyError) as error:
        raise PeerError(f"the work of task {train.task} cannot be read: {error}") from error


def rates(sent: pb.Rates) -> Rates:
    return Rates(sent.batch_s, sent.batches, sent.down_s, sent.up_s, sent.latency_s)


def done(task: int, version: int, result: TaskResult, measured: pb.Rates) -> pb.Done:
    """A client's report of a task that is over."""
    return pb.Done(task=task, version=version, result=codec.encode(result).decode(), rates=measured)


def arrived(client: int, done: pb.Done, up_bytes: int = 0) -> Arrived:
    """The event that a report becomes; its time is set when it is told."""
    try:
        result = codec.decode_as(TaskResult, done.result.encode())
    except JournalError as error:
        raise PeerError(f"the result of task {done.task} cannot be read: {error}") from error
    return Arrived(
        at=0.0,
        client=client,
        task=done.task,
        version=done.version,
        result=result,
        up_bytes=up_bytes,
        rates=rates(done.rates),
    )


def one_line(text: str) -> str:
    """A client's text as one line that a journal and a terminal can take."""
    return "".join(one if one.isprintable() else " " for one in text[:500])
