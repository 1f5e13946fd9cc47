"""Processes of a federation under test: forked, killed, waited for."""

import asyncio
import gc
import logging
import multiprocessing
import os
import resource
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fedpace.runs import config as configs
from fedpace.runs import plugins
from tests.waiting import LONG_S, wait_for

FINISHED, STOPPED, CRASHED = 0, 3, 1
QUICK = {"beat_s": 0.2, "silent_s": 20.0, "return_s": 20.0, "resume_s": 40.0}
"""For tests in which nobody leaves: a slow machine is no reason to be taken for gone."""


class Nursery:
    """Where processes are forked."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")  # tests have one that has imported torch
        self._requests, theirs = context.Pipe()
        self._process = context.Process(target=_fork_for_tests, args=(theirs,))
        self._process.start()
        theirs.close()

    def ask(self, **request: Any) -> Any:
        self._requests.send(request)
        return self._requests.recv()  # EOFError: the process that forks others has ended

    def close(self) -> None:
        self._requests.close()
        self._process.join(20)


class Child:
    """A process. log: what it has written."""

    def __init__(self, nursery: Nursery, log: Path, **what: Any) -> None:
        self._nursery, self._log = nursery, log
        self.pid: int = nursery.ask(log=str(log), **what)
        self._exit: int | None = None

    @property
    def exit(self) -> int | None:
        """The exit status, negative: the signal that ended it; None while it runs."""
        if self._exit is None:
            self._exit = self._nursery.ask(what="exit", pid=self.pid)
        return self._exit

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def signal(self, number: int) -> None:
        if self.exit is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        wait_for(lambda: self.exit is not None, f"process {self.pid} does not die")

    def ended(self, within_s: float = LONG_S) -> int:
        wait_for(lambda: self.exit is not None, "it goes on", lambda: self.log, within_s)
        assert self.exit is not None
        return self.exit


# What follows runs in the process that forks, and in what it forks.


def run_server(request: dict[str, Any]) -> int:
    from fedpace.net.keys.gate import Gate
    from fedpace.runs.federation import serve
    from tests.net.toy_task import task

    if "descriptors" in request:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["descriptors"],) * 2)
    keys = request.get("keys")
    gate = Gate.insecure() if keys is None else Gate.open(Path(keys), "certificate")
    result = serve(
        request["config"],
        request["address"],
        gate=gate,
        out=request["out"],
        task=task(wide=request["wide"], test_s=request.get("test_s", 0.0)),
        resume=request["resume"],
        on_ready=lambda port: Path(request["told"]).touch(),
    )
    return STOPPED if result is None else FINISHED


def run_client(request: dict[str, Any]) -> int:
    from fedpace.net.client import Client
    from fedpace.net.keys.gate import ClientKeys
    from tests.net.toy_client import Toy

    toy = Toy(
        Path(request["notes"]),
        request["wide"],
        request.get("step_s", 0.02),
        Path(request["hold"]),
        request.get("broken", ""),
    )
    keys = None if "keys" not in request else ClientKeys.open(Path(request["keys"]))
    reason = asyncio.run(Client(request["address"], request["name"], toy, keys).take_part())
    logging.info("over: %s", reason)
    return FINISHED


def run_command(request: dict[str, Any]) -> int:
    from fedpace.cli.main import main

    sys.argv = ["fedpace", *request["words"]]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return FINISHED


KINDS = {"server": run_server, "client": run_client, "command": run_command}


def _child(request: dict[str, Any]) -> None:
    status = CRASHED
    try:
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for file, number in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(file, number)
        if request["what"] != "command":
            logging.basicConfig(format="%(asctime)s %(name)s %(message)s", level=logging.INFO)
        status = KINDS[request["what"]](request)
    except BaseException:
        logging.exception("the process ends with an error")
    finally:
        sys.stderr.flush()
        os._exit(status)


def _fork_for_tests(requests: Connection) -> None:
    """Read requests, fork, answer; until nobody asks any more."""
    import torch

    import fedpace.cli.main
    import fedpace.runs.federation
    import tests.net.toy_client
    import tests.net.toy_task
    from fedpace.learn.train.live import LiveTrainer
    from fedpace.runs.assembly import Assembly, RunRequest

    # What is imported late is imported here, once; a thread more would not survive a fork.
    torch.set_num_threads(1)
    task = tests.net.toy_task.task()
    config = configs.load({"clients": 1, "policy": "sync"})
    plan = configs.policy_plan(config, "sync")
    Assembly.served(RunRequest(config, plan, None, task))
    for name in ("fedbuff", "fedasync", "timelyfl"):
        plugins.load("policies", name)
    tests.net.toy_client.layout_of(8)
    LiveTrainer(task, plan.train, 0, 0).warm_up(10)
    assert fedpace.cli.main

    gc.collect()
    gc.freeze()  # a look for garbage in a child would copy every page that it touches
    ends: dict[int, int | None] = {}
    try:
        while True:
            request = requests.recv()
            if request["what"] == "exit":
                answer = _exit(ends, request["pid"])
            else:
                answer = os.fork()
                if answer == 0:
                    requests.close()
                    _child(request)
                ends[answer] = None
            requests.send(answer)
    except EOFError:
        pass  # nobody asks any more
    finally:
        for pid, status in ends.items():
            if status is None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        os._exit(0)  # at once, without taking everything down in order


def _exit(ends: dict[int, int | None], pid: int) -> int | None:
    if ends[pid] is None:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ends[pid] = os.waitstatus_to_exitcode(status)
    return ends[pid]
