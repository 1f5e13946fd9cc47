import json

import numpy as np
import pytest

from fedpace.core.journal import JOURNAL
from fedpace.report.bias.groups import Bias, GroupBias
from fedpace.report.collection import collect_runs, find_journals
from fedpace.report.page.bias import PageBias
from fedpace.report.page.document import page_data
from fedpace.report.page.packing import unpack_columns
from fedpace.report.page.write import PAGE, journals_by_run, write_page
from fedpace.report.table import measures
from tests.report.page.conftest import ODD
from tests.report.page.large import large_details


@pytest.fixture(scope="module")
def data(page):
    text = page.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def test_labels_seeds_and_metrics_are_those_of_the_runs(data):
    assert [one["label"] for one in data["labels"]] == ["sync", ODD, "fedbuff"]
    assert [one["seeds"] for one in data["labels"]] == [[0, 1]] * 3
    assert [one["name"] for one in data["metrics"]] == ["accuracy", "loss"]
    assert len(data["runs"]) == len(data["timelines"]) == 6
    assert all(run["state"] == "finished" and run["version"] for run in data["runs"])


def test_the_table_is_the_one_that_the_terminal_shows(data, compared):
    groups = collect_runs(compared, ("sync",))
    expected = [[one.header, list(one.cells)] for one in measures(groups, (0.5, 0.7))]
    assert data["table"] == expected


def test_curves_of_every_axis_end_with_the_last_test(data, compared):
    columns = unpack_columns(data["curves"]["packed"])
    groups = collect_runs(compared, ("sync",))
    found = {(one["metric"], one["axis"], one["label"]): one["name"] for one in data["curves"]["list"]}
    assert {axis for _, axis, _ in found} == {"time", "rounds", "bytes"}
    runs = groups["sync"]
    name = found["accuracy", "rounds", 0]
    assert columns[f"{name}.x"][-1] == 12
    assert columns[f"{name}.mean"][-1] == pytest.approx(np.mean([run.final() for run in runs]))
    name = found["accuracy", "time", 0]
    assert columns[f"{name}.x"][-1] == pytest.approx(max(run.accuracy[-1][0] for run in runs))


def test_labels_are_compared_by_targets_and_by_the_last_and_best_value(data, compared):
    groups = collect_runs(compared, ("sync",))
    assert [one["text"] for one in data["targets"]] == [
        "to 50%",
        "to 70%",
        "final accuracy",
        "best accuracy",
    ]
    value = data["targets"][2]["value"]
    assert value["labels"][0]["values"] == [run.final() for run in groups["sync"]]
    pair = next(one for one in value["pairs"] if one[:2] == [2, 0])
    expected = [a.final() - b.final() for a, b in zip(groups["fedbuff"], groups["sync"], strict=True)]
    assert pair[2:5] == [2, 0, pytest.approx(np.mean(expected), abs=1e-9)]
    taken = data["targets"][0]["time"]["labels"][0]
    assert taken["mean"] == pytest.approx(np.mean([run.time_to(0.5) for run in groups["sync"]]))


def test_clients_have_updates_and_samples_an_hour(data, compared):
    columns = unpack_columns(data["clients"]["packed"])
    run = collect_runs(compared)["sync"][0]
    updates = columns["k0.updates_an_hour"][:12].sum() * run.end_s / 3600
    assert updates == pytest.approx(sum(run.clients_per_round), rel=1e-4)
    groups = {one["key"]: one["groups"] for one in data["clients"]["measures"]}
    slow, _, fast = groups["updates_an_hour"][2]
    assert slow < fast, "fedbuff asks whoever is free"
    assert {
        "updates_an_hour",
        "samples_an_hour",
        "participation",
        "depth",
        "epochs",
        "batches",
        "fair",
    } <= set(groups)


def test_shares_of_time_add_up_to_all_of_it(data):
    for shares in data["time"]["shares"]:
        assert sum(shares) == pytest.approx(1)


def test_only_settings_that_differ_are_marked_so(data):
    rows = {row["key"]: row for row in data["settings"]}
    assert rows["policy"]["values"] == ['"sync"', '"timelyfl"', '"fedbuff"']
    assert not rows["policy"]["same"]
    assert rows["stop.rounds"]["same"]


