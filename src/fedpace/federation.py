"""A federation over a network from Python: serve a config, join with a task."""

import asyncio
import inspect
import json
import logging
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpc import aio

from fedpace import config as configs
from fedpace import plugins
from fedpace.api import WEIGHTS, Result, context_of, make_room, open_result
from fedpace.config import Config, PolicyPlan
from fedpace.core.commands import Command
from fedpace.core.errors import ConfigError, FedpaceError, PeerError, PolicyError
from fedpace.core.journal import JOURNAL, Header, Journal, check_header, part_path
from fedpace.core.policy import Context
from fedpace.core.run import Run, Standing
from fedpace.core.session import Session
from fedpace.learn import files
from fedpace.learn.evaluate import Evaluator
from fedpace.learn.plain import layout_digest
from fedpace.learn.pool import one_thread
from fedpace.learn.settings import TrainSettings
from fedpace.learn.store import ModelStore
from fedpace.learn.task import Task
from fedpace.learn.train import Trainer
from fedpace.net import federation_pb2 as pb
from fedpace.net.client import Client, check_address, why
from fedpace.net.gate import ClientKeys, Gate
from fedpace.net.models import Models
from fedpace.net.reports import Over, Stopped
from fedpace.net.resume import Relay, Snapshots, retrace
from fedpace.net.server import About, Server
from fedpace.net.service import OPTIONS, Stub, handlers
from fedpace.net.spool import Spool
from fedpace.net.trainee import TorchTrainee
from fedpace.net.world import World

if TYPE_CHECKING:
    from fedpace.learn.weights import Weights

