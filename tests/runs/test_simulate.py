import sys

import pytest
import torch
from torch.nn.functional import mse_loss

import fedpace
from fedpace.core.commands import Aggregate, Note
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.events import Joined
from fedpace.core.facts import Evaluated, Finished
from fedpace.core.journal import replay
from fedpace.policies.adel import ADEL
from fedpace.runs import config, plugins
from fedpace.runs.config import load, plugin

OWN_POLICY = '''
"""The two clients with the most data take turns."""
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate, Finish, Train, Work
from fedpace.core.policy import Policy


@dataclass(frozen=True)
class TurnsSettings:
    turns: Annotated[int, "updates in all"] = 4


class Turns(Policy[TurnsSettings]):
    Settings = TurnsSettings

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.samples, self.done = {}, 0

    def on_joined(self, event):
        self.samples[event.client] = event.samples
        return ()

    def on_started(self, event):
        self.largest = sorted(self.samples, key=self.samples.get)[-2:]
        return (self.give(),)

    def on_arrived(self, event):
        self.done += 1
        after = Finish("all turns taken") if self.done == self.settings.turns else self.give()
        return (Aggregate((event.task,), (1.0,)), after)

    def give(self):
        work = Work(self.context.batch_size, epochs=self.context.epochs)
        return Train(self.largest[self.done % 2], self.new_task(), self.done, work)
'''

CHANGE = {"client": 2, "task": 1, "compute_s": 12.0}


def learned(result):
    return result.accuracy[-1][1]


ROUNDS = {
    "fedasync": 120,
    "fedat": 60,
    "fedcompass": 120,
    "adel": 100,
    "salf": 100,
    "dynamic_tau": 50,
    "cadence": 200,
}
"""Rounds in which a policy has used about as many samples as others in 25."""
STEPS = {
    "fedcompass": {"q_min": 5, "q_max": 25},
    "uniform": {"train": {"steps": 20}},
    "no_straggler": {"train": {"steps": 20}},
    "dbfl": {"start": 10, "train": {"steps": 20}},
    "dynamic_tau": {"tau_max": 20, "train": {"steps": 1, "batch_size": 8}},
    "dynamite": {"train": {"lr": 0.2}},
    "salf": {"deadline_s": 30.0, "train": {"lr": 0.5, "steps": 3}},
}
"""As many as it takes to learn in a few rounds."""
MEASURES = ("dynamic_tau", "dynamite")
"""Policies that ask about updates, so that there have to be some."""


@pytest.mark.parametrize("policy", plugins.names("policies"))
def test_every_policy_learns_replays_and_decides_the_same_by_timing_alone(
    tmp_path, small, clothes, policy
):
    small["task"]["folder"] = str(clothes)
    small["policies"] |= STEPS
    small["policies"]["fedat"] = {"epochs": 3}  # its tiers are small, and so is each of their steps
    small |= {"policy": policy, "stop": {"rounds": ROUNDS.get(policy, 25), "target": 0.5}}
    result = fedpace.simulate(small, out=tmp_path)
    assert result.accuracy[0][1] < 0.3
    assert learned(result) >= 0.5
    assert result.time_to(0.5) is not None
    assert result.time_to(1.1) is None
    assert set(result.participation) == set(range(12))

    kind = plugins.load("policies", policy)
    settings = config.build(kind.Settings, result.journal.header.settings, "settings")
    replay(tmp_path / "journal.jsonl", kind(settings, result.journal.header.context))

    if policy not in MEASURES:
        small |= {"timing_only": True, "stop": {"rounds": result.summary.rounds}}
        timed = fedpace.simulate(small)
        assert decisions(timed) == decisions(result)


def decisions(result):
    return [one for one in result.journal if not isinstance(one, (Evaluated, Finished))]


def test_one_seed_gives_one_journal_and_another_seed_another(tmp_path, small):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        fedpace.simulate(small | {"seed": seed}, out=tmp_path / name)
    a, b, c = ((tmp_path / name / "journal.jsonl").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    "policy",
    [
        "timelyfl",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("fedbuff", "fedasync", "fedat", "fedcompass")
        ),
    ],
)
def test_the_number_of_processes_changes_nothing(tmp_path, small, policy):
    small |= {"policy": policy, "stop": {"rounds": 3}}
    fedpace.simulate(small, out=tmp_path / "one")
    fedpace.simulate(small, out=tmp_path / "three", workers=3)
    assert (tmp_path / "one/journal.jsonl").read_bytes() == (
        tmp_path / "three/journal.jsonl"
    ).read_bytes()
    one, three = (torch.load(tmp_path / n / "weights.pt", weights_only=True) for n in ("one", "three"))
    assert all(torch.equal(one[name], three[name]) for name in one)


