"""The command line as a user meets it, in this process or, where that is the point, in its own."""

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
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


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done.stdout
