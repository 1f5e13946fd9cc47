"""`fedpace.compare`: policies as names and classes, seeds, processes or none, and its result."""

import gc
import sys
import warnings

import pytest

import fedpace
from fedpace.core.commands import Aggregate, Train
from tests.runs.results.test_result import CONFIG, TIMING, accuracy_of, toy

QUICK = {key: value for key, value in TIMING.items() if key != "policy"} | {"name": "Quick"}


class Eager(fedpace.Policy):
    """Uses each update as it comes."""

    def give(self, client):
        return Train(client, self.new_task(), self.version, self.context.work())

    def on_joined(self, event):
        yield self.give(event.client)

    def on_arrived(self, event):
        yield Aggregate((event.task,), (0.1,), rule="sum")
        yield self.give(event.client)


@pytest.fixture(scope="module")
def task():
    return toy()


@pytest.fixture(scope="module")
def found(task):
    return fedpace.compare(CONFIG, task=task, policies=["sync", Eager], seeds=2, jobs=1)


def test_every_policy_runs_with_every_seed(found):
    assert list(found) == ["sync", "Eager"]
    assert [run.summary.seed for run in found["Eager"]] == [0, 1]
    assert len(found) == 2
    with pytest.raises(fedpace.ConfigError, match=r"no label 'eager' \(did you mean 'Eager'\?\)"):
        found["eager"]


def test_runs_are_those_of_simulate(found, task):
    alone = fedpace.simulate(CONFIG, task=task, policy=Eager, seed=1)
    assert list(found["Eager"][1].journal) == list(alone.journal)


def test_processes_give_the_same_and_take_classes_of_modules(found, task, tmp_path):
    again = fedpace.compare(CONFIG, task=task, policies=["sync", Eager], seeds=2, jobs=2, out=tmp_path)
    assert again.rows() == found.rows()
    assert (tmp_path / "Eager/seed-1/weights.pt").exists()
    assert fedpace.open_comparison(tmp_path).rows("runs") == sorted(
        found.rows("runs"), key=lambda row: row["label"]
    )


def test_every_run_has_its_model(found, task):
    run = found["sync"][1]
    assert accuracy_of(run.model(), task) == pytest.approx(run.metrics["accuracy"])


def test_times_to_a_target_come_with_paired_differences(found):
    times = found.time_to(0.1)
    assert times["sync"].difference is None
    assert set(times["Eager"].times) == {0, 1}
    assert times["Eager"].difference.seeds == 2
    assert times["Eager"].difference.verdict in ("less", "more", "level")
    assert "of 2 seeds" in repr(times["Eager"])
    never = found.time_to(2.0)
    assert never["sync"].mean is None
    assert "0 of 2 seeds" in repr(never["sync"])


def test_it_shows_itself_as_text_table_html_figure_and_report(found, tmp_path):
    from matplotlib.figure import Figure

    assert len(repr(found).splitlines()) == 4
    assert "Toy: 2 policies, 4 runs" in repr(found)
    assert "best (%)" in found.table()
    assert "<table>" in found._repr_html_()
    axes = Figure().subplots()
    assert [one.get_text() for one in found.plot(ax=axes).get_legend().get_texts()] == list(found)
    assert found.report().parent == found.folder


def test_settings_may_be_a_table_with_a_class():
    policies = {"few": {"use": "sync", "n": 2}, "mine": {"use": Eager}, "sync": "sync"}
    found = fedpace.compare(QUICK, policies=policies, seeds=[7], jobs=1)
    assert list(found) == ["few", "mine", "sync"]
    assert found["few"][0].summary.mean_clients == 2
    assert found["mine"][0].journal.header.policy == f"{__name__}:Eager"
    assert found["mine"][0].summary.seed == 7


def test_a_config_may_name_a_class():
    config = QUICK | {"policy": "mine", "policies": {"mine": {"use": Eager}}}
    assert fedpace.simulate(config).summary.label == "mine"
    assert fedpace.simulate(QUICK | {"policy": Eager}).summary.label == "Eager"


def test_runs_without_a_folder_go_with_the_last_who_holds_them():
    found = fedpace.compare(QUICK, policies=["sync"], seeds=1, jobs=1)
    run, folder = found["sync"][0], found.folder
    del found
    gc.collect()
    assert list(run.journal)
    del run
    gc.collect()
    assert not folder.exists()


def test_what_cannot_be_sent_runs_here_unless_jobs_are_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)

    class Local(Eager):
        pass

    with pytest.warns(UserWarning, match="one after the other: .*cannot be sent"):
        found = fedpace.compare(QUICK, policies=[Local], seeds=1)
    assert found["Local"][0].summary.rounds == 3
    with pytest.raises(fedpace.ConfigError, match=r"cannot be sent to processes: .*or use jobs=1"):
        fedpace.compare(QUICK, policies=[Local], seeds=1, jobs=2)


class Failing(fedpace.Policy):
    def on_started(self, event):
        raise ValueError("no luck")


def test_a_run_that_fails_leaves_the_others_alone():
    found = fedpace.compare(QUICK, policies=["sync", Failing], seeds=1, jobs=1)
    assert list(found) == ["sync"]
    assert "no luck" in str(found.failed["Failing", 0])
    assert "1 failed" in repr(found)
    with pytest.raises(fedpace.FedpaceError, match="all runs failed; Failing, seed 0: policy Failing"):
        fedpace.compare(QUICK, policies=[Failing], seeds=1, jobs=1)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"policies": "sync"}, "policies is 'sync'; give a list"),
        ({"policies": [3]}, "policy is 3; give a label, a name, or a class"),
        ({"policies": ["sinc"]}, r"there is no policy 'sinc' \(did you mean 'sync'\?\)"),
        ({"policies": [int]}, "has no dataclass Settings"),
        ({"policies": ["sync"], "seeds": 0}, "seeds is 0"),
        ({"policies": ["sync"], "seeds": [1, 1]}, "different whole numbers"),
        ({"policies": ["sync"], "jobs": 0}, "jobs is 0"),
        ({}, "there is nothing to compare"),
        (
            {"policies": ["sync"], "resume": True},
            "resume=True is about runs in a folder; give it, as out=",
        ),
        ({"policies": ["sync"], "overwrite": True}, "overwrite=True is about runs in a folder"),
    ],
)
def test_wrong_arguments_are_one_line(options, complaint):
    with pytest.raises(fedpace.ConfigError, match=complaint):
        fedpace.compare(QUICK, **options)


def test_public_names_are_those_that_dir_shows():
    assert dir(fedpace) == sorted(fedpace.__all__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(getattr(fedpace, name) is not None for name in fedpace.__all__)
    assert fedpace.__version__[0].isdigit()
