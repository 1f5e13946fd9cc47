"""A federation over a network from Python: serve a config, join with a task."""

import asyncio
import inspect
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from fedpace.core.errors import ConfigError, FedpaceError, PeerError, PolicyError
from fedpace.learn.many.executor import one_thread
from fedpace.learn.tasks.task import Task
from fedpace.net import enrolment
from fedpace.net import federation_pb2 as pb
from fedpace.net.client import Client, check_address, why
from fedpace.net.enrolment import open_channel, renew
from fedpace.net.greeting import RunInfo
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.limits.sockets import ConnectionLimits, SocketWatch
from fedpace.net.membership import Membership, MembershipStub, membership_handlers
from fedpace.net.monitor.delays import hold_ups
from fedpace.net.monitor.endpoint import WatchEndpoint, watch_address, watch_endpoint
from fedpace.net.monitor.page import PageProcess, operators_page
from fedpace.net.monitor.snapshot import RunWatch
from fedpace.net.server import Server
from fedpace.net.service import SERVER_OPTIONS, Stub, handlers
from fedpace.remote.defence.pauses import PauseClock
from fedpace.remote.reports import RunOver, RunStopped
from fedpace.remote.torch_trainee import TorchTrainee
from fedpace.remote.world import RemoteWorld
from fedpace.report.live.bounded import is_loopback
from fedpace.runs import config as configs
from fedpace.runs import plugins
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.config import Config
from fedpace.runs.folder import RunFolder
from fedpace.runs.results.result import Result, open_result
from fedpace.runs.serving import ServedRun
from fedpace.runs.stopping import SIGNALS, end_at_once

_KEEPALIVE = (
    # Clients ping when they hear nothing; without these they would be taken for a flood.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # So that connections end whose other side is gone without a word.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)
log = logging.getLogger("fedpace.server")


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
    metrics: str | None = None,
    page: str | None = None,
) -> Result | None:
    """Run one policy over a network, until it is over; None where it was stopped before.

    address: HOST:PORT to listen on, port 0 for any that is free; on_ready: told the port; stop: ends
    the run when it is set, to be gone on with by `resume`. Ctrl-C does the same. anywhere: also listen
    to other machines where the gate asks nobody for proof. metrics: [HOST:]PORT for health and metrics,
    page: for the operators' page, instead of the config's.
    """
    plans, folder = configs.load_plan(config, policy), RunFolder(out)
    request = RunRequest(*plans, folder, task, device, resume, overwrite)
    page = page or plans[0].serve.page
    if not anywhere:
        check_exposure(address, gate)
        if page is not None:
            check_exposure("{}:{}".format(*watch_address(page, "page", 8852)), gate)
    watching = watch_endpoint(metrics or plans[0].serve.metrics)
    showing = operators_page(page, gate, folder.path, plans[0].name)
    with one_thread(), folder, watching as watched, showing as shown:
        assembly = Assembly.served(request)
        finished = not assembly.open_folder() or asyncio.run(
            _serve(assembly, _Endpoint(address, gate, on_ready, stop, watched, shown))
        )
    return open_result(folder.path) if finished else None


@dataclass(frozen=True)
class _Endpoint:
    """Where a server listens, to whom, and who is told so, may end it and watches; see `serve`."""

    address: str
    gate: Gate
    on_ready: Callable[[int], None]
    stop: threading.Event | None
    watched: WatchEndpoint | None
    page: PageProcess | None


def check_exposure(address: str, gate: Gate) -> None:
    """Refuse to listen beyond this machine without proof of who is there."""
    host = address.rpartition(":")[0].strip("[]")
    if gate.how is None and not is_loopback(host):
        raise ConfigError(
            f"{address} can be reached from other machines, and without keys anybody can take part; "
            "make keys with `fedpace keys init`, listen on 127.0.0.1, or insist with anywhere=True"
        )


async def _serve(assembly: Assembly, endpoint: _Endpoint) -> bool:
    """Serve until the run is over (True) or stopped."""
    with PauseClock(log) as clock:
        return await _serve_by(clock, assembly, endpoint)


