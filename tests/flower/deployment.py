"""A SuperLink and its SuperNodes as real processes on this machine, all ended when it is over."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
LINK = "here"


class Deployment:
    """What was started in `folder`, where logs and Flower's own files are too."""

    def __init__(self, folder):
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.port = free_port()
        self._started = []
        self.nodes = {}
        self.app = folder / "app"
        shutil.copytree(EXAMPLE, self.app, ignore=shutil.ignore_patterns("__pycache__"))
        connection = f'[superlink.{LINK}]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.home / "config.toml").write_text(connection)
        self.environment = os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    def start_link(self):
        # Otherwise it would look for the app's dependencies on the internet.
        offline = "--disable-runtime-dependency-installation"
        at = ("--host", "127.0.0.1", "--port", f"{self.port}")
        link = self._start("link", "flower-superlink", "--insecure", offline, *at)
        wait_for(lambda: self._healthy(link), 90, "the SuperLink")

    def _healthy(self, link):
        assert link.poll() is None, self.log("link")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def start_node(self, part):
        """A SuperNode with one of two parts of the data."""
        config = f"partition-id={part} num-partitions=2"
        command = ("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}")
        ports = ("--host", "127.0.0.1", "--port", f"{free_port()}")
        self.nodes[part] = self._start(f"node{part}", *command, *ports, "--node-config", config)

    def kill_node(self, part):
        """As if its machine had lost power, with all that it had begun."""
        os.killpg(self.nodes.pop(part).pid, signal.SIGKILL)

    def run(self, out, timeout_s=300, **overrides):
        """Run the example to its end; what it said."""
        return self._flwr("run", ".", LINK, "--stream", *overriding(out, overrides), timeout=timeout_s)

    def start_run(self, out, **overrides):
        """Start the example; the number of the run."""
        said = self._flwr("run", ".", LINK, *overriding(out, overrides), timeout=60)
        return said.split("Successfully started run ")[1].split()[0]

    def stop_run(self, number):
        self._flwr("stop", number, LINK, timeout=60)

    def _flwr(self, *arguments, timeout):
        done = subprocess.run(
            ["flwr", *arguments],
            cwd=self.app,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def _start(self, name, *command):
        with (self.folder / f"{name}.log").open("a") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def end(self):
        """End all that was started, and what that has started: processes know it by their FLWR_HOME."""
        for process in reversed(self._started):
            process.terminate()
        for process in self._started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        for _ in range(40):
            numbers = self.left_over()
            if not numbers:
                return
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.25)
        raise TimeoutError(f"processes {numbers} cannot be ended")

    def left_over(self):
        """Processes that carry this deployment's FLWR_HOME."""
        mark, found = f"FLWR_HOME={self.home}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found


@contextmanager
def deployed(folder):
    deployment = Deployment(folder)
    try:
        yield deployment
    finally:
        deployment.end()


def overriding(out, overrides):
    values = {"flower.out": f'"{out}"'} | overrides
    return ("--run-config", " ".join(f"{key}={value}" for key, value in values.items()))


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(holds, within_s, what):
    """Until `holds()`, looked at twice a second."""
    until = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} was not there after {within_s} s")
        time.sleep(0.5)
