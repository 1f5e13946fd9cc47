"""Many clients at once give what each gives alone."""

from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from fedpace.core.errors import ConfigError, PolicyError
from fedpace.data.streams import StreamSettings, make_stream
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.weights import Weights
from fedpace.learn.tasks.svm import SquaredSvm, svm_hits, svm_loss
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import Recurrent, SharedDropout, Swapped, Tied, normed, plain, task
from tests.messages import changed_job, make_job

SEED = 7
SIZES = (13, 21, 6, 40, 15, 9)


def rectified():
    return nn.Sequential(
        nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 8, bias=False), nn.Sigmoid(), nn.Linear(8, 3)
    )


class Precise(nn.Module):
    """Four layers of float64."""

    def __init__(self):
        super().__init__()
        self.body = plain().double()

    def forward(self, x):
        return self.body(x.double())


class Centred(nn.Linear):
    """Looks at the whole batch."""

    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        return super().forward(x - x.mean(0))


class Branching(nn.Linear):
    """Needs a number, not a tensor."""

    def __init__(self):
        super().__init__(4, 3)

    def forward(self, x):
        return super().forward(x) * (2 if x.sum().item() > 0 else 1)


class Images(nn.Module):
    """Convolutions, group normalisation, a residual, pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4 * 9, 3)

    def forward(self, x):
        x = relu(self.norm(self.first(x)))
        x = nn.functional.max_pool2d(x + self.second(x), 2)
        return self.head(x.flatten(1))


def images():
    draw = np.random.default_rng(1)
    samples = draw.normal(size=(sum(SIZES), 1, 6, 6)).astype(np.float32)
    targets = draw.integers(0, 3, len(samples))
    shares = np.split(draw.permutation(len(samples)), np.cumsum(SIZES)[:-1])
    return Task(Images, (samples, targets), (samples[:5], targets[:5]), shares)


def svm():
    whole = task(lambda: SquaredSvm(4, 3), SIZES)
    return replace(whole, loss=svm_loss, accuracy=svm_hits)


def starts(trainer, count=3):
    """Weights of several versions."""
    first = trainer.initial()
    return [
        Weights(first.params * (1 - 0.1 * version), first.buffers, first.counters)
        for version in range(count)
    ]


def jobs(trainer, depth=None, full_steps=0, batch_size=5, count=8):
    """Clients of all sizes, some of them more than once, with 2 to 6 steps."""
    depth = depth or trainer.layout.depth
    return [
        (
            make_job(
                number % len(SIZES),
                100 + number,
                2 + full_steps + 3 * number % 5,
                full_steps,
                depth,
                batch_size,
            ),
            weights,
        )
        for number, weights in zip(range(count), cycle(starts(trainer)))
    ]


def trainer_of(made, seed=SEED, **settings):
    made = made if isinstance(made, Task) else task(made, SIZES)
    return Trainer(made, TrainSettings(**{"lr": 0.1, "batch_size": 5, **settings}), seed)


def distance(found, expected):
    """The largest difference of a number, as a share of the largest number of its update."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.depth, one.effort, one.width) == (other.depth, other.effort, other.width)
        assert one.params.shape == other.params.shape
        assert one.params.dtype == torch.float32
        assert torch.equal(one.buffers, other.buffers)
        assert torch.equal(one.counters, other.counters)
    return max(
        float((one.params - other.params).abs().max() / other.params.abs().max().clamp(min=1e-9))
        for one, other in zip(found, expected, strict=True)
    )


def same_bits(found, expected):
    return distance(found, expected) == 0


def both(trainer, work, **how):
    executor = StackedExecutor(trainer, **how)
    found = executor.train(work)
    return executor, found, SerialExecutor(trainer).train(work)


OPTIMISERS = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.05}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.05}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"maximize": True}),
    ("Adam", {}),
    ("AdamW", {"weight_decay": 0.1, "amsgrad": True}),
    ("RMSprop", {"momentum": 0.5}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
]


