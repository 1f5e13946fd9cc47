"""Units and images start what there is: checked as far as that goes without a daemon."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import typer.main

from fedpace.cli.main import app

ROOT = Path(__file__).parent.parent
SYSTEMD, DOCKER = ROOT / "deploy/systemd", ROOT / "deploy/docker"
UNITS = sorted(SYSTEMD.glob("*.service"))
BINARY = "/opt/fedpace/bin/fedpace"
VALUES = {
    "FEDPACE_LISTEN": "0.0.0.0:8850",
    "FEDPACE_METRICS": "127.0.0.1:9464",
    "FEDPACE_SERVER": "server:8850",
    "FEDPACE_TASK": "module:task",
}


def parsed(words):
    """The values of a command line, without running it; an error for what the command does not know."""
    command = typer.main.get_command(app).commands[words[0]]
    return command.make_context(words[0], list(words[1:])).params


def section(path, name):
    parser = ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str
    parser.read_string(path.read_text())
    return dict(parser[name])


def exec_start(path):
    binary, *words = shlex.split(section(path, "Service")["ExecStart"])
    assert binary == BINARY
    return [re.sub(r"\$\{(\w+)\}", lambda found: VALUES[found[1]], word) for word in words]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_pass_systemd(path, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    unit = tmp_path / path.name
    unit.write_text(path.read_text().replace(f"{BINARY} ", "/bin/true "))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if path.stem in line]
    assert (done.returncode, ours) == (0, [])


def test_units_start_commands_that_exist():
    server, client = (SYSTEMD / f"fedpace-{kind}.service" for kind in ("server", "client"))
    served, joined = parsed(exec_start(server)), parsed(exec_start(client))
    assert served["resume"]
    assert served["log"] == joined["log"] == "json"
    assert served["metrics"].startswith("127.0.0.1:")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_units_are_hardened_and_do_not_try_what_is_final_again(path):
    service = section(path, "Service")
    for key in (
        "NoNewPrivileges",
        "ProtectHome",
        "PrivateTmp",
        "RestrictNamespaces",
        "LockPersonality",
    ):
        assert service[key] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["User"] == "fedpace"
    assert service["CapabilityBoundingSet"] == ""
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= 30
    assert int(service["LimitNOFILE"]) >= 4096
    assert service["Restart"] == "on-failure"
    assert "2" in service["RestartPreventExitStatus"].split()
    state = f"/var/lib/{service['StateDirectory']}"
    words = exec_start(path)
    folders = [words[words.index(one) + 1] for one in ("--keys", "--out") if one in words]
    assert all(folder.startswith(state + "/") for folder in folders)


def dockerfile():
    """Instructions and their words, lines that go on joined."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def test_the_image_has_a_pinned_base_and_no_root():
    steps = dockerfile()
    assert steps[0][0] == "ARG"
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+(@sha256:\w{64})?", steps[0][1])
    bases = [words for name, words in steps if name == "FROM"]
    assert bases == ["${BASE} AS build", "${BASE}"]
    last = [words for name, words in steps if name == "USER"][-1]
    assert int(last) > 0
    after = [name for name, _ in steps][[name for name, _ in steps].index("USER") :]
    assert "RUN" not in after


def test_what_the_image_copies_is_there_and_not_ignored():
    kept = re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for name, words in dockerfile():
        if name == "COPY" and "--from=" not in words:
            for source in words.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source.split("/")[0] in kept, source


def commands():
    """Service -> its command, as compose.yaml has it."""
    found, service = {}, ""
    for line in (DOCKER / "compose.yaml").read_text().splitlines():
        service = match[1] if (match := re.fullmatch(r"  ([\w-]+):", line)) else service
        if match := re.fullmatch(r"    command: (\[.*\])", line):
            found[service] = json.loads(match[1])
    return found


def test_compose_has_a_server_and_three_clients_whose_commands_exist():
    found = commands()
    names = ["client-0", "client-1", "client-2"]
    assert list(found) == ["enrol", "server", *names]
    served = parsed(found["server"])
    assert served["metrics"].endswith(":9464")
    assert (ROOT / str(served["config"]).removeprefix("/opt/fedpace/share/")).is_file()
    host, *invited = found["enrol"]
    assert invited == names
    for name in names:
        joined = parsed(found[name])
        assert joined["address"] == f"{host}:8850"
        assert joined["token"] == f"@tokens/{name}.token"
        module = joined["task"].partition(":")[0].replace(".", "/")
        assert (ROOT / f"{module}.py").is_file()


def test_compose_is_yaml_with_hardened_services():
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser here")
    found = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    for service in found["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        mounted = [one.split(":")[0] for one in service["volumes"]]
        assert set(mounted) <= set(found["volumes"])


def test_enrolling_makes_keys_and_tokens_once(tmp_path):
    """The script of the image, with the fedpace of these tests."""
    script = DOCKER / "enrol.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    binary = tmp_path / "bin/fedpace"
    binary.parent.mkdir()
    start = "from fedpace.cli.main import main; main()"
    binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    binary.chmod(0o755)
    for name in ("keys", "tokens"):
        (tmp_path / name).mkdir()
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"}

    def enrol(*names):
        words = ["sh", str(script), "server", *names]
        subprocess.run(
            words, cwd=tmp_path, env=environment, check=True, timeout=240, capture_output=True
        )
        return [(tmp_path / f"tokens/{name}.token").read_text() for name in names]

    (first,) = enrol("client-0")
    again, second = enrol("client-0", "client-1")
    assert first == again
    assert len({first, second}) == 2
    assert (tmp_path / "keys/ca.key").stat().st_mode & 0o077 == 0
