"""`fedpace new`: a study that runs as it is, by the commands of its own README."""

import re
import shlex
import subprocess
import sys
from contextlib import chdir, contextmanager
from pathlib import Path
from shutil import which
from unittest import mock

import pytest

from fedpace.cli.new.command import FILES, write_starter
from fedpace.core.journal import read
from fedpace.runs.config import load
from tests.cli.command import fedpace, succeeded
from tests.pages import ROOT, blocks

FIGURE = "fedpace.report.figures.draw_comparison"
"""It takes most of a report's time, and has tests of its own."""
MODULES = {"my_policy", "my_task"}


@contextmanager
def own_modules(folder):
    """Be in a study's folder, whose modules are forgotten afterwards."""
    with chdir(folder), mock.patch.object(sys, "path", [str(folder), *sys.path]):
        try:
            yield
        finally:
            for name in MODULES & set(sys.modules):
                del sys.modules[name]


def commands(page):
    """Lines of a page's shell blocks that are run."""
    return [line for one in blocks(page, "sh") if not one.not_run for line in one.text.splitlines()]


def run_line(line, folder, printed):
    """Run a line of a page, in this process; the folder in which the next one is run."""
    program, *arguments = shlex.split(line)
    if program == "cd":
        return folder / arguments[0]
    if program == "ls":
        assert (folder / arguments[0]).is_dir()
        return folder
    assert program == "fedpace"
    if arguments[0] == "compare":
        arguments += ["--seeds", "1", "--set", "stop.hours=0.03"]  # as much say as much here
    printed[line] = succeeded(fedpace(folder, *arguments))
    return folder


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The first steps of the documentation, line by line: the study's folder, and what was printed."""
    folder, printed = tmp_path_factory.mktemp("new"), {}
    with own_modules(folder), mock.patch(FIGURE, return_value=[]):
        for line in commands(ROOT / "docs/start.md"):
            folder = run_line(line, folder, printed)
        for line in commands(folder / "README.md"):
            if line not in printed:
                run_line(line, folder, printed)
    return folder, printed


def test_it_says_what_to_do_next(session):
    folder, printed = session
    assert folder.name == "study"
    said = printed["fedpace new study"].splitlines()
    assert said[1:] == ["  cd study", "  fedpace compare config.toml"]


def test_commands_of_the_first_steps_and_of_the_studys_readme_run_in_their_order(session):
    folder, printed = session
    table = printed["fedpace compare config.toml --out runs/first"]
    assert re.search(r"paced +timelyfl +sync", table)
    assert "to 65%" in printed["fedpace report runs/first --target 0.65"]
    assert "gives the same commands" in printed["fedpace replay runs/first/paced/seed-0"]
    assert set(commands(folder / "README.md")) <= set(printed)
    _, lines = read(folder / "runs/many/journal.jsonl")
    assert sum(1 for _ in lines) > 200


def test_python_of_both_runs(session, capsys):
    folder, _ = session
    (readme,), (page,) = (
        blocks(folder / "README.md", "python"),
        blocks(ROOT / "docs/start.md", "python"),
    )
    with own_modules(folder):
        exec(compile(readme.text, "README.md", "exec"), {})
        exec(compile(page.text, "start.md", "exec"), {})
    first, second = capsys.readouterr().out.splitlines()
    best, at = re.search(r"accuracy (\d+)%, 70% after ([\d.]+) virtual", first).groups()
    assert int(best) > 85
    assert 10 < float(at) < 400
    assert float(second.split()[1]) > 0.5


def test_the_readme_names_every_file_and_the_config_every_class(session):
    folder, _ = session
    written = {one.name for one in folder.iterdir()} - {"runs", "__pycache__"}
    assert written == set(FILES)
    readme = (folder / "README.md").read_text()
    assert readme.startswith("# study\n")
    assert all(f"`{name}`" in readme for name in written - {"README.md"})


@pytest.mark.parametrize("name", ["plain", 'with "quotes"', "back\\slash", "tab\there", "naïve 🙂"])
def test_the_study_is_named_for_its_folder(tmp_path, name):
    folder = tmp_path / name
    write_starter(folder)
    with own_modules(folder):
        assert load(folder / "config.toml").name == name.replace("\t", "-")


def test_an_empty_folder_may_be_there_and_be_the_current_one(tmp_path):
    said = succeeded(fedpace(tmp_path, "new", "."))
    assert "cd " not in said
    assert {one.name for one in tmp_path.iterdir()} == set(FILES)


@pytest.mark.parametrize("held", [["notes.txt"], [".git", "b"], ["config.toml"]])
def test_a_folder_that_is_not_empty_is_refused_in_a_line_and_left_alone(tmp_path, held):
    for name in held:
        (tmp_path / name).write_text("mine")
    done = fedpace(tmp_path, "new", str(tmp_path))
    assert done.returncode == 2
    rest = " and 1 more" if len(held) > 1 else ""
    assert done.stderr == (
        f"fedpace: {tmp_path} is not empty, it has {held[0]}{rest}; "
        "name a folder that is not there yet, or is empty\n"
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(held)


def test_a_file_in_its_place_is_a_line(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/inside"):
        done = fedpace(tmp_path, "new", name)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1


def test_help_says_what_is_written(tmp_path):
    said = " ".join(succeeded(fedpace(tmp_path, "new", "--help")).split())
    assert all(name in said for name in FILES)


def test_the_files_pass_ruff_as_it_comes(tmp_path):
    ruff = which("ruff", path=Path(sys.executable).parent) or which("ruff")
    if ruff is None:
        pytest.skip("no ruff here; it is in the extra dev")
    write_starter(tmp_path)
    for command in (["check", "--select", "E,F,I,B,UP,RUF,SIM"], ["format", "--check"]):
        done = subprocess.run(
            [ruff, *command, "--isolated", "--no-cache", tmp_path], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
