import pytest

from fedpace.core.commands import Aggregate, Cancel, Note, SetTimer, Train, Work
from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.core.model import LayerCost, ModelProfile, Width
from fedpace.policies.heterofl import HeteroFL, HeteroFLSettings, task_s
from fedpace.policies.shared.waiting import DEADLINE

from .conftest import TEN_LAYERS, of

LEVELS = (1.0, 0.5, 0.25, 0.125, 0.0625)
THINNED = TEN_LAYERS.squared(LEVELS[1:])


def taking(compute_s, link_s=0.0):
    """A client whose full model takes so long to train, and so long each way."""
    return Rates(compute_s / 10, 10, link_s, link_s)


def begin(stage, rates, **options):
    """A stage after its first round, in which the clients have shown these rates; its answer."""
    on = stage(HeteroFL, clients=len(rates), model=options.pop("model", THINNED), **options)
    for client in list(on.open_tasks()):
        answer = on.arrive(1.0, client, rates=rates[client])
    return on, answer


def levels(commands):
    return {train.client: train.work.width for train in of(Train, commands)}


def test_who_is_not_known_gets_the_narrowest_level(stage):
    on = stage(HeteroFL, clients=3, model=THINNED)
    assert levels(on.first) == {0: 0.0625, 1: 0.0625, 2: 0.0625}
    assert {train.work.epochs for train in of(Train, on.first)} == {1}


def test_the_widest_level_that_fits_the_target_is_given(stage):
    # A quarter of the bytes and of the compute at half the channels, a sixteenth at a quarter, ...
    rates = [taking(9, 0.5), taking(30, 5), taking(40.1), taking(160, 0), taking(100_000)]
    _, answer = begin(stage, rates, target_s=10.0)
    assert levels(answer) == {0: None, 1: 0.5, 2: 0.25, 3: 0.25, 4: 0.0625}


def test_without_a_target_half_of_the_known_clients_train_the_full_model(stage):
    _, answer = begin(stage, [taking(4), taking(8), taking(16), taking(64), taking(65)])
    assert levels(answer) == {0: None, 1: None, 2: None, 3: 0.5, 4: 0.25}


def test_without_a_target_a_deadline_is_the_target(stage):
    _, answer = begin(stage, [taking(2), taking(4), taking(10)], deadline_s=5.0)
    assert levels(answer) == {0: None, 1: None, 2: 0.5}


def test_levels_follow_the_last_rates(stage):
    on, answer = begin(stage, [taking(10), taking(10)], target_s=10.0)
    assert levels(answer) == {0: None, 1: None}
    on.arrive(2.0, 0, rates=taking(1000))
    answer = on.arrive(2.0, 1, rates=taking(10))
    assert levels(answer) == {0: 0.0625, 1: None}
    on.arrive(3.0, 0, rates=taking(5))
    assert levels(on.arrive(3.0, 1, rates=taking(11))) == {0: None, 1: 0.5}


def test_a_level_is_told_by_what_the_thinner_model_really_costs(stage):
    model = ModelProfile((LayerCost("a", 1000, 1.0, 1.0),), (Width(0.5, 900, 0.1),))
    settings = {"model": model, "levels": (1.0, 0.5), "target_s": 10.0}
    # Half the channels are 90 percent of the bytes: 2 * 5 * 0.9 + 10 * 0.1 = 10 seconds.
    _, answer = begin(stage, [taking(10, 5.0), taking(10.1, 5.0)], **settings)
    assert levels(answer) == {0: 0.5, 1: 0.5}  # the narrowest, though the second does not fit
    half = model.width(0.5)
    assert task_s(taking(10, 5.0), Work(20, epochs=1), model, half) == pytest.approx(10.0)
    assert task_s(taking(10, 5.0), Work(20, epochs=1), model, None) == pytest.approx(20.0)


def test_a_thinner_model_saves_no_latency_and_epochs_and_steps_count():
    half, rates = THINNED.width(0.5), Rates(1.0, 10, 3.0, 5.0, latency_s=1.0)
    assert task_s(rates, Work(20, epochs=3), THINNED, half) == pytest.approx(2 + 6 / 4 + 30 / 4)
    assert task_s(rates, Work(20, steps=4), THINNED, half) == pytest.approx(2 + 6 / 4 + 4 / 4)
    received_free = Rates(1.0, 10, 0.0, 5.0, latency_s=1.0)
    assert task_s(received_free, Work(20, steps=4), THINNED, half) == pytest.approx(1 + 4 / 4 + 4 / 4)


