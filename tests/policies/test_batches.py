"""Fixed ways to choose batch sizes: the same for all, by speed, growing."""

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate, Finish, Note, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.policies.batches import DBFL, NoStraggler, Uniform

from .conftest import of

SPEEDS = [40.0, 20.0, 10.0]


def started(stage, kind, samples=200, train=None, **settings):
    return stage(kind, clients=3, samples=samples, train=train or {"steps": 2}, **settings)


def deliver(made, at):
    for client, opened in made.open_tasks().items():
        size = opened.work.batch_size
        told = Rates(size / SPEEDS[client], 10, 0.25, 0.25)
        said = made.arrive(at, client, steps=2, rates=told, trained=opened.work.steps * size)
    return said


def sizes(said):
    return [command.work.batch_size for command in of(Train, said)]


def test_uniform_is_the_runs_batch_and_steps_for_all(stage):
    made = started(stage, Uniform)
    said = made.first
    for at in (5.0, 10.0):
        assert sizes(said) == [20, 20, 20]
        said = deliver(made, at)
    assert {command.work.steps for command in of(Train, said)} == {2}
    assert of(Aggregate, said)[0].weights == (200.0,) * 3


def test_no_straggler_gives_batches_by_speed_with_the_same_total(stage):
    made = started(stage, NoStraggler)
    assert sizes(made.first) == [20, 20, 20]  # nobody's speed is known
    found = sizes(deliver(made, 5.0))
    assert found == [34, 17, 9]
    assert sum(found) == 60
    took = [size / speed for size, speed in zip(found, SPEEDS, strict=True)]
    assert max(took) / min(took) < 1.1


def test_dbfl_starts_small_and_grows(stage):
    made = started(stage, DBFL, factor=1.5, most=10)
    found, said = [], made.first
    for at in range(1, 8):
        found.append(sizes(said)[0])
        said = deliver(made, 5.0 * at)
    assert found == [2, 3, 4, 6, 10, 10, 10]


def test_batches_are_never_larger_than_what_a_client_holds(stage):
    made = started(stage, Uniform, samples=[7, 200, 200])
    assert sizes(made.first) == [7, 20, 20]
    made = started(stage, NoStraggler, samples=[7, 200, 200])
    assert sizes(deliver(made, 5.0))[0] == 7


def test_steps_are_trimmed_to_the_money_and_that_is_said(stage):
    budget = Budget(money=3.1, sample_cost=(0.01,), round_cost=0.5)
    made = started(stage, Uniform, budget=budget)
    said = deliver(made, 5.0)  # 1.7 spent
    assert {command.work.steps for command in of(Train, said)} == {1}
    assert "1 of 2 steps: that is what the budgets allow" in [note.text for note in of(Note, said)]
    said = deliver(made, 10.0)
    assert of(Finish, said)[0].reason.startswith("the money is spent")


def test_who_fails_is_not_waited_for_and_who_comes_back_is_asked_again(stage):
    made = started(stage, Uniform)
    task = made.open_tasks()[2].task
    made.tell(Left(1.0, 2))
    made.tell(Failed(1.0, 2, task, "the client left"))
    made.tell(Joined(2.0, 2, 250))
    for client in (0, 1):
        said = made.arrive(5.0, client, steps=2, rates=Rates(1.0, 10, 0.2, 0.2), trained=40)
    assert len(of(Aggregate, said)[0].tasks) == 2
    assert len(sizes(said)) == 3


def test_it_ends_after_its_rounds(stage):
    for kind in (Uniform, NoStraggler, DBFL):
        made = started(stage, kind, rounds=1)
        assert of(Finish, deliver(made, 5.0))[0].reason == "1 rounds are over"


def test_local_epochs_are_refused():
    with pytest.raises(ConfigError, match=r"epochs is 3.*set train\.steps"):
        Uniform(Uniform.Settings(), Context(0, 3, ModelProfile.even(2, 8), 20, epochs=3))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"start": 0}, {"factor": 0.5}, {"most": 0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DBFL.Settings(**wrong)
