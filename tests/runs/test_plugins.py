"""Plugins are looked up anew where something was installed, and only there."""

from importlib import metadata

import pytest

from fedpace.core.errors import FedpaceError
from fedpace.core.installed import package
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


def test_a_checkout_that_is_not_installed_has_its_plugins_and_version(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    installed = {group: plugins.names(group) for group in ("policies", "tasks", "fleets")}
    for name in ("version", "distribution"):
        monkeypatch.setattr(package.metadata, name, absent)
    monkeypatch.setattr(plugins, "entry_points", lambda group: ())
    plugins._read_points.cache_clear()
    package.package_version.cache_clear()
    try:
        assert {group: plugins.names(group) for group in installed} == installed
        assert plugins.load("policies", "sync").__name__ == "Sync"
    finally:
        plugins._read_points.cache_clear()
    assert package.package_version() == "0.1.0"


def test_what_is_neither_installed_nor_a_checkout_is_told_so(tmp_path):
    for text in (None, "[project\n", '[project]\nname = "another"\n'):
        if text is not None:
            (tmp_path / "pyproject.toml").write_text(text)
        package._project.cache_clear()
        with pytest.raises(FedpaceError, match="neither an installation nor a checkout; install it"):
            package._project(tmp_path)
    package._project.cache_clear()