async def _serve_by(clock: PauseClock, assembly: Assembly, endpoint: _Endpoint) -> bool:
    serving = ServedRun(assembly, clock)
    config, address = serving.config, endpoint.address
    about = RunInfo(
        serving.folder.name_run(),
        config.seed,
        serving.train_settings,
        serving.learning.digest,
        serving.most_bytes,
    )
    server = Server(endpoint.gate, config.serve, about, serving.updates, serving.spool, clock)
    world = serving.connect(server)
    server.attach(world)
    server.standing = lambda: _standing(serving)
    serving.counters = server.counters
    places = min(config.serve.wait_for or config.client_count, config.client_count)
    server.hold_ups = lambda delays: hold_ups(delays, world, places, serving.journal_fault)
    limits = ConnectionLimits.fitting(config.serve, config.client_count)
    grpc_server = aio.server(
        options=[*SERVER_OPTIONS, *_KEEPALIVE, *limits.options(), ("grpc.so_reuseport", 0)]
    )
    port = _listen(grpc_server, address, endpoint.gate)
    sockets = SocketWatch(port, limits, time.monotonic)
    server.on_admitted = sockets.proved
    members = Membership(endpoint.gate, world, time.monotonic, sockets.proved)
    members.on_refused, members.pages = server.counters.refused_call, endpoint.page
    watch = RunWatch(
        server,
        world,
        config.serve,
        serving.spool,
        endpoint.gate,
        serving.folder.path,
        config.client_count,
        lambda: serving.journal_fault,
        sockets,
        clock,
        config.serve.metrics_clients,
    )
    grpc_server.add_generic_rpc_handlers((handlers(server), membership_handlers(members)))
    server.connections.expect(serving.begin())
    await grpc_server.start()
    helpers = [
        asyncio.create_task(server.connections.watch()),
        asyncio.create_task(sockets.watch()),
        asyncio.create_task(members.watch()),
        asyncio.create_task(_stop_when_set(world, endpoint.stop)),
    ]
    if endpoint.watched is not None:
        endpoint.watched.show(watch, config.name, serving.plan.label)
        helpers.append(asyncio.create_task(watch.watch()))
    _on_signals(world.stop)
    endpoint.on_ready(port)
    log.info("listening on %s:%d for %d clients", address.rpartition(":")[0], port, config.client_count)
    reason: str | None = None
    try:
        try:
            reason = await asyncio.to_thread(serving.carry_on)
        except RunStopped as error:
            log.info("stopped: %s", error)
        world.close(RunStopped("the server is about to stop") if reason is None else RunOver(reason))
        if reason is None:
            await asyncio.to_thread(serving.save)
        else:
            await asyncio.to_thread(serving.finish)
            watch.over = True
        here = {one.name for one in server.connections if one.open}
        await server.connections.dismiss(reason)
        if reason is not None:
            away = {record.name for record in world.clients} - here
            await _tell_late_ones(server, away, config.serve.linger_s, endpoint.stop)
    finally:
        world.close(RunStopped("the server has stopped"))
        for helper in helpers:
            helper.cancel()
        await grpc_server.stop(grace=1.0)
        serving.close()
    return reason is not None


async def _tell_late_ones(
    server: Server, away: set[str], most_s: float, stop: threading.Event | None
) -> None:
    """Wait for clients that were away when the run ended: they try again, and are told."""
    until, asked = time.monotonic() + most_s, asyncio.Event()
    _on_signals(lambda _: asked.set())
    if away - server.told_over and most_s:
        log.info("%d clients were away; they are told for up to %g s", len(away), most_s)
    while away - server.told_over and time.monotonic() < until:
        if asked.is_set() or (stop is not None and stop.is_set()):
            break
        await asyncio.sleep(0.05)


def _listen(server: aio.Server, address: str, gate: Gate) -> int:
    """The port."""
    credentials = gate.credentials()
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise ConfigError(f"{address} cannot be listened on: {error}; is it in use?") from error


def _standing(serving: ServedRun) -> pb.StatusReply:
    world, progress = serving.world, serving.news.progress
    return pb.StatusReply(
        name=serving.config.name,
        policy=serving.plan.label,
        state="running" if world.started else "waiting for clients",
        round=serving.session.books.version(),
        now_s=world.now(),
        tested="" if serving.news.tested is None else serving.news.tested.text,
        rounds=progress.rounds or 0,
        rounds_per_s=progress.rounds_per_s or 0.0,
        left_s=progress.left_s,
    )


