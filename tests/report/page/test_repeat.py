import tomllib

import pytest

import fedpace
from fedpace.core.budget import Budget
from fedpace.core.journal import JOURNAL, read
from fedpace.report.page.repeat import config_text, flat_settings, repeat_entry
from tests.report.conftest import make_header
from tests.report.page.conftest import CONFIG, ODD


@pytest.mark.parametrize("label", list(CONFIG["policies"]))
def test_the_config_of_a_header_gives_the_same_journal_again(tmp_path, label):
    config = CONFIG | {"seed": 3, "stop": {"rounds": 3}, "name": 'a "name"\\ \u00e9 \U0001f600'}
    fedpace.simulate(config, policy=label, out=tmp_path / "first")
    path = tmp_path / "first" / JOURNAL
    header, _ = read(path)
    (tmp_path / "repeat.toml").write_text(config_text(header, label), encoding="utf-8")
    again = fedpace.simulate(
        {**tomllib.loads(config_text(header, label)), "seed": 3}, out=tmp_path / "second"
    )
    assert again.summary.rounds == 3
    assert (tmp_path / "second" / JOURNAL).read_bytes() == path.read_bytes()


def test_the_command_names_file_label_and_seed():
    entry = repeat_entry(make_header(seed=7, run={"label": ODD}), ODD)
    assert entry["file"] == "repeat-b-script.toml"
    assert entry["command"].startswith("fedpace run repeat-b-script.toml --policy '<b>&</script>")
    assert entry["command"].endswith("--seed 7")


def test_what_cannot_be_repeated_says_why():
    served = repeat_entry(make_header(run={"clock": "real"}), "a")
    assert "served over a network" in served["note"]
    assert "command" not in served
    own = repeat_entry(make_header(run={"task": {"kind": "own", "name": "mine"}}), "a")
    assert "in Python" in own["note"]
    assert "command" not in own


def test_settings_have_dotted_keys_and_toml_values():
    budget = Budget(money=5.0, sample_cost=(0.1,))
    run = {"label": "a", "seed": 7, "train": {"lr": 0.1, "options": {}}, "timing_only": False}
    found = flat_settings(make_header(run=run, budget=budget))
    assert found == {
        "policy": '"timelyfl"',
        "policy.k": "2",
        "train.lr": "0.1",
        "train.options": "{}",
        "timing_only": "false",
        "budget.money": "5.0",
        "budget.sample_cost": "[0.1]",
        "header.clients": "8",
        "header.layers": "3",
        "header.model_bytes": "1000",
        "header.metrics": '["accuracy", "loss"]',
        "header.format": "3",
        "header.fedpace": '"0.1.0"',
    }
