"""The command line as a user meets it, in this process or, where that is the point, in its own."""

import io
import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from fedpace.cli.main import main

START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from fedpace.cli.main import main
main()
"""
COMMAND = (sys.executable, "-c", START)


class Done(NamedTuple):
    """An ended command, with subprocess's names."""

    returncode: int
    stdout: str
    stderr: str


def fedpace(folder, *arguments, environment=None):
    """Run a command in a folder, without the second that a process needs to begin."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch.object(sys, "argv", ["fedpace", *arguments]),
        mock.patch.object(sys, "path", sys.path.copy()),
        mock.patch.dict(os.environ, {"COLUMNS": "80"} if environment is None else environment),
        mock.patch("urllib.request._opener", None),  # it would keep the proxies of its first use
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Done(code, out.getvalue(), err.getvalue())


def fedpace_process(folder, *arguments):
    """The same in a process of its own."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


class Begun:
    """A command in a process group of its own, as a shell begins it, that a test may signal.

    The process is forked from one that has imported everything (tests/conftest.py). log: a file with
    what it has said so far.
    """

    def __init__(self, folder, *arguments, log, call=None):
        """call: a function of the module level that it runs in place of a command."""
        self._log = Path(log)
        self._process = multiprocessing.get_context("spawn").Process(
            target=_in_process_of_its_own, args=(folder, arguments, log, call)
        )
        self._process.start()
        self.pid = self._process.pid

    @property
    def said(self):
        return self._log.read_text() if self._log.exists() else ""

    @property
    def returncode(self):
        """None while it goes on."""
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def ended(self, within_s=120):
        """Wait for its end; the exit status."""
        self._process.join(within_s)
        assert self.returncode is not None, self.said
        return self.returncode

    def end(self):
        self._process.kill()
        self._process.join()


def _in_process_of_its_own(folder, arguments, log, call):
    os.setsid()
    os.chdir(folder)
    with Path(log).open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["fedpace", *map(str, arguments)]
    (call or main)()


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done.stdout
