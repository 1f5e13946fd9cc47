import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import LOSS, MetricInfo
from fedpace.report.collection import default_targets
from fedpace.report.table import markdown, target_costs


def reaching(summary, *times, **values):
    """One run a seed; each reaches 70% at its time, or never."""
    return [
        summary(accuracy=[(0.0, 0.1), (time, 0.7)] if time else [(0.0, 0.1), (99.0, 0.6)], **values)
        for time in times
    ]


def cells(text):
    """The cells of a markdown table: {label: {header: cell}}."""
    lines = [
        [c.strip() for c in line.strip("|").split(" | ")] for line in text.splitlines() if "|" in line
    ]
    return {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[2:]}


def test_time_to_a_target_is_mean_and_sample_deviation_over_seeds(summary):
    groups = {"timely": reaching(summary, 90, 120, 150), "sync": reaching(summary, 600, 600, 660)}
    table = cells(markdown(groups, [0.7]))
    assert table["timely"]["to 70% (min)"] == "2.0 ± 0.5 (1.00x)"
    assert table["sync"]["to 70% (min)"] == "10.3 ± 0.6 (5.17x)"


def test_the_unit_of_time_suits_the_longest_of_the_table(summary):
    assert "to 70% (s)" in markdown({"a": reaching(summary, 100)}, [0.7])
    assert "to 70% (min)" in markdown(
        {"a": reaching(summary, 100), "b": reaching(summary, 4000)}, [0.7]
    )
    assert "to 70% (h)" in markdown({"a": reaching(summary, 20_000)}, [0.7])
    assert "to 70% (days)" in markdown({"a": reaching(summary, 1_000_000)}, [0.7])


def test_one_seed_has_no_deviation(summary):
    text = markdown({"a": reaching(summary, 100)}, [0.7])
    assert cells(text)["a"]["to 70% (s)"] == "100"
    assert "±" not in text
    assert "One seed" in text


def test_a_target_that_not_all_seeds_reach_is_no_mean(summary):
    groups = {"a": reaching(summary, 60, 60, 60), "b": reaching(summary, 30, None, 50)}
    table = cells(markdown(groups, [0.7, 0.8]))
    assert table["b"]["to 70% (s)"] == "n/a (2/3 reached, mean 40.0)"
    assert table["a"]["to 80% (s)"] == "n/a (0/3 reached)"


def test_a_factor_needs_all_seeds_of_both_rows(summary):
    groups = {"a": reaching(summary, 30, None), "b": reaching(summary, 60, 60)}
    first, second = target_costs(groups, 0.7)
    assert first.factor is None
    assert second.factor is None
    assert (first.reached, first.seeds) == (1, 2)
    assert cells(markdown(groups, [0.7]))["b"]["to 70% (s)"] == "60.0 ± 0.0"


def test_a_target_met_before_any_training_gives_no_factor(summary):
    run = summary(accuracy=[(0.0, 0.9)])
    first, second = target_costs({"a": [run], "b": [run]}, 0.5)
    assert (first.factor, second.factor) == (None, None)


def test_the_other_columns_are_means_in_readable_units(summary):
    runs = reaching(summary, 10, 20)
    runs[1] = summary(
        accuracy=[(0.0, 0.9), (5.0, 0.8)],
        clients_per_round=[6, 0, 0, 2],
        participation={0: 0.5, 1: 0.0},
        idle_share=0.35,
        down_bytes=5_000_000,
    )
    row = cells(markdown({"a": runs}, []))["a"]
    assert row["best (%)"] == "80.0 ± 14.1"
    assert row["final (%)"] == "75.0 ± 7.1"
    assert row["rounds"] == "3"
    assert row["participation (% of rounds)"] == "50.0"
    assert row["left out (% of clients)"] == "25.0"  # one of two in the second run
    assert row["clients a round"] == "3.0"
    assert row["idle (%)"] == "30.0"
    assert row["moved (MB)"] == "5.0"


def test_updates_and_samples_an_hour_are_means_over_clients(summary):
    runs = [summary(joined=2, updates={0: 3, 1: 1}, samples={0: 30, 1: 10}, end_s=360.0)]
    row = cells(markdown({"a": runs}, []))["a"]
    assert row["updates an hour"] == "20.0"
    assert row["samples an hour"] == "200"


def test_who_leaves_nobody_out_needs_no_column_for_it(summary):
    whole, partly = summary(participation={0: 0.5, 1: 0.1}), summary(participation={0: 0.5, 1: 0.0})
    assert "left out (% of clients)" not in cells(markdown({"a": [whole]}, []))["a"]
    both = cells(markdown({"a": [whole], "b": [partly]}, []))
    assert [both[label]["left out (% of clients)"] for label in "ab"] == ["0.0", "50.0"]


def test_a_run_without_rounds_has_no_participation_to_show(summary):
    empty = summary(clients_per_round=[], round_times=[], participation={})
    row = cells(markdown({"a": [empty]}, []))["a"]
    assert row["participation (% of rounds)"] == "n/a"


def test_a_small_share_is_not_rounded_to_nothing(summary):
    groups = {"a": [summary(participation={0: 0.0004})], "b": [summary(participation={0: 0.5})]}
    table = cells(markdown(groups, []))
    assert table["a"]["participation (% of rounds)"] == "0.040"
    assert table["b"]["participation (% of rounds)"] == "50.000"


def test_timing_only_runs_have_no_columns_about_accuracy(summary):
    text = markdown({"a": [summary()]}, [0.7])
    assert "70%" not in text
    assert "best" not in text
    assert cells(text)["a"]["rounds"] == "2"