def test_a_page_without_journals_still_has_its_numbers(compared, tmp_path):
    groups = collect_runs(compared)
    write_page(groups, tmp_path / PAGE, (0.5,), [])
    data = page_data(groups, (0.5,), lambda run: None)
    assert data["timelines"] == data["repeats"] == data["settings"] == []
    assert data["time"] is None
    assert len(data["table"]) > 5


def test_a_page_without_a_title_has_the_name_that_its_runs_have():
    details = large_details(3, 4)
    data = page_data({"sync": [details.summary]}, (), lambda run: details)
    assert data["title"] == "large"
    assert page_data({"sync": [details.summary]}, (), lambda run: None)["title"] == "sync"


def test_runs_go_by_the_label_that_they_are_given_under(summary):
    data = page_data({"mine": [summary(label="sync")]}, (), lambda run: None)
    assert [one["label"] for one in data["labels"]] == ["mine"]


def test_journals_are_found_by_label_and_seed(compared, tmp_path):
    (tmp_path / JOURNAL).write_text("no journal\n")
    found = journals_by_run([*find_journals(compared), tmp_path / JOURNAL])
    assert set(found) == {(label, seed) for label in ("sync", "fedbuff", ODD) for seed in (0, 1)}


@pytest.fixture
def three():
    """Details of three seeds, each of about 4,000 spans."""
    return [large_details(20, 50, seed) for seed in range(3)]


def of_seeds(three):
    return page_data({"sync": [one.summary for one in three]}, (), lambda run: three[run.seed])


def test_where_all_timelines_do_not_fit_the_first_seeds_are_on_the_page(monkeypatch, three):
    monkeypatch.setattr("fedpace.report.page.timelines.MOST_SPANS", 9_000)
    data = of_seeds(three)
    assert [one["run"] for one in data["timelines"]] == [0, 1]
    assert "Timelines of 1 more run are left out" in data["timelines"][0]["words"][-1]


def test_labels_share_the_room_for_timelines(monkeypatch, three):
    monkeypatch.setattr("fedpace.report.page.timelines.MOST_SPANS", 6_000)
    monkeypatch.setattr("fedpace.report.page.timelines.LEAST_SPANS", 1_000)
    groups = {str(seed): [one.summary] for seed, one in enumerate(three)}
    data = page_data(groups, (), lambda run: three[run.seed])
    assert [one["run"] for one in data["timelines"]] == [0, 1, 2]
    spans = [len(unpack_columns(one["packed"])["start"]) for one in data["timelines"]]
    assert sum(spans) <= 6_000
    assert min(spans) > 1_000


def test_of_a_journal_that_is_too_large_the_settings_are_shown(monkeypatch, compared, tmp_path):
    monkeypatch.setattr("fedpace.report.page.write.MOST_BYTES", 1_000)
    write_page(collect_runs(compared), tmp_path / PAGE, (0.5,), find_journals(compared))
    text = (tmp_path / PAGE).read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["timelines"] == []
    assert "Timelines of 6 runs are left out" in data["no_timeline"]
    assert len(data["repeats"]) == 3
    assert data["settings"]


def test_weight_of_data_is_shown_by_speed_group_for_every_label(data, compared):
    bias = data["bias"]
    assert bias["speeds"] == ["slow", "middle", "fast"]
    assert bias["classes"] == []
    for own in bias["labels"]:
        assert sum(group[1] for group in own["speed"]) == pytest.approx(1)
        assert sum(group[2] for group in own["speed"]) == pytest.approx(1)
        assert own["words"]
    slow, fast = bias["labels"][2]["speed"][0][0], bias["labels"][2]["speed"][2][0]
    assert slow < 0.8 < 1.2 < fast  # fedbuff takes up more of those who are quick


def test_of_many_classes_those_furthest_from_their_share_are_shown():
    groups = tuple(GroupBias(str(one), 3, 0.01, 0.01 * (1 + one / 100), 1.0) for one in range(100))
    found = PageBias(["sync", "other"])
    found.add(0, Bias((), groups, 0.25))
    part = found.part()
    assert part["classes"] == [str(one) for one in range(80, 100)]
    assert part["hidden_classes"] == 80
    assert part["labels"][1] is None
