"""Plugins are looked up anew where something was installed, and only there."""

from importlib import metadata

import pytest

from fedpace.runs import plugins


@pytest.fixture
def reads(monkeypatch):
    """How often all installed packages were read."""
    count = []

    def entry_points(**which):
        count.append(which)
        return metadata.entry_points(**which)

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    plugins._read_points.cache_clear()
    return count


def install(folder, name):
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[fedpace.policies]\n{name} = nowhere:{name}\n")


def test_what_is_installed_while_a_process_runs_is_found(tmp_path, monkeypatch, reads):
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in plugins.names("policies")
    install(tmp_path, "later")
    assert "later" in plugins.names("policies")


def test_packages_are_read_once_while_nothing_is_installed(tmp_path, monkeypatch, reads):
    monkeypatch.chdir(tmp_path)  # a folder of sys.path may be the one that others write to
    for _ in range(3):
        assert "timelyfl" in plugins.names("policies")
        assert plugins.load("policies", "sync")
    assert len(reads) == 1
