"""The guide to federations: its example runs, its settings are all there, the demo's data are whole."""

import json
import re
import time
from dataclasses import fields
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from fedpace.core.journal import JOURNAL
from fedpace.remote.settings import ServeSettings
from fedpace.runs.config import load
from fedpace.runs.simulate import open_result
from tests.cli.command import Begun, fedpace, succeeded

ROOT = Path(__file__).parent.parent


@pytest.fixture
def start(tmp_path):
    """Starts a command of fedpace, its output in a file of that name; ends what is left."""
    begun = []

    def begin(name, *words):
        begun.append(Begun(ROOT, *words, log=tmp_path / f"{name}.log"))
        return begun[-1]

    yield begin
    for one in begun:
        one.end()


def test_two_clients_join_with_tokens_and_the_examples_data_and_train_a_model(tmp_path, start):
    keys, out = tmp_path / "keys", tmp_path / "out"
    names = ("client-0", "client-1")
    succeeded(fedpace(tmp_path, "keys", "init", "--keys", str(keys)))
    printed = succeeded(fedpace(tmp_path, "keys", "invite", *names, "--keys", str(keys)))
    tokens = dict(zip(names, printed.split(), strict=True))
    server = start(
        "server",
        *("serve", "configs/federation.toml", "--policy", "sync", "--listen", "127.0.0.1:0"),
        *("--keys", keys, "--out", out, "--set", "clients=2", "--set", "stop.rounds=2"),
    )
    until = time.monotonic() + 120
    while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", server.said)):
        assert server.returncode is None, server.said
        assert time.monotonic() < until, server.said
        time.sleep(0.05)
    clients = {
        name: start(
            name,
            *("join", f"127.0.0.1:{found[1]}", "--keys", tmp_path / name, "--token", tokens[name]),
            *("--task", "examples.federation.own_data:task"),
        )
        for name in names
    }
    for process in (server, *clients.values()):
        assert process.ended() == 0, process.said
    assert not list((keys / "clients").iterdir())
    for name, client in clients.items():
        assert "over: 2 rounds are over" in client.said
        assert f"{name} has joined with 2000 samples" in server.said
    summary = open_result(out).summary
    assert summary.clients_per_round == [2, 2]
    assert summary.final_accuracy > 0.3
    assert (out / JOURNAL).exists()


def test_the_demos_clients_have_all_images_among_them_and_few_classes_each():
    spec = util.spec_from_file_location("federation_demo", ROOT / "tools" / "federation_demo.py")
    demo = util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    tasks = [demo.task(name) for name in demo.SLOWER]
    assert len(tasks) == load(demo.CONFIG).clients
    assert sum(len(task.train[0]) for task in tasks) == 12_000
    assert all(len(np.unique(task.train[1])) <= 6 for task in tasks)
    assert max(demo.SLOWER.values()) == 10 * min(demo.SLOWER.values())
    assert set(demo.POLICIES) <= set(load(demo.CONFIG).policies)


def test_the_guide_has_every_setting_with_its_default():
    page = (ROOT / "docs/federation.md").read_text()
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+?) \|", page.split("## Settings of [serve]")[1], re.MULTILINE)
    )
    assert list(rows) == [field.name for field in fields(ServeSettings)]
    for field in fields(ServeSettings):
        if field.default is not None:
            assert json.loads(rows[field.name]) == field.default


def test_the_guides_rounds_are_those_that_were_measured():
    page = (ROOT / "docs/federation.md").read_text()
    found = json.loads((ROOT / "docs/measured/federation-rounds.json").read_text())
    crossed = found["errors_of_fleets_from_one_run"]
    for run in found["runs"]:
        label = run["label"]
        others = " | ".join(f"{errors[label]:+.0%}" for errors in crossed.values())
        numbers = f"{run['median_real_s']:.2f} | {run['median_predicted_s']:.2f} | {run['error']:+.0%}"
        assert f"| `{label}` | {run['rounds']} | {numbers} | {others} |" in page
        assert abs(run["error"]) < 0.15
