"""Stacks of any architecture give what each client gives alone: recurrent, attention, batch norms."""

from functools import partial
from itertools import cycle

import pytest
import torch
from torch import nn

from fedpace.learn.many.choice import stacks_pay
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.operators.mode import StackOperators
from fedpace.learn.many.stacks.replay.trainer import ReplayTrainer
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.weights import Weights
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.many.architectures import SIZES, TASKS, Sequences, Words, sequences, texts
from tests.learn.train.test_graphs import Again
from tests.messages import make_job

CUDA = pytest.mark.gpu
MIXED = (5,), (5, 2, 3)
"""Sizes of batches that lie in one stack where it is replayed."""
OPTIMISERS = [
    {"options": {"momentum": 0.9}},
    {"optimiser": "Adam", "lr": 0.01, "options": {"eps": 1e-3}},  # not to follow the sign of rounding
]


def trainer_of(task, device="cpu", **settings):
    return Trainer(task, TrainSettings(**{"lr": 0.05, "batch_size": 5, **settings}), 7, device)


def several_depths(trainer, count=2, sizes=(5,)):
    """Jobs of three depths, with and without full steps before, from weights of three versions.

    sizes: of their batches, in turns.
    """
    first, full = trainer.initial(), trainer.layout.depth
    half = -(-full // 2)
    olds = cycle(
        Weights(first.params * (1 - 0.1 * version), first.buffers + 0.1 * version, first.counters)
        for version in range(3)
    )
    found = []
    for at, (depth, before) in enumerate(((full, 0), (half, 0), (half, 2), (1, 2))):
        for number in range(count):
            client = (2 * number + at) % len(SIZES)
            size = sizes[(at + number) % len(sizes)]
            job = make_job(client, 10 * at + number, 3 + before + number, before, depth, size)
            found.append((job, next(olds)))
    return found


def differences(found, expected):
    """Relative differences of updates, and of buffers; counters and forms must be equal."""
    away = []
    for one, other in zip(found, expected, strict=True):
        assert (one.depth, one.effort) == (other.depth, other.effort)
        assert torch.equal(one.counters, other.counters)
        away.append(float((one.params - other.params).norm() / other.params.norm()))
        if other.buffers.numel():
            away.append(float((one.buffers - other.buffers).norm() / other.buffers.norm()))
    return torch.tensor(away)


# One by one, steps of batch norms without momentum cannot be captured: torch reads their counter.
@pytest.mark.filterwarnings("ignore:training will be slow")
@pytest.mark.parametrize(
    ("device", "sizes"), [("cpu", (5,)), *(pytest.param("cuda", one, marks=CUDA) for one in MIXED)]
)
@pytest.mark.parametrize("name", TASKS)
def test_a_stack_gives_what_clients_give_one_by_one(name, device, sizes):
    trainer = trainer_of(TASKS[name](), device, **OPTIMISERS[len(name) % 2])
    executor, work = StackedExecutor(trainer), several_depths(trainer, sizes=sizes)
    away = differences(executor.train(work), SerialExecutor(trainer).train(work))
    assert away.median() < 1e-3
    assert away.max() < 1e-2
    full = next(how for kind, how in executor.notes.items() if f"depth {trainer.layout.depth}" in kind)
    assert "in stacks" in full


@pytest.mark.parametrize(
    "name",
    ["gru", "lstm of two layers", "encoder", "depthwise", "batch norm", "batch norms of rows", "words"],
)
@pytest.mark.parametrize("sizes", MIXED)
def test_a_replayed_stack_holds_jobs_of_all_depths_and_sizes_of_batches(name, sizes, monkeypatch):
    replayed, run = [], ReplayTrainer.run
    monkeypatch.setattr(
        ReplayTrainer,
        "run",
        lambda self, jobs, **given: replayed.append(len(jobs)) or run(self, jobs, **given),
    )
    trainer = trainer_of(TASKS[name](), **OPTIMISERS[0])
    executor, work = StackedExecutor(trainer, capture=Again()), several_depths(trainer, sizes=sizes)
    away = differences(executor.train(work), SerialExecutor(trainer).train(work))
    assert away.median() < 1e-3
    assert away.max() < 1e-2
    assert sum(replayed) == len(work)


@pytest.mark.parametrize("name", ["gru of two layers", "lstm", "gru cell", "sounds", "albert"])
def test_numbers_are_the_same_bits_whatever_else_is_in_a_stack_on_a_cpu(name):
    trainer = trainer_of(TASKS[name](), **OPTIMISERS[1])
    assert stacks_pay(trainer)
    work = several_depths(trainer, count=2)
    expected = StackedExecutor(trainer).train(work)
    for size in (1, 3):
        assert differences(StackedExecutor(trainer, size=size).train(work), expected).max() == 0


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: Sequences(nn.GRU, num_layers=2, dropout=0.5), "draws random numbers"),
        (lambda: Sequences(nn.LSTM, proj_size=3), "torch cannot run the model in a stack"),
        (Words, "scales gradients by how often tokens come"),
    ],
)
def test_what_is_rare_is_trained_one_by_one(model, reason):
    rare = texts(partial(Words, scale_grad_by_freq=True)) if model is Words else sequences(model)
    trainer = trainer_of(rare)
    executor, work = StackedExecutor(trainer), several_depths(trainer)[:4]
    assert differences(executor.train(work), SerialExecutor(trainer).train(work)).max() == 0
    assert reason in next(iter(executor.notes.values()))


def test_tokens_that_an_embedding_does_not_have_are_refused_in_a_stack_too():
    task = TASKS["words"]()
    trainer = trainer_of(task)
    trainer._samples[0][task.clients[3][:5]] = 50
    work = [(make_job(3, at, 8, 0, trainer.layout.depth, 5), trainer.initial()) for at in range(2)]
    with pytest.raises(IndexError, match="tokens reach from 0 to 50, but the embedding has 11"):
        StackedExecutor(trainer).train(work)


def test_a_stack_has_no_address_where_torch_looks_whether_weights_lie_in_one_piece():
    def found(weights):
        return weights + weights.data_ptr()

    with StackOperators():
        assert torch.equal(torch.vmap(found)(torch.ones(2, 5)), torch.ones(2, 5))
        assert torch.ones(1).data_ptr() != 0
