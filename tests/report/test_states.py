from fedpace.report.states import all_ended_well, best_cells, best_lines, state_cells
from fedpace.report.table import markdown

OVER = {"finished": "6 rounds are over"}


def diverged(summary, at_round, **values):
    reason = f"diverged at round {at_round}: so it was"
    return summary(diverged=(at_round, 60.0), finished=reason, **values)


def unfinished(summary, rounds):
    return summary(finished=None, clients_per_round=[1] * rounds)


def test_runs_that_ended_as_they_were_to_have_no_column(summary):
    groups = {"a": [summary(**OVER), summary(**OVER)]}
    assert all_ended_well(groups)
    assert "state" not in markdown(groups, ())


def test_a_cell_says_at_which_round_a_run_diverged_or_how_far_it_is(summary):
    groups = {
        "fine": [summary(**OVER)],
        "wild": [diverged(summary, 7)],
        "slow": [unfinished(summary, 3)],
    }
    assert not all_ended_well(groups)
    assert state_cells(groups) == ["finished", "diverged\nat round 7", "unfinished\nat round 3"]
    assert "diverged at round 7" in markdown(groups, ())


def test_of_several_seeds_it_counts_them(summary):
    runs = [diverged(summary, 9), summary(**OVER), diverged(summary, 7)]
    assert state_cells({"a": runs}) == ["2/3 diverged\n(rounds 7 to 9)"]
    runs = [diverged(summary, 7), unfinished(summary, 2)]
    assert state_cells({"a": runs}) == ["1/2 diverged\n(round 7),\n1/2 unfinished\n(round 2)"]


def cell(summary, *accuracies, **values):
    return [summary(**OVER | values, accuracy=[(0.0, 0.1), (9.0, value)]) for value in accuracies]


def test_the_best_cell_of_each_policy_is_named_with_how_it_was_chosen(summary):
    groups = {
        "a-lr=1": cell(summary, 0.5, 0.7),
        "a-lr=2": cell(summary, 0.6, 0.8),
        "a-lr=3": [*cell(summary, 0.9), diverged(summary, 7)],
        "a-lr=4": cell(summary, 0.9),  # another seed has failed
        "b-lr=1": cell(summary, 0.3, 0.3),
        "c-lr=1": [diverged(summary, 1), diverged(summary, 1)],
    }
    cells = {label: label[0] for label in groups}
    assert best_cells(groups, cells) == {"a": "a-lr=2", "b": "b-lr=1", "c": None}
    assert best_lines(groups, cells) == [
        "best of a: a-lr=2, final accuracy 70.0% (mean over 2 seeds, chosen by the same tests that the "
        "table shows)",
        "best of b: b-lr=1, final accuracy 30.0% (mean over 2 seeds, chosen by the same tests that the "
        "table shows)",
        "best of c: none, no cell has ended well with all seeds",
    ]
    assert best_lines(groups, {}) == []
