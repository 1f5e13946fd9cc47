import pytest

from fedpace.report.page.paired import paired_difference, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 9, 30, 101])
def test_quantiles_are_students(freedom):
    special = pytest.importorskip("scipy.special", reason="scipy is the oracle")
    assert student_quantile(freedom) == pytest.approx(special.stdtrit(freedom, 0.975), rel=1e-9)
    assert student_quantile(freedom, 0.5) == pytest.approx(special.stdtrit(freedom, 0.75), rel=1e-9)


def test_the_interval_is_that_of_a_paired_t_test():
    one, other = [10.0, 12.0, 9.5, 11.0], [13.0, 14.5, 13.0, 13.1]
    found = paired_difference(dict(enumerate(one)), dict(enumerate(other)))
    # scipy.stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((-3.741812661, -1.808187339), rel=1e-8)
    assert (found.seeds, found.missing, found.verdict) == (4, 0, "less")


def test_seeds_that_do_not_agree_cannot_tell():
    assert paired_difference({0: 1.0, 1: 5.0}, {0: 5.0, 1: 1.0}).verdict == "level"
    assert paired_difference({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 3.1, 2: 1.9}).verdict == "more"


def test_only_seeds_that_both_have_count():
    found = paired_difference({0: 1.0, 1: 2.0, 9: 99.0}, {0: 2.0, 1: 3.0, 5: 7.0})
    assert (found.seeds, found.mean) == (2, -1.0)


@pytest.mark.parametrize(
    ("one", "other", "mean", "missing"),
    [
        ({0: 1.0}, {0: 2.0}, -1.0, 0),
        ({0: 1.0, 1: None, 2: 4.0}, {0: 2.0, 1: 2.0, 2: 5.0}, -1.0, 1),
        ({0: 60.0, 1: 80.0}, {0: 80.0, 1: 100.0}, -20.0, 0),
        ({0: 0.7, 1: 0.8, 2: 0.9}, {0: 0.6, 1: 0.7, 2: 0.8}, 0.1, 0),
        ({0: None}, {0: 2.0}, None, 1),
        ({0: 1.0}, {1: 2.0}, None, 0),
    ],
    ids=[
        "one seed",
        "a seed that missed the target",
        "the same by two tests",
        "the same but for rounding",
        "none reached",
        "no seed in common",
    ],
)
def test_what_cannot_be_compared_is_not_judged(one, other, mean, missing):
    found = paired_difference(one, other)
    assert (found.missing, found.verdict) == (missing, "unknown")
    assert found.mean == (None if mean is None else pytest.approx(mean))


def test_labels_that_are_the_same_in_every_seed_are_level():
    assert paired_difference({0: 60.0, 1: 80.0}, {0: 60.0, 1: 80.0}).verdict == "level"
