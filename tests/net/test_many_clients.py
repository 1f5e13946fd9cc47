"""Forty clients at once for a few seconds; tools/many_clients.py has two hundred for two minutes."""

import re
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "many_clients.py"


def test_none_of_forty_clients_is_dropped_and_the_servers_memory_stays():
    call = [sys.executable, TOOL, "--clients", "40", "--seconds", "8", "--processes", "1"]
    found = subprocess.run([*call, "--settled", "3"], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "dropped: 0" in found.stdout
    assert "broke and came back: 0" in found.stdout
    updates = re.search(r"updates: (\d+)", found.stdout)
    assert updates is not None
    assert int(updates[1]) >= 40
