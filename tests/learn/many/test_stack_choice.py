"""Which way clients are trained, and that a measurement is short and remembered."""

import json

import pytest
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.many.stacks.choice import choose, quicker, usual_memo
from fedpace.learn.train.trainer import Job, Trainer, TrainSettings
from tests.learn.learning_toys import Swapped, plain, task


def trainer_of(model=plain, **settings):
    return Trainer(task(model, (9,) * 10), TrainSettings(**settings), 3)


class Clock:
    """Jumps by what is done."""

    def __init__(self):
        self.now, self.tries = 0.0, 0

    def __call__(self):
        return self.now

    def costing(self, start, each):
        def run(some):
            self.tries += 1
            self.now += start + each * len(some)

        return run


@pytest.mark.parametrize(
    ("alone", "start", "each", "pays"),
    [
        (1e-3, 2e-3, 1e-4, True),
        (1e-3, 9e-3, 1e-4, False),
        (1e-3, 0.0, 0.95e-3, False),
        (2e-2, 1e-3, 1e-3, False),  # too long a step to be tried
    ],
)
def test_a_stack_is_chosen_where_it_is_quicker(alone, start, each, pays):
    clock = Clock()
    work = [(Job(0, 0, 1, 0, 1, 5), trainer_of().initial())] * 10
    assert quicker(clock.costing(0, alone), clock.costing(start, each), work, clock, 0.05) == pays
    assert clock.now < 0.2


@pytest.mark.parametrize(
    ("together", "model", "method"),
    [
        ("by kind", plain, "stacked"),
        ("by kind", Swapped, "one by one"),  # torch's products of a stack may depend on its size
        ("one by one", plain, "one by one"),
        ("stacked", Swapped, "stacked"),
        ("compiled", plain, "compiled"),
    ],
)
def test_a_method_is_taken_as_told_or_by_the_kind_of_model(together, model, method):
    assert choose(trainer_of(model, together=together)) == method


def test_what_was_measured_is_remembered_for_the_model_and_the_settings(tmp_path):
    memo, asked = tmp_path / "cache" / "methods.json", []

    def clock():
        asked.append(1)
        return 0.0

    assert choose(trainer_of(together="auto"), memo, clock) == "one by one"
    calls = len(asked)
    assert calls > 0
    (key, method), *rest = json.loads(memo.read_text()).items()
    assert (method, rest) == ("one by one", [])
    memo.write_text(json.dumps({key: "stacked"}))
    assert choose(trainer_of(together="auto"), memo, clock) == "stacked"
    assert len(asked) == calls
    choose(trainer_of(together="auto", batch_size=3), memo, clock)
    assert len(asked) > calls
    assert len(json.loads(memo.read_text())) == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"other": 1}'])
def test_a_memory_that_cannot_be_used_is_measured_anew(tmp_path, text):
    memo = tmp_path / "methods.json"
    memo.write_text(text)
    assert choose(trainer_of(together="auto"), memo, lambda: 0.0) == "one by one"
    assert "one by one" in json.loads(memo.read_text()).values()
    assert choose(trainer_of(together="auto"), tmp_path, lambda: 0.0) == "one by one"  # a folder


def test_nothing_is_measured_where_nothing_can_be_stacked():
    def clock():
        raise AssertionError("measured")

    model = nn.BatchNorm1d
    assert choose(
        Trainer(task(lambda: model(4), (9, 9)), TrainSettings(together="auto"), 3), None, clock
    )


def test_measurements_are_kept_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert usual_memo() == tmp_path / "fedpace" / "methods.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert usual_memo() == tmp_path / ".cache" / "fedpace" / "methods.json"


def test_a_method_that_does_not_exist_is_refused():
    from fedpace.runs.config import load

    with pytest.raises(ConfigError, match=r"train\.together is 'all'"):
        load({"train": {"together": "all"}})