@pytest.mark.parametrize("policy", MEASURES)
@pytest.mark.parametrize("how", [{"timing_only": True}, {"task": {"kind": "timing"}}], ids=str)
def test_a_policy_that_measures_updates_is_refused_before_a_timing_only_run(
    small, policy, how, tmp_path
):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=f"policy '{policy}' measures .*train for real") as refusal:
        fedpace.simulate(small | {"policy": policy} | how, out=out)
    assert "\n" not in str(refusal.value)
    assert not out.exists()


def test_constants_are_measured_in_a_warm_up_and_the_journal_says_what_they_are(tmp_path, small):
    measured = {"budget_s": 400.0, "rounds": 5, "times": "steady"}
    small |= {"policy": "adel", "policies": {"adel": measured}}
    result = fedpace.simulate(small, out=tmp_path)
    said = [message.text for message in result.journal if isinstance(message, Note)]
    values = dict(zip(said[0].split()[4::2], said[0].split()[5::2], strict=True))
    assert set(values) == {"gradient", "noise", "smoothness"}
    assert all(float(value.strip(",")) > 0 for value in values.values())
    settings = config.build(ADEL.Settings, result.journal.header.settings, "settings")
    replay(tmp_path / "journal.jsonl", ADEL(settings, result.journal.header.context))


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(tmp_path, small, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="use device='cpu'"):
        fedpace.simulate(small, out=tmp_path / "out", device="cuda")
    assert not (tmp_path / "out").exists()