def test_a_policy_names_the_widths_that_it_will_ask_for(stage):
    assert HeteroFL.widths(HeteroFLSettings()) == LEVELS[1:]
    assert HeteroFL.widths(HeteroFLSettings(levels=(0.5, 0.2))) == (0.5, 0.2)
    with pytest.raises(PolicyError, match=r"width 0.5 is asked for"):
        stage(HeteroFL, model=TEN_LAYERS)


def test_a_round_waits_for_all_it_asked_and_averages_by_samples(stage):
    on = stage(HeteroFL, clients=3, model=THINNED, samples=(200, 50, 300))
    assert on.arrive(1.0, 0) == []
    assert on.arrive(2.0, 1) == []
    ending = on.arrive(90.0, 2, samples=160)
    (mean,) = of(Aggregate, ending)
    assert (mean.rule, mean.missing, mean.weights) == ("mean", "skip", (200.0, 50.0, 300.0))
    assert [train.version for train in of(Train, ending)] == [1, 1, 1]


def test_who_is_late_is_cancelled_and_begins_again_with_the_narrowest_level(stage):
    on, answer = begin(stage, [taking(1), taking(1), taking(1)], deadline_s=5.0)
    assert levels(answer) == {0: None, 1: None, 2: None}
    assert of(SetTimer, answer) == [SetTimer(DEADLINE, 6.0)]
    on.arrive(2.0, 1, rates=taking(1))
    ending = on.tell(Timer(6.0, DEADLINE))
    assert sorted(cancel.client for cancel in of(Cancel, ending)) == [0, 2]
    assert len(of(Aggregate, ending)[0].tasks) == 1
    assert levels(ending) == {0: 0.0625, 1: None, 2: 0.0625}
    assert of(SetTimer, ending) == [SetTimer(DEADLINE, 11.0)]


def test_a_deadline_waits_for_its_quorum_and_is_stretched_by_the_slack(stage):
    on = stage(HeteroFL, clients=3, model=THINNED, deadline_s=5.0, quorum=2, slack=0.1)
    assert of(SetTimer, on.first) == [SetTimer(DEADLINE, 5.5)]
    on.arrive(1.0, 1)
    assert on.tell(Timer(5.5, DEADLINE)) == []
    assert len(of(Aggregate, on.arrive(8.0, 0))[0].tasks) == 2


def test_without_a_quorum_a_round_may_be_empty(stage):
    on = stage(HeteroFL, clients=2, model=THINNED, deadline_s=5.0, quorum=0)
    ending = on.tell(Timer(5.0, DEADLINE))
    assert of(Aggregate, ending) == [Aggregate((), ())]
    assert [note.text for note in of(Note, ending)] == ["empty round: nobody arrived"]


def test_failures_are_not_waited_for_and_replaced_only_below_the_quorum(stage):
    on = stage(HeteroFL, clients=4, model=THINNED, n=2)
    first, second = of(Train, on.first)
    on.arrive(1.0, first.client)
    ending = on.tell(Failed(2.0, second.client, second.task, "crashed"))
    assert len(of(Aggregate, ending)[0].tasks) == 1

    on = stage(HeteroFL, clients=4, model=THINNED, n=2, quorum=2)
    first, second = of(Train, on.first)
    on.arrive(1.0, first.client)
    (replacement,) = on.tell(Failed(2.0, second.client, second.task, "crashed"))
    assert isinstance(replacement, Train)
    assert replacement.client != first.client


def test_who_comes_back_is_remembered(stage):
    on, _ = begin(stage, [taking(40)], target_s=10.0)
    task = on.open_tasks()[0].task
    on.tell(Left(2.0, 0))
    assert on.tell(Failed(2.0, 0, task, "the client left")) == []
    assert levels(on.tell(Joined(5.0, 0, 10))) == {0: 0.5}


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"levels": ()}, r"levels is \[\]; give shares above 0 and at most 1, widest first"),
        ({"levels": (0.5, 1.0)}, r"levels is \[0.5, 1.0\]"),
        ({"levels": (1.0, 0.5, 0.5)}, "widest first"),
        ({"levels": (1.0, 0.0)}, "above 0"),
        ({"levels": (1.5, 0.5)}, "at most 1"),
        ({"levels": (1.0, float("nan"))}, "above 0"),
        ({"target_s": 0.0}, "target_s is 0.0"),
        ({"deadline_s": float("nan")}, "deadline_s is nan"),
        ({"target_s": 6.0, "deadline_s": 5.0}, "set target_s to 5.0 or less"),
        ({"quorum": -1}, "quorum is -1"),
        ({"n": 0}, "n is 0"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        HeteroFLSettings(**wrong)


def test_a_quorum_larger_than_the_round_is_refused(stage):
    with pytest.raises(ConfigError, match="quorum is 3, but a round has 2 clients"):
        stage(HeteroFL, model=THINNED, n=2, quorum=3)
