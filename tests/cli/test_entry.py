"""The command's entry: what happens before the command line is there."""

import subprocess
import sys
from importlib.metadata import entry_points

INTERRUPTED = """
import builtins, sys
before = builtins.__import__


def interrupt(name, *rest):
    if name == "typer":
        raise KeyboardInterrupt
    return before(name, *rest)


builtins.__import__ = interrupt
from fedpace.__main__ import main
main()
"""


def test_ctrl_c_while_the_command_is_imported_shows_no_traceback():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "fedpace: stopped\n")


def test_the_command_is_what_python_m_runs():
    found = [point for point in entry_points(group="console_scripts") if point.name == "fedpace"]
    assert found
    assert callable(found[0].load())
