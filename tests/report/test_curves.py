import numpy as np
import pytest

from fedpace.report.curves import clients_curve, metric_curve, participation_histogram, round_up, thin


def test_seeds_are_averaged_by_their_last_evaluation_so_far(summary):
    early = summary(accuracy=[(0.0, 0.0), (2.0, 0.4)])
    late = summary(accuracy=[(1.0, 0.2), (3.0, 0.6)])
    times, mean, low, high = metric_curve([early.accuracy, late.accuracy])
    assert times.tolist() == [1.0, 2.0, 3.0]
    assert mean == pytest.approx([0.1, 0.3, 0.5])
    assert low.tolist() == [0.0, 0.2, 0.4]
    assert high.tolist() == [0.2, 0.4, 0.6]


def test_of_two_evaluations_at_one_time_the_later_counts(summary):
    times, mean, *_ = metric_curve([[(0.0, 0.1), (5.0, 0.2), (5.0, 0.3)]])
    assert (times.tolist(), mean.tolist()) == ([0.0, 5.0], [0.1, 0.3])


def test_runs_without_evaluations_have_no_curve(summary):
    assert metric_curve([summary().accuracy, summary().accuracy]) is None
    assert metric_curve([summary(accuracy=[(0.0, 0.1)]).accuracy_by_money]) is None


def test_the_curve_over_money_is_made_in_the_same_way(summary):
    cheap = summary(accuracy_by_money=[(0.0, 0.0), (2.0, 0.4), (2.0, 0.2)])
    dear = summary(accuracy_by_money=[(0.0, 0.2), (3.0, 0.6)])
    money, mean, low, high = metric_curve([cheap.accuracy_by_money, dear.accuracy_by_money])
    assert money.tolist() == [0.0, 2.0, 3.0]
    assert mean == pytest.approx([0.1, 0.2, 0.4])
    assert low.tolist() == [0.0, 0.2, 0.2]
    assert high.tolist() == [0.2, 0.2, 0.6]


def test_many_evaluations_are_thinned_out_but_not_at_the_ends(summary):
    run = summary(accuracy=[(float(t), t / 5000) for t in range(5000)])
    times, mean, *_ = metric_curve([run.accuracy], most_points=100)
    assert (len(times), times[0], times[-1]) == (100, 0.0, 4999.0)
    assert mean == pytest.approx(times / 5000)


def test_the_running_mean_takes_in_all_seeds_that_got_so_far(summary):
    runs = [summary(clients_per_round=[2, 4, 6]), summary(clients_per_round=[4])]
    assert clients_curve(runs).tolist() == [3.0, 4.0, 6.0]


def test_the_running_mean_reaches_to_both_sides(summary):
    run = summary(clients_per_round=[0, 3, 0, 3, 0, 3])
    assert clients_curve([run], smooth=1 / 6).tolist() == [1.5, 1.0, 2.0, 1.0, 2.0, 1.5]


def test_no_rounds_make_an_empty_curve(summary):
    assert clients_curve([summary(clients_per_round=[])]).tolist() == []


def test_every_bin_holds_as_many_possible_rates(summary):
    rounds = 50
    run = summary(clients_per_round=[1] * rounds, participation={i: i / rounds for i in range(51)})
    counts, edges, mean = participation_histogram([run], 1.0)
    assert set(counts.tolist()) == {3}
    assert edges[0] < 0
    assert edges[-1] > 1
    assert mean == pytest.approx(0.5)


@pytest.mark.parametrize("rounds", [0, 1, 3, 19, 20, 21, 150, 2000])
def test_no_client_is_lost_between_bins(summary, rounds):
    rates = {i: round(i / 40 * rounds) / max(rounds, 1) for i in range(41)}
    run = summary(clients_per_round=[1] * rounds, participation=rates)
    counts, edges, _ = participation_histogram([run], 1.0)
    assert counts.sum() == 41
    assert len(counts) <= 20 or rounds < 20
    assert np.all(np.diff(edges) > 0)


@pytest.mark.parametrize(
    ("share", "end"),
    [(0.0, 1.0), (0.9, 1.0), (0.5, 0.5), (0.41, 0.5), (0.11, 0.2), (0.06, 0.1), (0.001, 0.001)],
)
def test_an_axis_of_shares_ends_at_a_round_number(share, end):
    assert round_up(share) == pytest.approx(end)


def test_thinning_leaves_few_values_alone():
    assert thin(np.arange(3), 3).tolist() == [0, 1, 2]