def _on_signals(stop: Callable[[str], object]) -> None:
    """Stop on Ctrl-C or SIGTERM, giving its name as the reason; they reach the main thread only.

    The second one ends this process at once.
    """
    loop, heard = asyncio.get_running_loop(), list[int]()

    def hear(number: signal.Signals) -> None:
        if heard:
            end_at_once(number)
        heard.append(number)
        stop(f"signal {number.name}")

    for number in SIGNALS:
        with suppress(RuntimeError, ValueError, NotImplementedError):
            loop.add_signal_handler(number, hear, number)


async def _stop_when_set(world: RemoteWorld, stop: threading.Event | None) -> None:
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
    patience_s: float = math.inf,
) -> str:
    """Take part until the federation is over; the reason why it is.

    patience_s: how long to try again where no server answers, or none takes this client in.
    """
    if not patience_s > 0:
        raise ConfigError(f"patience is {patience_s:g} s; set it above 0")
    if slower < 1:
        raise ConfigError(f"slower is {slower}; a machine can only be made slower, set it to 1 or more")
    trainee = TorchTrainee(task, configs.told_settings, device, slower, threads)
    client = Client(
        check_address(address),
        name,
        trainee,
        keys,
        patience_s=patience_s,
        most_model_bytes=trainee.most_model_bytes,
    )
    return asyncio.run(_join(client))


async def _join(client: Client) -> str:
    task = asyncio.current_task()
    if task is not None:
        _on_signals(task.cancel)
    try:
        return await client.take_part()
    except asyncio.CancelledError:
        return "stopped"


async def ask_status(address: str, keys: ClientKeys | None) -> pb.StatusReply:
    """Ask a server how its run stands."""
    async with open_channel(check_address(address), keys) as channel:
        metadata = () if keys is None else keys.metadata()
        try:
            reply: pb.StatusReply = await Stub(channel).status(
                pb.StatusRequest(), timeout=10, metadata=metadata
            )
        except aio.AioRpcError as error:
            raise PeerError(f"{address} does not answer: {why(error)}") from None
        if keys is not None:
            await renew(channel, keys)
        return reply


async def give_order(address: str, keys: ClientKeys | None, order: pb.OperateRequest) -> str:
    """Have an operator's order carried out; what the server says."""
    return (await _operate(address, keys, order)).said


async def ask_page_link(address: str, keys: ClientKeys | None) -> pb.PageLink:
    """Ask a server for a link to its page, as an operator."""
    return (await _operate(address, keys, pb.OperateRequest(page=True))).page


async def _operate(address: str, keys: ClientKeys | None, order: pb.OperateRequest) -> pb.OperateReply:
    async with open_channel(check_address(address), keys) as channel:
        metadata = () if keys is None else keys.metadata()
        try:
            reply: pb.OperateReply = await MembershipStub(channel).operate(
                order, timeout=20, metadata=metadata
            )
        except aio.AioRpcError as error:
            said = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.FAILED_PRECONDITION}
            text = str(error.details()) if error.code() in said else why(error)
            raise PeerError(f"{address} does not do it: {text}") from None
        if keys is not None:
            await renew(channel, keys)
        return reply


def enrol(address: str, token: str, folder: str | Path, patience_s: float = 0.0) -> ClientKeys:
    """Get keys with a join token, for a private key that is made here; a folder with keys stays.

    patience_s: how long to try where no server answers.
    """
    until, pause_s = time.monotonic() + patience_s, 0.5
    while True:
        try:
            return asyncio.run(enrolment.enrol(check_address(address), token, Path(folder)))
        except enrolment.Unreachable as error:
            if time.monotonic() + pause_s > until:
                raise
            log.warning("%s; trying again", error)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 15.0)


def find_task(path: str, name: str) -> Task:
    """The task that MODULE:FACTORY makes; a factory that takes a `name` is told the client's."""
    factory: Callable[..., Task] = plugins.import_path(path)
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
