"""Sentences about timings and pilots say what the numbers say."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedpace.advice.aims import Aim, say_number
from fedpace.advice.pilots.race import RaceOutcome
from fedpace.advice.pilots.score import Chance, PilotScale, PilotScore
from fedpace.advice.pilots.state import RaceState
from fedpace.advice.ranking import pilot_sentences, rank
from fedpace.advice.reasons import timing_reasons
from fedpace.advice.timing.ground import find_ground
from fedpace.core.evaluation.metric import ACCURACY
from fedpace.runs import config as configs
from tests.advice.timing.test_screen import CONFIG, timed

TO_TARGET = Aim("time", "accuracy", 0.5, 3600.0)


@pytest.fixture(scope="module")
def ground():
    return find_ground(configs.load(CONFIG))


def raced(*scores: tuple[str, float], start: float = 0.1) -> RaceOutcome:
    """The outcome of a race whose candidates had these scores with one seed each."""
    scale = PilotScale(TO_TARGET, ACCURACY, start, 0.5, 3600.0)
    return RaceOutcome(
        scale,
        Chance(0.01, 3),
        {label: PilotScore({0: score}, 1) for label, score in scores},
        {label: {0: SimpleNamespace(end_s=3600.0, best=lambda _: 0.6)} for label, _ in scores},
        [],
        [],
        {},
        RaceState(),
    )


def test_two_policies_that_both_wait_do_not_make_clients_alike(ground):
    first, waits = timed(ground, "timelyfl", n=6, k=6), timed(ground, "sync")
    said = timing_reasons([first], [first, waits])
    assert not any("so alike" in one for one in said)
    assert "sync waits 100 s for every model, and its clients idle 45% of the time" in said


def test_rounds_that_a_deadline_ends_do_not_wait_for_everybody(ground):
    first = timed(ground, "fedbuff", k=2)
    early, waits = timed(ground, "sync", deadline_s=20.0), timed(ground, "sync")
    assert any("sync waits 100 s" in one for one in timing_reasons([first], [early, waits]))


def test_clients_of_one_speed_are_said_to_be_alike():
    fleet = CONFIG["fleet"] | {"compute_s": [1.0] * 6}
    ground = find_ground(configs.load({**CONFIG, "fleet": fleet}))
    first, waits = timed(ground, "fedbuff", k=2), timed(ground, "sync")
    said = timing_reasons([first], [first, waits])
    assert any(one.startswith("clients are so alike that waiting") for one in said)


def test_it_is_the_worse_that_takes_more(ground):
    kept = [timed(ground, "fedbuff", k=2), timed(ground, "sync")]
    race = raced(("fedbuff", 1.0), ("sync", 2.0))
    verdict, ranked = rank(race, kept)
    said = pilot_sentences(TO_TARGET, race, ranked, {one.label: one for one in kept})
    assert verdict == "clear"
    assert "fedbuff is better than sync, which takes 2.7 times as much time" in said
    missed = replace(race, scores={**race.scores, "sync": PilotScore({0: 2.0}, 0)})
    said = pilot_sentences(TO_TARGET, missed, rank(missed, kept)[1], {one.label: one for one in kept})
    assert "fedbuff is better than sync, which has not come to accuracy 50.0% in its pilots" in said


def test_a_single_candidate_is_no_race(ground):
    kept = [timed(ground, "fedbuff", k=2)]
    race = raced(("fedbuff", 1.0))
    verdict, ranked = rank(race, kept)
    assert verdict == "clear"
    assert "the only candidate" in pilot_sentences(TO_TARGET, race, ranked, {})[0]
    verdict, ranked = rank(race, [*kept, timed(ground, "sync")])
    assert verdict == "timing only"
    assert "alone was trained in the time" in pilot_sentences(TO_TARGET, race, ranked, {})[0]


def test_a_target_that_an_untrained_model_has_tells_nothing(ground):
    kept = [timed(ground, "fedbuff", k=2), timed(ground, "sync")]
    race = raced(("fedbuff", 1.0), ("sync", 1.0), start=0.55)
    _, ranked = rank(race, kept)
    known = {one.label: one for one in kept}
    said = pilot_sentences(TO_TARGET, race, ranked, known)
    assert any("an untrained model has accuracy 55.0% already" in one for one in said)
    higher = replace(TO_TARGET, target=0.6)
    assert not any("untrained" in one for one in pilot_sentences(higher, race, ranked, known))


@pytest.mark.parametrize(
    ("value", "words"), [(1000.0, "1,000"), (998.6, "999"), (0.14712, "0.147"), (667_312.0, "667,000")]
)
def test_numbers_are_written_out(value, words):
    assert say_number(value) == words
