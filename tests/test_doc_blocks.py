"""Blocks of code in pages run, and commands that pages name are there with these options.

A block before which `<!-- not run: why -->` stands is left out; so is one that shows a file of
examples/, which test_examples.py runs.
"""

import io
import re
import shlex
import shutil
from contextlib import redirect_stderr

import pytest
import typer
from typer.main import get_command

from fedpace import simulate
from fedpace.cli.main import app
from tests.cli.command import fedpace, succeeded
from tests.pages import PAGES, ROOT, blocks, without_code

SHOWN = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("examples/**/*.py")))
PYTHON = [one for page in PAGES for one in blocks(page, "python")]
COMMANDS = [
    (one.name, line.strip())
    for page in PAGES
    for one in blocks(page, "", "sh", "bash", "console")
    for line in one.text.replace("\\\n", " ").splitlines()
    if line.strip().startswith("fedpace ")
]
USAGE_ERROR = typer.BadParameter.__mro__[1]
STUDY = ROOT / "docs/start.md"
"""Its blocks are one session in one folder: cli/test_new.py runs them."""
SHORT = {"hours = 0.5": "hours = 0.01", "hours = 2.0": "hours = 0.01", '"cnn"': '"mlp"'}
"""What makes the demo's config quick enough for a test, besides fewer samples."""


def is_shown(block):
    return block.text.strip() in SHOWN


@pytest.fixture(scope="module")
def place(tmp_path_factory, few_clothes):
    """A folder with a short demo and a journal of it, as pages suppose them."""
    folder = tmp_path_factory.mktemp("pages")
    text = (ROOT / "configs/demo.toml").read_text(encoding="utf-8")
    few = {'"fashion-mnist"': f'"idx"\nfolder = "{few_clothes}"'}
    for long, short in (SHORT | few).items():
        assert long in text
        text = text.replace(long, short)
    shutil.copytree(ROOT / "configs", folder / "configs")
    (folder / "configs/demo.toml").write_text(text, encoding="utf-8")
    simulate(folder / "configs/demo.toml", policy="timelyfl", out=folder / "runs/demo/timelyfl/seed-0")
    return folder


@pytest.mark.parametrize(
    "block",
    [one for one in PYTHON if not one.not_run and one.page != STUDY and not is_shown(one)],
    ids=lambda block: block.name,
)
def test_python_in_pages_runs(block, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    exec(compile(block.text, str(block.page), "exec"), {"__name__": "__main__"})


def test_commands_of_the_readme_run_in_their_order(place, monkeypatch):
    # Figures take most of a report's time, and have tests of their own.
    monkeypatch.setattr("fedpace.report.figures.draw_comparison", lambda *_, **__: [])
    shown = [one for one in blocks(ROOT / "README.md", "sh") if not one.not_run]
    (block,) = (one for one in shown if one.text.startswith("fedpace"))
    lines = block.text.splitlines()
    assert {"run", "compare", "report"} <= {line.split()[1] for line in lines}
    for line in lines:
        short = line.replace("stop.hours=0.1", "stop.hours=0.01").replace("--seeds 2", "--seeds 1")
        succeeded(fedpace(place, *shlex.split(short)[1:]))


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.name)
def test_python_in_pages_is_python(block):
    compile(block.text, str(block.page), "exec")


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_commands_of_pages_have_these_options(where, line):
    for part in re.split(r"; | \| | > | &$", line):
        words = shlex.split(part, comments=True)
        if words and words[0] == "fedpace":
            check_words(words[1:])
            assert [
                one
                for one in words
                if re.match(r"configs/|examples/", one) and not (ROOT / one).exists()
            ] == []


def test_commands_that_text_names_exist():
    known = get_command(app).commands
    for page in PAGES:
        text = without_code(page.read_text(encoding="utf-8"))
        for name in re.findall(r"`fedpace ([a-z][\w-]*)", text):
            assert name in known, (page.name, name)


def check_words(words):
    """Parse a command as the command line does, without running it."""
    command, name, context, rest = get_command(app), "fedpace", None, list(words)
    try:
        with redirect_stderr(io.StringIO()):
            while hasattr(command, "resolve_command"):
                context = command.make_context(name, rest, parent=context)
                left = [*context._protected_args, *context.args]
                if not left and command.invoke_without_command:
                    return
                name, command, rest = command.resolve_command(context, left)
            command.make_context(name, rest, parent=context)
    except typer.Exit:
        pass  # --help and --version
    except USAGE_ERROR as error:
        pytest.fail(f"{' '.join(words)}: {error.format_message()}")
