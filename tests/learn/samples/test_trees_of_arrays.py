"""Tasks whose inputs and targets are tuples, dicts and nested structures of arrays."""

import pickle

import numpy as np
import pytest
import torch

import fedpace
from fedpace.core.commands import Work
from fedpace.core.errors import ConfigError
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import plain
from tests.learn.samples import input_toys as toys
from tests.messages import make_job

INPUTS, TARGETS = toys.arrays()


@pytest.mark.parametrize("name", toys.ALL)
def test_every_form_runs_under_a_policy_that_trains_parts(name):
    config = {"clients": 6, "fleet": {"kind": "phones"}, "stop": {"rounds": 3}, "train": {"lr": 0.1}}
    result = fedpace.simulate(config | {"policy": "timelyfl"}, task=toys.ALL[name]())
    assert result.summary.tasks > 0


def test_arrays_of_a_tree_keep_their_types():
    made = toys.named().train
    assert {key: one.dtype for key, one in made.inputs.items()} == {
        "ids": torch.int64,
        "mask": torch.bool,
        "numbers": torch.float32,
    }
    assert len(made) == toys.TOTAL
    inputs, targets = made
    assert inputs is made[0]
    assert targets is made[1]


def test_a_batch_has_the_rows_that_were_asked_for():
    inputs, targets = toys.nested().train.take(np.array([7, 2, 7]))
    assert torch.equal(inputs[0], torch.from_numpy(INPUTS["ids"][[7, 2, 7]]).long())
    assert torch.equal(inputs[1]["mask"], torch.from_numpy(INPUTS["mask"][[7, 2, 7]]))
    assert targets.tolist() == TARGETS[[7, 2, 7]].tolist()


def test_evaluation_goes_through_all_batches():
    task = toys.named()
    trainer = Trainer(task, TrainSettings(), 1)
    found = [
        Evaluator(task, trainer.layout, trainer.new_model(), size)(trainer.initial())
        for size in (7, 500)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_estimates_and_clocks_take_trees():
    trainer = Trainer(toys.nested(), TrainSettings(lr=0.1, batch_size=8), 1)
    update = trainer.run(make_job(1, 2, 3, 0, 3, 8, estimate="gradient"), trainer.initial())
    assert update.estimates.noise > 0
    assert trainer.profile("clock").depth == 3


@pytest.mark.parametrize("name", ["named", "two_targets", "sentences"])
def test_a_client_of_a_federation_trains_them(name):
    live = LiveTrainer(toys.ALL[name](), TrainSettings(lr=0.1, batch_size=5), 1, 0)
    orders = TaskOrders()
    orders.work(Work(5, steps=3))
    done = live.train(TaskOpening(1, 0, 5), live.initial(), orders, lambda: 0.0)
    assert done.result.steps == 3
    assert done.update.params.abs().sum() > 0


def test_thinner_models_take_several_inputs():
    numbers = INPUTS["numbers"]
    pair = {"a": numbers, "b": numbers}, TARGETS
    task = Task(toys.Summed, pair, pair)
    trainer = Trainer(task, TrainSettings(), 1)
    thin = trainer.slim(0.5)
    assert thin.model.left.out_features == 4
    assert trainer.profile(widths=(0.5,)).widths[0].compute < 1


def test_columns_are_divided_by_the_name_of_the_targets():
    made = Task(toys.Reader, INPUTS | {"y": TARGETS}, INPUTS | {"y": TARGETS}, target="y")
    assert list(made.train.inputs) == ["ids", "mask", "numbers"]
    assert made.train.targets.tolist() == TARGETS.tolist()
    both = Task(toys.Reader, INPUTS | {"y": TARGETS}, INPUTS | {"y": TARGETS}, target=("y", "mask"))
    assert list(both.train.targets) == ["y", "mask"]


def test_each_array_has_its_own_scale():
    pixels = {"pixels": np.full((2, 3), 51, np.uint8), "ids": np.ones((2, 3), np.uint8)}
    made = Task(plain, (pixels, [0, 1]), (pixels, [0, 1]), scale={"pixels": 1 / 255})
    assert made.train.inputs["pixels"].unique().tolist() == pytest.approx([0.2])
    assert made.train.inputs["ids"].dtype == torch.int64
    made = Task(plain, (tuple(pixels.values()), [0, 1]), (pixels, [0, 1]), scale=None)
    made = Task(plain, *[(tuple(pixels.values()), [0, 1])] * 2, scale=(1 / 255, None))
    assert made.train.inputs[0].dtype == torch.float32
    assert made.train.inputs[1].dtype == torch.int64


def test_lists_of_numbers_and_of_rows_are_arrays():
    made = Task(plain, ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [0, 1, 2]), ([[1, 2]], [0]))
    assert made.train.inputs.shape == (3, 2)
    assert made.train.inputs.dtype == torch.float32
    rows = [torch.zeros(4), torch.ones(4), torch.ones(4)]
    assert Task(plain, (rows, [0, 1, 2]), (rows, [0, 1, 2])).train.inputs.shape == (3, 4)