@pytest.mark.parametrize(("optimiser", "options"), OPTIMISERS)
@pytest.mark.parametrize(
    ("model", "depth", "full_steps"),
    [
        (plain, 4, 0),
        pytest.param(plain, 2, 0, marks=pytest.mark.nightly),
        (plain, 2, 3),
        pytest.param(Precise, 4, 0, marks=pytest.mark.nightly),
        pytest.param(Precise, 2, 0, marks=pytest.mark.nightly),
        (Precise, 2, 3),  # which has both kinds of steps
    ],
)
def test_every_optimiser_gives_what_it_gives_one_by_one(model, depth, full_steps, optimiser, options):
    lr = 0.1 if optimiser in ("SGD", "Adadelta") else 0.01
    trainer = trainer_of(model, optimiser=optimiser, lr=lr, options=options)
    executor, found, expected = both(trainer, jobs(trainer, depth, full_steps), size=5)
    assert 0 < distance(found, expected) < 1e-4 or model is Precise
    assert distance(found, expected) < (1e-6 if model is Precise else 1e-4)
    assert next(iter(executor.notes.values())) == "in stacks of up to 5"


@pytest.mark.parametrize(
    "made",
    [plain, rectified, Swapped, Recurrent, Tied, Centred, images, svm],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("batch_size", [1, pytest.param(5, marks=pytest.mark.nightly), 7, 64])
def test_every_model_gives_what_it_gives_one_by_one(made, batch_size):
    if made in (images, svm):
        trainer = trainer_of(made(), lr=0.02)
    elif made is Tied:
        trainer = trainer_of(words(), lr=0.02)
    else:
        trainer = trainer_of(made)
    executor, found, expected = both(trainer, jobs(trainer, batch_size=batch_size), size=5)
    assert distance(found, expected) < 1e-4
    assert "in stacks" in next(iter(executor.notes.values()))


def words():
    draw = np.random.default_rng(2)
    samples, targets = draw.integers(0, 11, (sum(SIZES), 5)), draw.integers(0, 11, sum(SIZES))
    shares = np.split(np.arange(len(samples)), np.cumsum(SIZES)[:-1])
    return Task(Tied, (samples, targets), (samples[:5], targets[:5]), shares)


@pytest.mark.parametrize("model", [plain, Swapped])
@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.nightly), 3, 12, None])
def test_results_do_not_depend_on_what_is_trained_together(model, size):
    trainer = trainer_of(model, options={"momentum": 0.9})
    work = [*jobs(trainer), *jobs(trainer, 2, count=4), *jobs(trainer, 2, full_steps=1, count=4)]
    _, found, expected = both(trainer, work, size=size)
    assert distance(found, expected) < 1e-4
    backwards = StackedExecutor(trainer, size=4).train(work[::-1])[::-1]
    assert distance(backwards, expected) < 1e-4


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_the_learning_rate_is_that_of_each_jobs_version(optimiser):
    trainer = trainer_of(plain, optimiser=optimiser, lr=0.01, decay=0.5)
    work = [(changed_job(job, version=job.client % 3), weights) for job, weights in jobs(trainer)]
    _, found, expected = both(trainer, work)
    assert distance(found, expected) < 1e-4


def test_a_stack_gets_shorter_as_clients_finish():
    trainer = trainer_of(Swapped, options={"momentum": 0.9})
    sizes = []
    with pytest.MonkeyPatch.context() as patch:
        original = trainer.gather
        patch.setattr(trainer, "gather", lambda places: sizes.append(len(places)) or original(places))
        work = [
            (make_job(client, client, steps, 0, 3, 2), trainer.initial())
            for client, steps in enumerate((1, 3, 3, 5))
        ]
        executor = StackedExecutor(trainer)
        executor.train(work)
        sizes.clear()
        executor.train(work)
    assert sizes == [8, 6, 6, 2, 2]


def test_clients_whose_samples_arrive_draw_from_what_they_have_seen():
    whole = task(plain, SIZES)
    stream = make_stream(StreamSettings(arrival="smooth", buffer=4, keep="fifo"), SIZES, SEED)
    trainer = Trainer(whole, TrainSettings(lr=0.1), SEED, stream=stream)
    work = [(changed_job(job, seen=3 + job.client), weights) for job, weights in jobs(trainer)]
    _, found, expected = both(trainer, work)
    assert distance(found, expected) < 1e-4


def test_behind_frozen_batch_statistics_the_last_layer_is_stacked():
    trainer = trainer_of(normed)
    executor, found, expected = both(trainer, jobs(trainer, depth=1))
    assert 0 < distance(found, expected) < 1e-4
    assert executor.notes == {"batch size 5, depth 1": "in stacks of up to 128"}
    assert found[0].buffers.numel() == 0