def test_a_timing_task_never_imports_torch(tmp_path):
    import subprocess

    script = (
        "import sys, fedpace\n"
        "fedpace.simulate({'clients': 4, 'task': {'kind': 'timing'}, 'stop': {'rounds': 3}})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_policy_of_ones_own_runs_by_its_import_path(tmp_path, small, monkeypatch):
    (tmp_path / "turns_policy.py").write_text(OWN_POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    small |= {"policy": "mine", "policies": {"mine": {"use": "turns_policy:Turns", "turns": 3}}}
    result = fedpace.simulate(small)
    messages = list(result.journal)
    assert messages[-1] == Finished(messages[-1].at, "the policy is done: all turns taken")
    assert len([m for m in messages if isinstance(m, Aggregate)]) == 3
    assert learned(result) > result.accuracy[0][1]


def test_a_policy_of_ones_own_runs_by_its_entry_point(tmp_path, small, monkeypatch):
    (tmp_path / "turns_policy.py").write_text(OWN_POLICY)
    info = tmp_path / "turns-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turns\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedpace.policies]\nturns = turns_policy:Turns\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = fedpace.simulate(small | {"policy": "turns", "policies": {}})
    assert result.summary.rounds == 4


def test_a_task_of_ones_own_may_come_divided(small):
    x = torch.randn(60, 5)
    task = fedpace.Task(
        model=lambda: torch.nn.Linear(5, 3),
        train=(x, x[:, :3].argmax(1)),
        test=(x, x[:, :3].argmax(1)),
        clients=[range(10), range(10, 25), range(25, 60)],
    )
    config = {"clients": 3, "stop": {"rounds": 30}, "train": {"lr": 0.3, "batch_size": 5}}
    result = fedpace.simulate(config, task=task)
    assert learned(result) > 0.8
    assert [m.samples for m in result.journal if isinstance(m, Joined)] == [10, 15, 35]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"clientz": 3}, r"unknown key 'clientz' \(did you mean 'clients'\?\)"),
        ({"train": {"lr": "fast"}}, r"train.lr is 'fast'"),
        ({"train": {"lr": -1}}, r"lr is -1"),
        ({"train": {"optimiser": "SDG"}}, r"SDG.*SGD"),
        (
            {"policies": {"timelyfl": {"n": 10, "k": 12}}},
            r"\[policies.timelyfl\] k is 12, but 10 clients",
        ),
        ({"policies": {"timelyfl": {"n": 13}}}, r"n is 13, but 12 clients are in the fleet"),
        ({"policies": {"timelyfl": {"maxepochs": 1}}}, r"policies.timelyfl.maxepochs.*max_epochs"),
        ({"policy": "timelyfi"}, r"there is no policy 'timelyfi' \(did you mean 'timelyfl'\?\)"),
        (
            {"task": {"kind": "fashion"}},
            r"there is no task 'fashion' \(did you mean 'fashion-mnist'\?\)",
        ),
        ({"task": {}}, r"\[task\] has no kind"),
        ({"fleet": {"kind": "phones", "behaviour": {"jiter": 1}}}, r"fleet.behaviour.jiter.*jitter"),
        (
            {"fleet": {"kind": "explicit", "compute_s": [-1.0], "down_mbps": [1], "up_mbps": [1]}},
            r"-1.0",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE, {"speed": 1}]}},
            r"unknown key 'fleet.changes.1.speed'; known are client, task, compute_s",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE | {"task": "x"}]}},
            r"fleet.changes.0.task is 'x'",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [CHANGE | {"compute_s": 0}]}},
            r"\[fleet.changes.0\] compute_s in the change of client 2 in its task 1 is 0",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": [3]}},
            r"fleet.changes.0 is 3; expected a table",
        ),
        (
            {"fleet": {"kind": "explicit", "compute_s": [1.0], "changes": CHANGE}},
            r"fleet.changes is \{",
        ),
        ({"partition": {"min_samples": 5000}}, r"set min_samples to 60 at most"),
        ({"partition": {"kind": "class", "max_classes": 11}}, r"max_classes is 11, but there are 10"),
        ({"partition": {"alpha": "tiny"}}, r"partition.alpha is 'tiny'"),
        ({"stop": {"rounds": 0}}, r"rounds is 0"),
        ({"clients": 0}, r"clients is 0"),
        ({"task": {"kind": "idx", "folder": "/nowhere"}}, r"/nowhere"),
        (
            {"policy": "x", "policies": {"x": {"use": "no.such:Thing"}}},
            r"'no.such:Thing' cannot be imported",
        ),
    ],
)
def test_wrong_input_is_refused_before_anything_is_written(tmp_path, small, change, complaint):
    with pytest.raises(ConfigError, match=complaint):
        fedpace.simulate(small | change, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task": {"kind": 3}}, "3 names none of the tasks"),
        ({"stop": {"hours": float("inf")}}, "stop.hours is inf; give a finite number"),
        ({"server": {"lr": -1.0}}, r"\[server\] lr is -1.0"),
        ({"clients": "12"}, "clients is '12'"),
        ({"policies": {"timelyfl": {"k": True}}}, "policies.timelyfl.k is True"),
        ({"timing_only": "yes"}, "timing_only is 'yes'"),
        (
            {"policies": {"timelyfll": {"n": 3}}},
            r"there is no policy 'timelyfll' \(did you mean 'timelyfl'",
        ),
        ({"policies": {"timelyfl": {}, "sync": {"quorom": 1}}}, r"policies.sync.quorom.*quorum"),
        ({"policies": {"timelyfl": 3}}, "policies.timelyfl is 3"),
        ({"policy": ":X"}, "no import path"),
        ({"policy": "..a:X"}, "no import path"),
        ({"policy": "json:loads"}, "no dataclass Settings"),
        ({"policy": "raising_module:X"}, "raising_module:X' cannot be imported: ZeroDivisionError"),
        ({"policy": "plain_module:NoPolicy"}, "is no policy"),
        ({"policy": "plain_module:NoPolice"}, r"has no 'NoPolice' \(did you mean 'NoPolicy'\?\)"),
        ({"policy": "plain_module:Else"}, "has no 'Else'; name what it defines"),
        ({"task": {"kind": "plain_module:NoPolicy"}}, "has no function build"),
    ],
)
def test_what_no_run_can_be_made_of_is_said_in_one_line(
    tmp_path, small, monkeypatch, change, complaint
):
    (tmp_path / "raising_module.py").write_text("1 / 0\n")
    (tmp_path / "plain_module.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass S:\n    pass\n\n"
        "class NoPolicy:\n    Settings = S\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=complaint) as caught:
        fedpace.simulate(small | change)
    assert "\n" not in str(caught.value)


def test_changes_of_speed_are_read_from_toml(tmp_path):
    (tmp_path / "c.toml").write_text(
        "clients = 3\n[fleet]\nkind = 'explicit'\ncompute_s = [4.0]\nper_samples = 4\n"
        "behaviour = { free_links = true }\n"
        "changes = [{ client = 2, task = 1, compute_s = 12.0 },\n"
        "           { client = 0, task = 0, compute_s = 8 }]\n"
    )
    kind, settings = plugin("fleets", load(tmp_path / "c.toml").fleet, "fleet")
    fleet = kind.build(settings, 3, seed=0)
    tasks = ((0, 0), (1, 1), (2, 0), (2, 1))
    assert [fleet.pace(*task).sample_s for task in tasks] == [2.0, 1.0, 1.0, 3.0]


def test_a_finished_run_is_not_taken_for_one_with_other_settings(tmp_path, small):
    fedpace.simulate(small, out=tmp_path)
    with pytest.raises(JournalError, match="seed is 9 here but 0 in the folder's run; resume with"):
        fedpace.simulate(small | {"seed": 9}, out=tmp_path, resume=True)


def test_a_run_gives_the_caller_its_threads_back(small):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fedpace.simulate(small | {"stop": {"rounds": 1}})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_targets_that_are_no_classes_need_another_partition():
    x = torch.randn(60, 5)
    task = fedpace.Task(
        lambda: torch.nn.Linear(5, 1),
        (x, x[:, :1]),
        (x, x[:, :1]),
        loss=mse_loss,
        accuracy=lambda outputs, targets: (outputs - targets).abs() < 0.5,
    )
    with pytest.raises(ConfigError, match="needs one class a sample"):
        fedpace.simulate({"clients": 3}, task=task)
    config = {"clients": 3, "partition": {"kind": "iid"}, "stop": {"rounds": 2}}
    assert fedpace.simulate(config, task=task).summary.rounds == 2


def test_batch_normalisation_survives_stale_updates():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=rng) * 0.1
    y = (x[:, 0] > 0).long()
    task = fedpace.Task(normalised, (x[:300], y[:300]), (x[300:], y[300:]))
    config = {
        "clients": 20,
        "policy": "fedbuff",
        "policies": {"fedbuff": {"k": 2}},
        "partition": {"kind": "iid"},
        "train": {"lr": 0.1, "batch_size": 3},
        "stop": {"rounds": 60},
    }
    accuracy = [value for _, value in fedpace.simulate(config, task=task).accuracy]
    assert min(accuracy[25:]) > 0.55  # 0.53, the larger class, wherever a variance is negative
    assert accuracy[-1] > 0.8