def test_half_precision_survives_pickling():
    pair = torch.ones(3, 2, dtype=torch.bfloat16), TARGETS[:3]
    copy = pickle.loads(pickle.dumps(Task(plain, pair, pair)))
    assert copy.train.inputs.dtype == torch.bfloat16
    assert copy.train.inputs.unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        ((INPUTS, TARGETS[:5]), {}, r"train targets has 5 rows, but inputs\['ids'\] has 104"),
        (
            (INPUTS | {"mask": INPUTS["mask"][:9]}, TARGETS),
            {},
            r"train inputs\['mask'\] has 9 rows, but inputs\['ids'\] has 104",
        ),
        (({}, TARGETS), {}, "train inputs is an empty dict"),
        (INPUTS, {}, "train is a dict with the keys 'ids', 'mask', 'numbers'; give"),
        (INPUTS, {"target": "label"}, "train has no column 'label' for targets; target must be one of"),
        ({"y": TARGETS}, {"target": "y"}, "no column but its targets"),
        ((INPUTS, TARGETS), {"scale": 1 / 255}, "scale is 0.0039.*give one number an array"),
        ((INPUTS, TARGETS), {"scale": {"idx": 2.0}}, "scale has the key 'idx'"),
        ((INPUTS["ids"], TARGETS), {"scale": {"ids": 2.0}}, "scale is .* is one array"),
        ((INPUTS["ids"], TARGETS), {"scale": float("nan")}, "scale is nan; give a finite number"),
        ((INPUTS["ids"], ["a"] * 104), {}, "train targets are strings such as 'a'; give numbers"),
        ((INPUTS["ids"], np.array(["a", "b"])), {}, "targets are strings such as 'a'"),
        ((np.array([[1, 2], [3]], object), TARGETS[:2]), {}, r"inputs are Python objects \(list\)"),
        (([[1, 2], [3]], TARGETS[:2]), {}, "train inputs have rows of unequal length"),
        ((np.zeros(3, complex), TARGETS[:3]), {}, "train inputs are complex128"),
        (
            (torch.zeros(3, dtype=torch.complex64), TARGETS[:3]),
            {},
            "train inputs are complex64; give real",
        ),
        (
            (torch.eye(3).to_sparse(), TARGETS[:3]),
            {},
            "train inputs are a sparse_coo tensor; give a dense",
        ),
        (([None, None], TARGETS[:2]), {}, r"train inputs\[0\] is a NoneType"),
        ((INPUTS["ids"], None), {}, "train targets is a NoneType"),
        (INPUTS["ids"], {}, r"train is one array of shape \(104, 5\)"),
        ((INPUTS["ids"],), {}, "train is a tuple of 1"),
        (((x, y) for x, y in ()), {}, "train is a generator, whose samples have no numbers"),
        (7, {}, "train is a int; give"),
        ("data.csv", {}, "train is a str"),
    ],
)
def test_what_cannot_be_samples_is_said_in_one_line(given, more, message):
    with pytest.raises(ConfigError, match=message) as raised:
        Task(plain, given, (INPUTS, TARGETS), **more)
    assert "\n" not in str(raised.value)