@pytest.mark.parametrize(
    ("made", "depth", "full_steps", "settings", "reason"),
    [
        (normed, 5, 0, {}, "draws random numbers"),
        (normed, 1, 2, {}, "draws random numbers"),
        (SharedDropout, 3, 0, {}, "draws random numbers"),
        (Branching, 1, 0, {}, "torch cannot run the model in a stack"),
        (Tied, 2, 0, {}, "gradients in a stack are not those of the model alone"),
        (plain, 4, 0, {"optimiser": "Adafactor"}, "Adafactor is not known to work number by number"),
    ],
)
def test_what_cannot_be_stacked_is_trained_one_by_one(made, depth, full_steps, settings, reason):
    trainer = trainer_of(words() if made is Tied else made, **settings)
    executor, found, expected = both(trainer, jobs(trainer, depth, full_steps))
    assert same_bits(found, expected)
    assert reason in next(iter(executor.notes.values()))
    assert executor.appetite == (128 if made is Tied else 1)  # that of the full model


@pytest.mark.parametrize(
    "special", [{"width": 0.5}, {"last_depth": 2}, {"estimate": "gradient"}, {"estimate": "numbers"}]
)
def test_special_jobs_are_trained_one_by_one_beside_the_others(special):
    trainer = trainer_of(plain)
    ordinary = jobs(trainer)
    work = [(changed_job(job, **special), weights) for job, weights in ordinary] + ordinary
    executor, found, expected = both(trainer, work)
    assert same_bits(found[: len(ordinary)], expected[: len(ordinary)])
    assert 0 < distance(found[len(ordinary) :], expected[len(ordinary) :]) < 1e-4
    assert found[0].estimates == expected[0].estimates
    assert "in stacks" in executor.notes["batch size 5, depth 4"]


@pytest.mark.parametrize("settings", [{}, {"options": {"momentum": 0.9}}, {"optimiser": "Adam"}])
def test_numbers_of_dense_layers_are_the_same_bits_whatever_else_is_in_the_stack(settings):
    trainer = trainer_of(rectified, **settings)
    work = jobs(trainer) + jobs(trainer, depth=2, full_steps=1)
    expected = StackedExecutor(trainer).train(work)
    for size in (1, 2, 5):
        assert same_bits(StackedExecutor(trainer, size=size).train(work), expected)
    assert same_bits([StackedExecutor(trainer).train([one])[0] for one in work], expected)


def test_serial_training_gives_the_bits_of_a_trainer():
    trainer = trainer_of(plain)
    work, executor = jobs(trainer), SerialExecutor(trainer)
    assert same_bits(executor.train(work), [trainer.run(*one) for one in work])
    assert executor.appetite == 1
    assert executor.train([]) == []
    assert StackedExecutor(trainer).train([]) == []


def test_weights_generators_and_the_model_are_left_alone():
    trainer = trainer_of(Swapped)
    work = jobs(trainer, depth=2, full_steps=1)
    state, before = torch.get_rng_state(), [weights.params.clone() for _, weights in work]
    with StackedExecutor(trainer) as executor:
        executor.train(work)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, weights.params) for one, (_, weights) in zip(before, work, strict=True))
    assert same_bits([trainer.run(*work[0])], SerialExecutor(trainer_of(Swapped)).train(work[:1]))


def test_an_update_does_not_keep_the_memory_of_its_stack():
    trainer = trainer_of(plain)
    for update in StackedExecutor(trainer).train(jobs(trainer)):
        assert update.params.untyped_storage().nbytes() == update.params.nbytes


def test_every_process_of_a_pool_can_stack_its_share():
    trainer = trainer_of(plain)
    work = jobs(trainer)
    with ProcessExecutor(trainer, 2, partial(StackedExecutor, size=3)) as processes:
        assert processes.appetite == 6
        found = processes.train(work)
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.mark.parametrize(
    ("wrong", "message"), [({"depth": 9}, "depth 9, but"), ({"client": 6}, "client 6 does not exist")]
)
def test_impossible_jobs_are_refused(wrong, message):
    trainer = trainer_of(plain)
    work = [(changed_job(job, **wrong), weights) for job, weights in jobs(trainer)]
    with pytest.raises(PolicyError, match=message):
        StackedExecutor(trainer).train(work)
    with pytest.raises(ConfigError, match="size is 0"):
        StackedExecutor(trainer, size=0)
