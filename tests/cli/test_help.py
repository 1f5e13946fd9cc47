"""What the command line says about itself: help, versions, lists of settings, completion."""

import re
from importlib.metadata import version

import pytest
import typer

from fedpace.cli.help.examples import EXAMPLES
from fedpace.cli.main import app
from fedpace.runs import plugins
from tests.cli.command import fedpace, succeeded

WIDTHS = {"COLUMNS": "80", "TERM": "dumb"}


def commands(group=None, before=""):
    """Every command with its full name, groups opened."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name, command


ALL = dict(commands())


def complete(folder, line, shell="bash"):
    """The words that a shell would be offered at the end of a line."""
    words = line.split(" ")
    environment = {
        "_FEDPACE_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return succeeded(fedpace(folder, environment=environment)).split()


def test_the_version_is_that_of_the_package(tmp_path):
    assert succeeded(fedpace(tmp_path, "--version")) == f"fedpace {version('fedpace')}\n"


def test_lists_of_commands_show_whole_sentences(tmp_path):
    for group in ((), ("data",), ("plan",), ("keys",), ("fleets",)):
        shown = succeeded(fedpace(tmp_path, *group, "--help"))
        listed = shown[shown.index("Commands:") :].splitlines()[1:]
        assert all(line.endswith((".", "?")) and "..." not in line for line in listed), listed


@pytest.mark.parametrize("name", ALL)
def test_help_begins_with_a_sentence_and_ends_with_examples_that_could_be_typed(name):
    command = ALL[name]
    first = command.help.partition("\n")[0]
    assert first[0].isupper()
    assert first.endswith(".")
    assert EXAMPLES[name]
    options = {one for item in command.params for one in item.opts}
    for line in EXAMPLES[name]:
        assert line.startswith(f"fedpace {name}")
        assert len(line) <= 76
        assert set(re.findall(r" (--[\w-]+)", line)) <= options
    assert EXAMPLES[name][0] in command.epilog


@pytest.mark.parametrize("command", ["policies", "tasks", "fleets", "settings"])
@pytest.mark.parametrize("width", [80, 60, 200])
def test_lists_of_settings_fit_the_terminal_and_break_no_word(tmp_path, command, width):
    shown = succeeded(fedpace(tmp_path, command, environment={"COLUMNS": str(width)}))
    assert max(map(len, shown.splitlines())) <= width
    wide = succeeded(fedpace(tmp_path, command, environment={"COLUMNS": "1000"}))
    assert set(shown.split()) == set(wide.split())


@pytest.mark.parametrize("name", plugins.names("policies"))
def test_a_policy_is_described_with_its_paper_and_the_values_of_its_settings(tmp_path, name):
    shown = succeeded(fedpace(tmp_path, "policies", name))
    assert shown.startswith(f"{name}: ")
    assert re.search(r"et al\.|ADEL-FL|Diao|Lang|of our own", shown)
    assert f"Settings, under [policies.{name}]:" in shown
    prose = [line for line in shown.splitlines() if not line.startswith("    ")]
    assert max(map(len, prose)) <= 80


def test_what_a_setting_takes_is_said_in_words(tmp_path):
    shown = succeeded(fedpace(tmp_path, "policies", "timelyfl"))
    assert "  k (unset): whole number, 1 or more\n" in shown
    assert '  alpha = "cost": cost | parameters\n' in shown
    shown = succeeded(fedpace(tmp_path, "settings", "train"))
    assert "  train.lr = 0.05: number, above 0\n      learning rate\n" in shown
    assert "server." not in shown
    done = fedpace(tmp_path, "settings", "trian")
    assert (done.returncode, "did you mean 'train'" in done.stderr) == (2, True)
    assert "'timelyfl'" in fedpace(tmp_path, "policies", "timelfyl").stderr


def test_a_policy_of_ones_own_is_described_too(tmp_path):
    (tmp_path / "mine.py").write_text(
        '"""Mine (2026)."""\nfrom fedpace.policies.sync import SyncSettings\n'
        "from fedpace.core.policy import Policy\n"
        'class Mine(Policy):\n    """Waits for nobody."""\n    Settings = SyncSettings\n'
    )
    shown = succeeded(fedpace(tmp_path, "policies", "mine:Mine"))
    assert shown.startswith("mine:Mine: Waits for nobody.\n\n  Mine (2026).")
    assert 'needs use = "mine:Mine"' in " ".join(shown.split())


def test_fleets_say_what_they_share_once(tmp_path):
    shown = succeeded(fedpace(tmp_path, "fleets"))
    for key in ("behaviour.jitter", "speeds =", "reference_operations (unset)"):
        assert shown.count(f"  {key}") == 1
    assert shown.count("the distribution (") == 1
    assert "as compute_s.kind" in shown
    assert "behaviour.jitter" in succeeded(fedpace(tmp_path, "fleets", "phones"))


def test_shells_complete_commands_policies_tasks_and_keys(folder):
    assert complete(folder, "fedpace repo") == ["report"]
    assert complete(folder, "fedpace policies fedb") == ["fedbuff"]
    assert complete(folder, "fedpace tasks fash") == ["fashion-mnist"]
    assert complete(folder, "fedpace fleets pho") == ["phones"]
    assert complete(folder, "fedpace fleets lea") == ["learn"]
    assert complete(folder, "fedpace run config.toml --policy ti") == ["timelyfl"]
    with (folder / "timing.toml").open("a") as file:
        file.write("[policies.own]\nuse = 'sync'\n")
    assert complete(folder, "fedpace run timing.toml --policy ow") == ["own"]
    assert complete(folder, "fedpace run missing.toml --policy syn") == ["sync"]
    line = "fedpace compare timing.toml --policies own,sy"
    assert complete(folder, line) == ["own,sync"]
    assert complete(folder, "fedpace run config.toml --set train.l") == ["train.lr="]
    assert complete(folder, "fedpace run config.toml --device cu") == ["cuda"]
    assert complete(folder, "fedpace sweep config.toml --grid server.l") == ["server.lr="]
    assert complete(folder, "fedpace sweep config.toml --grid partition.a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_a_shell_can_be_shown(tmp_path, shell, monkeypatch):
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell, raising=False)
    shown = succeeded(fedpace(tmp_path, "--show-completion"))
    assert f"_FEDPACE_COMPLETE=complete_{shell}" in shown
