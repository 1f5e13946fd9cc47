"""Relative paths in a config begin at its own folder, wherever a run is started."""

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import pytest

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.runs import config as configs
from fedpace.runs.paths import resolve_paths

CONFIG = """
clients = 2
policy = "sync"
task = { kind = "timing", samples = 8 }
stop = { rounds = 1 }
fleet = { kind = "phones", order = "as listed", file = "devices/two.csv" }
"""


@pytest.fixture
def study(tmp_path):
    """A folder with a config and the devices that it names."""
    folder = tmp_path / "study"
    (folder / "devices").mkdir(parents=True)
    (folder / "run.toml").write_text(CONFIG)
    (folder / "devices/two.csv").write_text(
        "computation_ms_per_sample,communication_kbps\n10,8000\n20,8000\n"
    )
    return folder


def test_a_file_lies_beside_the_config_and_not_in_the_current_folder(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fedpace.simulate(study / "run.toml").summary.rounds == 1
    assert fedpace.simulate(Path("study/run.toml")).summary.rounds == 1
    monkeypatch.chdir(study / "devices")
    assert fedpace.simulate("../run.toml").summary.rounds == 1


def test_a_mapping_has_no_folder_and_counts_from_the_current_one(study, monkeypatch):
    monkeypatch.chdir(study)
    table = configs.read("run.toml")
    assert fedpace.simulate(table).summary.rounds == 1
    monkeypatch.chdir(study.parent)
    with pytest.raises(ConfigError, match=r"devices.two\.csv"):
        fedpace.simulate(table)


def test_an_override_is_read_as_if_it_stood_in_the_file(study, monkeypatch):
    monkeypatch.chdir(study.parent)
    os.rename(study / "devices/two.csv", study / "other.csv")
    config = configs.load(Path("study/run.toml"), ["fleet.file=other.csv"])
    assert fedpace.simulate(config).summary.rounds == 1


def test_a_study_that_has_moved_is_still_the_same_run(study, tmp_path):
    first = fedpace.simulate(study / "run.toml", out=study / "out")
    moved = tmp_path / "elsewhere"
    copytree(study, moved)
    again = fedpace.simulate(moved / "run.toml", out=moved / "out", resume=True)
    assert again.journal.header == first.journal.header
    assert str(tmp_path) not in (moved / "out/journal.jsonl").read_text()


def test_the_folder_is_no_key(study):
    with pytest.raises(ConfigError, match="unknown key 'folder'"):
        configs.load({"folder": "x"})
    assert "folder" not in configs.plain(configs.load(study / "run.toml"))


def test_an_empty_path_is_no_path(study):
    with pytest.raises(ConfigError, match=r"fleet.file is empty; name a file"):
        fedpace.simulate(configs.load(study / "run.toml", ["fleet.file="]))


@dataclass(frozen=True)
class Inner:
    file: Path | None = None


@dataclass(frozen=True)
class Outer:
    """Settings with all places where a path may stand."""

    text: str = "a.csv"
    file: Path = Path("a.csv")
    inner: Inner = Inner()
    many: tuple[Path, ...] = ()


def test_paths_are_found_in_inner_tables_and_lists_and_texts_are_left_alone(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    settings = Outer(inner=Inner(Path("b")), many=(Path("/c"), Path("~/d")))
    assert resolve_paths(settings, Path("/at")) == Outer(
        "a.csv", Path("/at/a.csv"), Inner(Path("/at/b")), (Path("/c"), Path("/home/me/d"))
    )
    assert resolve_paths(Outer(), Path()) == Outer()