def normalised():
    layers = torch.nn
    return layers.Sequential(
        layers.Linear(6, 8), layers.BatchNorm1d(8), layers.ReLU(), layers.Linear(8, 2)
    )


MEASURING = """
from fedpace.core.commands import Aggregate, Evaluate, Measure, Train, Work
from fedpace.core.policy import Policy

class Measuring(Policy):
    version = request = 0

    def give(self, client):
        return Train(client, self.new_task(), self.version, Work(self.context.batch_size, epochs=1))

    def on_joined(self, event):
        return (self.give(event.client),)

    def on_arrived(self, event):
        self.update = event
        self.request += 1
        return (Measure(2 * self.request, "norm", (event.task,)), Evaluate(2 * self.request + 1))

    def on_measured(self, event):
        if event.request % 2 == 0:
            self.weight = min(1.0, 1.0 / (event.values[0] or 1.0))
            return ()
        task, client = self.update.task, self.update.client
        self.version += 1
        return (Aggregate((task,), (self.weight,), rule="sum"), self.give(client))
"""


def test_a_policy_that_measures_can_be_stopped_anywhere_and_resumed(tmp_path, small, monkeypatch):
    (tmp_path / "measuring.py").write_text(MEASURING)
    monkeypatch.syspath_prepend(tmp_path)
    small |= {"clients": 3, "policy": "measuring:Measuring", "policies": {}, "stop": {"rounds": 8}}
    fedpace.simulate(small, out=tmp_path / "whole")
    for events in range(4, 24):

        def stop(standing, left=[events]):  # noqa: B006
            left[0] -= 1
            if left[0] < 0:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            fedpace.simulate(
                small, out=tmp_path / "cut", resume=True, snapshot_every_s=0.0, watches=(stop,)
            )
    fedpace.simulate(small, out=tmp_path / "cut", resume=True)
    whole, cut = ((tmp_path / n / "journal.jsonl").read_bytes() for n in ("whole", "cut"))
    assert whole == cut


def test_going_on_with_a_run_needs_its_folder():
    with pytest.raises(ConfigError, match="resume=True is about runs in a folder"):
        fedpace.simulate({"clients": 3, "task": {"kind": "timing"}, "stop": {"rounds": 1}}, resume=True)


def test_a_folder_with_a_run_in_it_is_left_alone(tmp_path, small):
    fedpace.simulate(small, out=tmp_path)
    before = (tmp_path / "journal.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="holds a run already; use resume=True, overwrite=True"):
        fedpace.simulate(small | {"seed": 9}, out=tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    fedpace.simulate(small | {"seed": 9}, out=tmp_path, overwrite=True)
    assert (tmp_path / "journal.jsonl").read_bytes() != before


def test_the_final_weights_load_into_the_users_model(tmp_path, small):
    from fedpace.learn.tasks.models import build_model

    fedpace.simulate(small, out=tmp_path)
    build_model("mlp", 1, 10).load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