SNAPSHOT = "snapshot.pt"
RUN = "run.json"
_KEEPALIVE = (
    # Clients ping when they hear nothing; without these they would be taken for a flood.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # So that connections end whose other side is gone without a word.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
log = logging.getLogger("fedpace.server")

Factory = Callable[..., Task]


@dataclass(frozen=True)
class _Parts:
    """What a served run is made of, checked before anything is written."""

    config: Config
    plan: PolicyPlan
    header: Header
    trainer: Trainer
    store: ModelStore

    @classmethod
    def build(cls, config: Config, plan: PolicyPlan, task: Task | None, device: str) -> "_Parts":
        if task is None:
            kind, settings = configs.plugin("tasks", dict(config.task), "task")
            task = kind.build(settings, config.clients)
        if not isinstance(task, Task):
            raise ConfigError("a timing task has no model to serve; set [task] to one that has")
        trainer = Trainer(task, plan.train, config.seed, device)
        method = config.profile
        profile = trainer.profile(method, plan.kind.widths(plan.settings))
        base = context_of(plan, config.seed, config.clients, profile)
        context = Context(
            **{name: getattr(base, name) for name in base.__slots__} | {"slack": config.serve.slack}
        )
        values = configs.plain(config)
        for name in ("policies", "compare", "policy", "budget", "fleet", "partition", "stream"):
            del values[name]
        run = values | {
            "label": plan.label,
            "train": configs.plain(plan.train),
            "server": configs.plain(plan.server),
            "stop": configs.plain(plan.stop),
        }
        header = Header(plan.use, configs.plain(plan.settings), context, run, version("fedpace"))
        evaluator = Evaluator(task, trainer.layout, trainer.new_model(), device=device)
        store = ModelStore(trainer.layout, trainer.initial(), plan.server, evaluator, trainer.slim)
        parts = cls(config, plan, header, trainer, store)
        parts.session(Relay())  # bad settings show here, before anything is written
        return parts

    def session(self, recorder: Any) -> Session:
        return Session(self.plan.kind(self.plan.settings, self.header.context), recorder)

    def save(self, path: Path, weights: "Weights") -> None:
        model = self.trainer.new_model()
        self.trainer.layout.bind(model).load(weights)
        files.save(path, {name: value.clone() for name, value in model.state_dict().items()})

    @property
    def most_bytes(self) -> int:
        """What an update can need: parameters, a gradient of as many, statistics and a head."""
        model = self.header.context.model
        return self.config.serve.most_bytes or 2 * model.total_bytes + (1 << 20)


def serve(
    config: Config | Mapping[str, Any] | str | Path,
    address: str,
    *,
    gate: Gate,
    out: str | Path,
    task: Task | None = None,
    policy: str | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    anywhere: bool = False,
    on_ready: Callable[[int], None] = lambda port: None,
    stop: threading.Event | None = None,
) -> Result | None:
    """Run one policy over a network, until it is over; None where it was stopped before.

    address: HOST:PORT to listen on, port 0 for any that is free; on_ready: told the port; stop: ends
    the run when it is set, to be gone on with by `resume`. Ctrl-C does the same. anywhere: also listen
    to other machines where the gate asks nobody for proof.
    """
    settings = configs.load(config)
    plan = configs.policy_plan(settings, policy or settings.policy)
    if not anywhere:
        check_exposure(address, gate)
    folder = Path(out)
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        parts = _Parts.build(settings, plan, task, device)
        make_room(folder, resume, overwrite)
        if overwrite:
            shutil.rmtree(folder / "spool", ignore_errors=True)
            (folder / "clients.json").unlink(missing_ok=True)
        if (folder / JOURNAL).exists():
            log.info("%s is finished already", folder)
            return open_result(folder)
        _drop_unborn(part_path(folder / JOURNAL))
        check_header(folder / JOURNAL, parts.header)
        finished = asyncio.run(_serve(parts, address, gate, folder, on_ready, stop))
    return open_result(folder) if finished else None


def check_exposure(address: str, gate: Gate) -> None:
    """Refuse to listen beyond this machine without proof of who is there."""
    host = address.rpartition(":")[0].strip("[]")
    if gate.credentials() is None and not is_loopback(host):
        raise ConfigError(
            f"{address} can be reached from other machines, and without keys anybody can take part; "
            "make keys with `fedpace keys init`, listen on 127.0.0.1, or insist with --anywhere"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(
    parts: _Parts,
    address: str,
    gate: Gate,
    folder: Path,
    on_ready: Callable[[int], None],
    stop: threading.Event | None,
) -> bool:
    """Whether the run is over."""
    config, serving = parts.config, parts.config.serve
    spool = Spool(folder / "spool", parts.most_bytes, (2 * config.clients + 2) * parts.most_bytes)
    widths = parts.plan.kind.widths(parts.plan.settings)
    models = Models(parts.store, parts.most_bytes, serving.norm_bound, widths)
    trainer = parts.trainer
    about = About(
        _run_id(folder),
        config.seed,
        json.dumps(configs.plain(parts.plan.train)),
        layout_digest(trainer.layout, trainer.new_model()),
        parts.most_bytes,
    )
    relay = Relay()
    server = Server(gate, serving, about, models, spool)
    world = World(
        config.clients,
        serving,
        models,
        spool,
        server,
        folder,
        lambda: _flush(relay),
        layers=trainer.layout.depth,
    )
    server.attach(world)
    session = parts.session(relay)
    snapshots = Snapshots(folder / SNAPSHOT, relay, models, world, spool, serving.snapshot_every_s)
    last: list[Standing] = []
    server.standing = lambda: _standing(parts, world, session, last)
    run = Run(
        session,
        world,
        models,
        config.evaluate,
        parts.plan.stop,
        (snapshots, lambda standing: last.__setitem__(slice(None), [standing])),
    )
    grpc_server = aio.server(options=[*OPTIONS, *_KEEPALIVE, ("grpc.so_reuseport", 0)])
    grpc_server.add_generic_rpc_handlers((handlers(server),))
    port = _listen(grpc_server, address, gate)
    path = folder / JOURNAL
    missing: list[Command] = []
    if part_path(path).exists():
        found = retrace(part_path(path), session, world, models, folder / SNAPSHOT)
        missing = found.missing
        relay.journal = Journal.resume(path, found.lines)
        log.info("going on at %.1f s, round %d", session.now, session.version("global"))
        for command in missing:
            relay.write(command)
        world.answer_again(found.asked.values())
        server.expect([client for client, place in enumerate(world.places) if place.online])
    else:
        relay.journal = Journal(path, parts.header)
        relay.journal.sync()
    await grpc_server.start()
    helpers = [
        asyncio.create_task(server.watch()),
        asyncio.create_task(_stop_when_set(world, stop)),
    ]
    _stop_on_signals(world)
    on_ready(port)
    log.info("listening on %s:%d for %d clients", address.rpartition(":")[0], port, config.clients)

    def to_end() -> str | None:
        try:
            for command in missing:
                world.carry_out(command, session.now)
            return run.to_end()
        except Stopped as error:
            log.info("stopped: %s", error)
            return None

    reason: str | None = None
    try:
        reason = await asyncio.to_thread(to_end)
        world.close(Stopped("the server is about to stop") if reason is None else Over(reason))
        if reason is not None:
            await asyncio.to_thread(snapshots.join)
            await asyncio.to_thread(parts.save, folder / WEIGHTS, models.weights())
            _close(relay, complete=True)
            _tidy(folder, spool)
        else:
            await asyncio.to_thread(snapshots.save, True)
        await server.dismiss(reason)
    finally:
        world.close(Stopped("the server has stopped"))
        for helper in helpers:
            helper.cancel()
        await grpc_server.stop(grace=1.0)
        _close(relay, complete=False)
    return reason is not None


def _listen(server: aio.Server, address: str, gate: Gate) -> int:
    """The port."""
    credentials = gate.credentials()
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(f"{address} cannot be listened on: {error}; is it in use?") from error


def _flush(relay: Relay) -> None:
    if relay.journal is not None:
        relay.journal.flush()


def _close(relay: Relay, complete: bool) -> None:
    """Close the journal, if it is not."""
    try:
        if relay.journal is not None:
            relay.journal.close(complete)
    except OSError as error:
        raise FedpaceError(
            f"the journal cannot be written: {error}; free some space and resume"
        ) from error


def _drop_unborn(path: Path) -> None:
    """Delete a journal of which not even the first line was written: nothing had begun."""
    with suppress(FileNotFoundError):
        if b"\n" not in path.read_bytes()[: 1 << 20]:
            path.unlink()


def _tidy(folder: Path, spool: Spool) -> None:
    spool.keep_only(())
    for name in (SNAPSHOT, RUN):
        (folder / name).unlink(missing_ok=True)


def _run_id(folder: Path) -> str:
    """The name of this run, by which clients know it again."""
    path = folder / RUN
    if path.exists() and part_path(folder / JOURNAL).exists():
        return str(json.loads(path.read_text())["run"])
    made = uuid.uuid4().hex
    path.write_text(json.dumps({"run": made}))
    return made


def _standing(parts: _Parts, world: World, session: Session, last: list[Standing]) -> pb.StatusReply:
    state = "running" if world.started else "waiting for clients"
    return pb.StatusReply(
        name=parts.config.name,
        policy=parts.plan.label,
        state=state,
        round=session.version("global"),
        now_s=world.now(),
        accuracy=last[0].accuracy if last else None,
    )


def _stop_on_signals(world: World) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Signals reach the main thread only.
        with suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, world.stop, f"signal {signal.Signals(number).name}")


async def _stop_when_set(world: World, stop: threading.Event | None) -> None:
    while stop is not None:
        if stop.is_set():
            world.stop("asked to stop")
            return
        await asyncio.sleep(0.05)


def join(
    address: str,
    name: str,
    task: Task,
    *,
    keys: ClientKeys | None = None,
    device: str = "cpu",
    slower: float = 1.0,
    threads: int | None = 1,
) -> str:
    """Take part until the federation is over; the reason why it is."""
    if slower < 1:
        raise ConfigError(f"slower is {slower}; a machine can only be made slower, set it to 1 or more")

    def read(table: Any) -> TrainSettings:
        return configs.build(TrainSettings, table, "the server's train")

    trainee = TorchTrainee(task, read, device, slower, threads)
    return asyncio.run(_join(Client(check_address(address), name, trainee, keys)))


async def _join(client: Client) -> str:
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(RuntimeError, ValueError, NotImplementedError):
            if task is not None:
                loop.add_signal_handler(number, task.cancel)
    try:
        return await client.take_part()
    except asyncio.CancelledError:
        return "stopped"


async def ask_status(address: str, keys: ClientKeys | None) -> pb.StatusReply:
    """What a server says of its run."""
    options = list(OPTIONS)
    channel = (
        aio.insecure_channel(check_address(address), options=options)
        if keys is None
        else aio.secure_channel(check_address(address), keys.credentials(), options=options)
    )
    try:
        metadata = () if keys is None else keys.metadata()
        reply: pb.StatusReply = await Stub(channel).status(
            pb.StatusRequest(), timeout=10, metadata=metadata
        )
        return reply
    except aio.AioRpcError as error:
        raise PeerError(f"{address} does not answer: {why(error)}") from None
    finally:
        await channel.close(None)


def find_task(path: str, name: str) -> Task:
    """The task that MODULE:FACTORY makes; a factory that takes a `name` is told the client's."""
    factory: Factory = plugins.import_path(path)
    try:
        parameters = inspect.signature(factory).parameters
        task = factory(name=name) if "name" in parameters else factory()
    except FedpaceError:
        raise
    except Exception as error:
        raise PolicyError(f"{path} failed: {type(error).__name__}: {error}") from error
    if not isinstance(task, Task):
        raise ConfigError(
            f"{path} gave {task!r}; it must return a fedpace Task with this client's data"
        )
    return task
