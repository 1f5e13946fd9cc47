"""Three policies by the wall clock: a server and six client processes on this machine.

    python tools/federation_demo.py [--out DIR] [--policies A,B,C] [--seconds 90]

`fedpace serve` and six times `fedpace join`, one policy after the other. Each client makes its own
private key and gets a certificate for it with a join token when it first joins. The clients' speeds
differ by ten times: `--slower` makes a batch take 4 to 40 times as long as it needs, asleep for the
rest, so that two cores are enough for all. Each client has images of five or six of the ten classes. At
the end a fleet is learned from all runs and repeats them in the simulator: predicted against real
lengths of rounds.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from fedpace.core.errors import JournalError
from fedpace.core.facts import Evaluated
from fedpace.core.journal import JOURNAL, part_path, read
from fedpace.report.summary import Summary, summarise
from fedpace.runs.config import load

if TYPE_CHECKING:
    from fedpace.learn.tasks.task import Task

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "configs" / "federation.toml"
FEDPACE = str(Path(sys.executable).with_name("fedpace"))

POLICIES = ("timelyfl", "fedcompass", "sync")
SLOWER = {f"client-{number}": slower for number, slower in enumerate((4, 6, 10, 16, 25, 40))}
TARGET = 0.65
SECONDS = 90
"""Of a run, from the moment when all clients are there."""
START_S, END_S = 60, 20
"""How long processes may take to get ready, and to end."""
OVERTIME_S = 15
"""A server looks at its limit when something happens; one that is this late is stopped."""
SAY_S = 5


def task(name: str) -> "Task":
    """What client-N trains: the images that the config's [partition] gives to the N-th client."""
    from dataclasses import replace

    from fedpace.data.fashion import load_shipped
    from fedpace.data.partition import partition
    from fedpace.learn.tasks.images import image_task

    config, data = load(CONFIG), load_shipped()
    whole = image_task("fashion-mnist", "cnn", data)
    shares = partition(data.train_y, config.clients, config.partition, config.seed)
    own = shares[int(name.rpartition("-")[2])]
    inputs, targets = whole.train
    # The whole's inputs are scaled already.
    return replace(whole, train=(inputs[own], targets[own]))


class Broken(Exception):
    """A process ended that should not have, or did not get ready."""