def paying(summary, *spent, **values):
    """One run a seed; each reaches 70% for its money, or never, and spends one more."""
    return [
        summary(
            accuracy=[(0.0, 0.1), (9.0, 0.7 if money else 0.6)],
            accuracy_by_money=[(0.0, 0.1), (money, 0.7)] if money else [(0.0, 0.1), (8.0, 0.6)],
            money=(money or 8.0) + 1,
            **values,
        )
        for money in spent
    ]


def test_where_things_cost_money_the_table_says_how_much(summary):
    groups = {"timely": paying(summary, 2.0, 3.0, 4.0), "sync": paying(summary, 6.0, 6.0, 7.5)}
    table = cells(markdown(groups, [0.7]))
    assert table["timely"]["to 70% (money)"] == "3.0 ± 1.0 (1.00x)"
    assert table["sync"]["to 70% (money)"] == "6.5 ± 0.9 (2.17x)"
    assert table["sync"]["spent (money)"] == "7.5"
    text = markdown(groups, [0.5, 0.7])
    assert all(words in text for words in ("to 50% (money)", "to 70% (money)", "spent (money)"))


def test_money_that_did_not_get_all_seeds_there_is_no_mean(summary):
    groups = {"a": paying(summary, 2.0, None), "b": paying(summary, None)}
    table = cells(markdown(groups, [0.7]))
    assert table["a"]["to 70% (money)"] == "n/a (1/2 reached, mean 2.0)"
    assert table["b"]["to 70% (money)"] == "n/a (0/1 reached)"


@pytest.mark.parametrize("order", [("free", "paid"), ("paid", "free")])
def test_a_label_in_which_nothing_has_a_price_has_no_numbers_about_money(summary, order):
    groups = {"free": reaching(summary, 9.0), "paid": paying(summary, 2.0)}
    table = cells(markdown({label: groups[label] for label in order}, [0.7]))
    assert table["free"]["to 70% (money)"] == table["free"]["spent (money)"] == "n/a"
    assert table["paid"]["to 70% (money)"] == ("2.0 (1.00x)" if order[0] == "paid" else "2.0")


def test_where_nothing_costs_anything_the_table_does_not_speak_of_money(summary):
    text = markdown({"a": reaching(summary, 90)}, [0.7])
    assert "money" not in text
    assert "spent" not in text


def test_timing_only_runs_say_what_they_spent(summary):
    text = markdown({"a": [summary(money=12.0)]}, [0.7])
    assert cells(text)["a"]["spent (money)"] == "12.0"
    assert "70%" not in text


def test_a_label_is_never_taken_for_markup(summary):
    assert r"[bold]a\|b" in markdown({"[bold]a|b": [summary()]}, [])


def test_seeds_that_differ_between_rows_are_said(summary):
    text = markdown({"a": [summary()], "b": [summary(), summary()]}, [])
    assert "over 1 to 2 seeds" in text


@pytest.mark.parametrize("target", [0.0, -0.1, 70, float("nan")])
def test_a_target_that_is_no_share_is_refused(summary, target):
    with pytest.raises(ConfigError, match=r"set it in \(0, 1\]"):
        markdown({"a": [summary()]}, [target])


def test_a_label_without_runs_is_refused():
    with pytest.raises(ConfigError, match="no runs under 'a'"):
        markdown({"a": []}, [0.5])


def test_the_caption_says_whose_clock_it_was(summary):
    groups = {"a": reaching(summary, 10.0), "b": reaching(summary, 10.0, clock="real")}
    assert "times are virtual." in markdown({"a": groups["a"]}, [0.7])
    assert "times are real." in markdown({"b": groups["b"]}, [0.7])
    assert "times are real and virtual." in markdown(groups, [0.7])


def regression(summary, *best):
    return {
        f"policy {number}": [
            summary(
                metrics=(MetricInfo("r2"), LOSS),
                values={"r2": [(0.0, -0.5), (60.0, one)], "loss": [(0.0, 1234.5), (60.0, 1000 * one)]},
            )
        ]
        for number, one in enumerate(best)
    }


def test_a_task_without_accuracy_has_a_table_of_its_own_metrics(summary):
    groups = regression(summary, 0.91234, 0.5)
    text = markdown(groups, default_targets(groups))
    _, _, head, _, first, second, *_ = text.splitlines()
    assert head.startswith("| policy | r2 ≥ 0.6 (s) | r2 ≥ 0.8 (s) | best r2 | final r2 | final loss |")
    assert first.startswith("| policy 0 | 60.0 (1.00x) | 60.0 (1.00x) | 0.9123 | 0.9123 | 912.3 |")
    assert "n/a (0/1 reached)" in second
    text = markdown(groups, (800.0,), "loss")
    assert text.splitlines()[2].startswith(
        "| policy | loss ≤ 800 (s) | best loss | final loss | final r2 |"
    )


def test_a_target_of_a_share_that_is_none_is_refused_and_others_may_be_anything(summary):
    run = summary(accuracy=[(0.0, 0.9)])
    with pytest.raises(ConfigError, match=r"target is 70.*set it in \(0, 1\]"):
        markdown({"a": [run]}, (70,))
    assert "r2 ≥ -3" in markdown(regression(summary, 0.5), (-3.0,))


def test_the_caption_names_a_precision_below_float32(summary):
    exact, quick = reaching(summary, 60), reaching(summary, 60, precision="tf32")
    assert markdown({"a": exact}, [0.7]).endswith("times are virtual.\n")
    assert markdown({"a": quick, "b": quick}, [0.7]).endswith("virtual. Trained in tf32.\n")
    mixed = markdown({"a": quick, "b": exact}, [0.7])
    assert mixed.endswith("Trained in float32, but a in tf32.\n")