class Crew:
    """The processes of one run, each with a log of its own. None outlives `ending`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str | Path) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [FEDPACE, *map(str, arguments)],
                cwd=HERE,  # where `federation_demo:task` is
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C comes to us alone, and `ending` ends them
            )

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def check(self) -> None:
        """Nobody has ended with an error."""
        for name, process in self._processes.items():
            if process.poll():
                end = "\n".join(self.said(name).splitlines()[-15:])
                raise Broken(f"{name} ended with code {process.returncode}; its last words:\n{end}")

    def over(self, *names: str) -> bool:
        """Whether these have ended."""
        return all(self._processes[name].poll() is not None for name in names)

    def stop(self, name: str) -> None:
        """As Ctrl-C would."""
        self._processes[name].send_signal(signal.SIGINT)

    @contextmanager
    def ending(self) -> Iterator["Crew"]:
        """Whoever is left when the block is over is asked to end, and then made to."""
        try:
            yield self
        finally:
            left = [process for process in self._processes.values() if process.poll() is None]
            for process in left:
                process.terminate()
            until = time.monotonic() + 5
            for process in left:
                try:
                    process.wait(max(until - time.monotonic(), 0.1))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def run(label: str, keys: Path, tokens: dict[str, str], folder: Path, limit_s: float) -> Summary:
    """One policy, from the start of its processes to their end. tokens: by client, to join with."""
    folder.mkdir(parents=True, exist_ok=True)
    journal, began = folder / JOURNAL, time.monotonic()
    for old in (journal, part_path(journal)):
        old.unlink(missing_ok=True)
    stop = ["--set", f"stop.hours={limit_s / 3600}", "--set", "stop.rounds=1000000"]
    with Crew(folder).ending() as crew:
        crew.start(
            "server",
            *("serve", CONFIG, "--policy", label, "--listen", "127.0.0.1:0", "--keys", keys),
            *("--out", folder, "--overwrite", *stop),
        )
        wait(crew, lambda: "listening on" in crew.said("server"), START_S)
        port = re.findall(r"listening on \S+:(\d+)", crew.said("server"))[0]
        for name, slower in SLOWER.items():
            crew.start(
                name,
                *("join", f"127.0.0.1:{port}", "--keys", keys.parent / name, "--token", tokens[name]),
                *("--task", f"{Path(__file__).stem}:task", "--slower", str(slower)),
            )
        wait(crew, lambda: bool(evaluations(journal)), START_S)
        say(f"{label}: six clients are there, {time.monotonic() - began:.0f} s after the start")
        began = said = time.monotonic()
        while not crew.over("server"):
            crew.check()
            now = time.monotonic()
            if now - began > limit_s + OVERTIME_S:
                crew.stop("server")
                break
            if now - said >= SAY_S:
                said, last = now, evaluations(journal)[-1]
                say(f"{label}: {now - began:3.0f} s, round {last.version}, {last.accuracy:.1%}")
            time.sleep(0.2)
        over = time.monotonic() + END_S
        while not crew.over("server", *SLOWER) and time.monotonic() < over:
            time.sleep(0.2)
    return summarise(journal if journal.exists() else part_path(journal))


def wait(crew: Crew, until: Callable[[], bool], most_s: float) -> None:
    """For something, and not for longer than it may take."""
    over = time.monotonic() + most_s
    while not until():
        crew.check()
        if time.monotonic() > over:
            raise Broken(f"nothing has come of it in {most_s:.0f} s; the logs are in {crew.folder}")
        time.sleep(0.2)


def evaluations(journal: Path) -> list[Evaluated]:
    """The tests that a journal has by now, also while it is written or gets its name."""
    for path in (part_path(journal), journal):
        with suppress(JournalError, FileNotFoundError):
            return [one for one in read(path, unfinished=True)[1] if isinstance(one, Evaluated)]
    return []


def say_keys(keys: Path, *words: str) -> str:
    """What a command of `fedpace keys` prints."""
    command = [FEDPACE, "keys", *words, "--keys", str(keys)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def table(found: dict[str, Summary], out: Path) -> Table:
    """Participation: in how many of the rounds a client is, the mean of all and the slowest one."""
    shown = Table(
        "policy",
        f"s to {TARGET:.0%}",
        "rounds",
        "final accuracy",
        "participation",
        "of the slowest",
        box=None,
    )
    for label, summary in found.items():
        reached = summary.time_to(TARGET)
        names = json.loads((out / label / "clients.json").read_text())
        slowest = summary.participation[names.index(max(SLOWER, key=SLOWER.__getitem__))]
        shown.add_row(
            label,
            f"not in {summary.end_s:.0f}" if reached is None else f"{reached:.1f}",
            str(summary.rounds),
            f"{summary.final_accuracy or 0:.1%}",
            f"{summary.mean_participation:.0%}",
            f"{slowest:.0%}",
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("runs/federation-demo"), help="for journals")
    parser.add_argument("--policies", default=",".join(POLICIES), help="labels of the config")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a run")
    arguments = parser.parse_args()
    out, labels = arguments.out, arguments.policies.split(",")
    began, found = time.monotonic(), dict[str, Summary]()
    with TemporaryDirectory(prefix="fedpace-keys-") as folder:
        keys = Path(folder) / "keys"
        say_keys(keys, "init")
        tokens = dict(zip(SLOWER, say_keys(keys, "invite", *SLOWER).split(), strict=True))
        for label in labels:
            found[label] = run(label, keys, tokens, (out / label).resolve(), arguments.seconds)
    console = Console()
    console.print(table(found, out))
    for label in found:
        print(f"{label}: {out / label / JOURNAL}")
    runs = [str(out / label) for label in labels]
    learned = ["fleets", "learn", *runs, "--out", str(out / "fleet.csv"), "--check"]
    subprocess.run([FEDPACE, *learned], check=True)
    print(f"{time.monotonic() - began:.0f} s in all; more of it: fedpace report {arguments.out}")


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped, with everything that was started")
    except Broken as error:
        sys.exit(str(error))
