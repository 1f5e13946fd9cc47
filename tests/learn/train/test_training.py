"""One client's training."""

import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fedpace.core.random.keyed import generator, torch_seed
from fedpace.learn.device import drawing
from fedpace.learn.model.weights import Weights
from fedpace.learn.model.width import slim
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests import messages
from tests.learn.learning_toys import normed, plain, task

SEED = 7


def same(one, other):
    return one.depth == other.depth and all(
        torch.equal(getattr(one, kind), getattr(other, kind))
        for kind in ("params", "buffers", "counters")
    )


def job(client=0, task=1, steps=9, full_steps=0, depth=4, batch_size=5, **more):
    return messages.make_job(client, task, steps, full_steps, depth, batch_size, **more)


def applied(weights, update, layout):
    """`weights` with the update added."""
    at = layout.start(update.depth)
    params, buffers = weights.params.clone(), weights.buffers.clone()
    params[at.params :] += update.params
    buffers[at.buffers :] = update.buffers
    return Weights(params, buffers, torch.cat([weights.counters[: at.counters], update.counters]))


def batches_of(divided, work):
    """The job's batches, epoch after epoch."""
    share, left = divided.clients[work.client], work.result.steps
    for epoch in range(work.result.steps):
        draw = generator(SEED, "batches", work.client, work.task, epoch)
        order = torch.from_numpy(share[draw.permutation(len(share))])
        for rows in order.split(work.batch_size)[:left]:
            yield divided.train[0][rows], divided.train[1][rows]
            left -= 1


def by_hand(divided, trainer, work, optimise, slim=None):
    """The same job as a plain training loop; what `optimise` makes is stepped once a batch."""
    model, layout, start = divided.model(), trainer.layout, trainer.initial()
    if slim is not None:
        model, layout, start = slim.model, slim.layout, slim.take(start)
    layout.bind(model).load(start)
    model.train()
    optimiser = optimise(model.parameters())
    with drawing(torch.device("cpu"), torch_seed(SEED, "train", work.client, work.task)):
        for number, (inputs, targets) in enumerate(batches_of(divided, work), 1):
            optimiser.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            if number == work.result.steps and work.result.last_depth is not None:
                for param in layout.bind(model).frozen(work.result.last_depth):
                    param.grad = None
            optimiser.step()
    assert number == work.result.steps
    return layout.read(model)


@pytest.mark.parametrize("steps", [1, 3, 9])
def test_full_training_is_exactly_a_plain_loop(steps):
    divided = task()
    trainer = Trainer(divided, TrainSettings(lr=0.1, options={"momentum": 0.9}), SEED)
    expected = by_hand(
        divided, trainer, job(steps=steps), lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)
    )
    update = trainer.run(job(steps=steps), trainer.initial())
    assert torch.equal(update.params, expected.params - trainer.initial().params)
    assert update.params.abs().max() > 0


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"momentum": 0.9, "weight_decay": 0.1}])
@pytest.mark.parametrize(("steps", "depth", "last"), [(3, 5, 5), (3, 5, 2), (3, 5, 1), (1, 2, 2)])
def test_a_stopped_last_step_is_a_full_one_of_which_the_last_layers_are_used(
    steps, depth, last, settings
):
    divided = task(normed)
    trainer = Trainer(divided, TrainSettings(lr=0.1, options=settings), SEED)
    work = job(steps=steps, depth=depth, last_depth=last)
    expected = by_hand(
        divided, trainer, work, lambda params: torch.optim.SGD(params, lr=0.1, **settings)
    )
    update = trainer.run(work, trainer.initial())
    at = trainer.layout.start(depth)
    assert torch.equal(update.params, (expected.params - trainer.initial().params)[at.params :])
    assert torch.equal(update.buffers, expected.buffers[at.buffers :])
    assert update.effort == trainer.run(job(steps=steps, depth=5), trainer.initial()).effort


def test_a_stopped_step_may_meet_a_lone_sample():
    trainer = Trainer(task(normed, clients=(6, 9)), TrainSettings(), SEED)
    update = trainer.run(job(steps=2, depth=5, last_depth=3), trainer.initial())  # batches of 5 and 1
    assert update.counters.tolist() == [1, 1]
    assert torch.isfinite(update.params).all()


@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
def test_the_learning_rate_falls_with_the_version_that_a_task_starts_from(optimiser):
    def trained(version, **settings):
        trainer = Trainer(task(), TrainSettings(optimiser=optimiser, **settings), SEED)
        return trainer.run(job(version=version), trainer.initial())

    assert same(trained(0, lr=0.1, decay=0.5), trained(0, lr=0.1))
    assert same(trained(2, lr=0.1, decay=0.5), trained(0, lr=0.05))
    assert same(trained(2, lr=0.1, decay=0.0), trained(0, lr=0.1))


def test_a_thinner_model_trains_as_a_plain_loop_over_it():
    divided = task()
    trainer = Trainer(divided, TrainSettings(lr=0.1, options={"momentum": 0.9}), SEED)
    thin = slim(trainer.new_model(), trainer.layout, divided.train[0][:2], 0.5)
    expected = by_hand(
        divided, trainer, job(), lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), thin
    )
    update = trainer.run(job(width=0.5), trainer.initial())
    assert (update.depth, update.width) == (4, 0.5)
    assert torch.equal(update.params, expected.params - thin.take(trainer.initial()).params)
    assert 0 < update.params.numel() < trainer.initial().params.numel() / 2


def test_models_of_several_widths_do_not_meet():
    jobs = [job(0, 1, depth=5), job(0, 2, depth=5, width=0.5), job(1, 3, depth=5, width=0.3)]
    first = Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED)
    second = Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED)
    one = [first.run(work, first.initial()) for work in jobs]
    two = [second.run(work, second.initial()) for work in reversed(jobs)][::-1]
    assert all(map(same, one, two))
    assert [update.width for update in one] == [None, 0.5, 0.3]
    assert one[2].params.numel() < one[1].params.numel() < one[0].params.numel()


def test_an_update_carries_the_last_layers_only_and_leaves_the_weights_alone():
    trainer = Trainer(task(normed), TrainSettings(), SEED)
    start = trainer.initial()
    before = start.params.clone()
    update = trainer.run(job(depth=2), start)
    assert update.params.numel() == start.params.numel() - trainer.layout.start(2).params
    assert (update.buffers.numel(), update.counters.tolist()) == (12, [9])
    assert torch.equal(start.params, before)


@pytest.mark.parametrize("full_steps", [0, 4])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_frozen_layers_are_bit_identical_after_partial_training(depth, full_steps):
    trainer = Trainer(task(normed), TrainSettings(optimiser="Adam", lr=0.01), SEED)
    trainer.run(job(depth=depth, full_steps=full_steps), trainer.initial())
    after = trainer.layout.read(trainer._whole.model)
    at = trainer.layout.start(depth)
    for kind in ("params", "buffers", "counters"):
        stop = getattr(at, kind)
        assert torch.equal(getattr(after, kind)[:stop], getattr(trainer.initial(), kind)[:stop])


def test_after_full_steps_the_others_go_on_from_restored_frozen_layers():
    divided = task()
    trainer = Trainer(divided, TrainSettings(lr=0.1), SEED)
    both = trainer.run(job(steps=3, full_steps=2, depth=2), trainer.initial())
    full = trainer.run(job(steps=2, depth=4), trainer.initial())

    model = divided.model()
    at = trainer.layout.start(2).params
    params = torch.cat([trainer.initial().params[:at], (trainer.initial().params + full.params)[at:]])
    trainer.layout.bind(model).load(
        Weights(params, trainer.initial().buffers, trainer.initial().counters)
    )
    order = divided.clients[0][generator(SEED, "batches", 0, 1, 0).permutation(13)]
    rows = torch.from_numpy(order[10:15])
    cross_entropy(model(divided.train[0][rows]), divided.train[1][rows]).backward()
    torch.optim.SGD(list(model.parameters())[4:], lr=0.1).step()
    expected = trainer.layout.read(model).params[at:] - trainer.initial().params[at:]
    assert torch.allclose(both.params, expected, atol=1e-7)


def test_a_task_of_full_steps_only_still_sends_the_layers_it_was_asked_for():
    trainer = Trainer(task(), TrainSettings(), SEED)
    part = trainer.run(job(full_steps=9, depth=2), trainer.initial())
    full = trainer.run(job(depth=4), trainer.initial())
    assert torch.equal(part.params, full.params[-part.params.numel() :])


def test_momentum_lives_on_when_full_steps_end():
    quick = TrainSettings(lr=0.1, options={"momentum": 0.9})
    trainer = Trainer(task(), quick, SEED)
    trainer.run(job(steps=4, full_steps=2, depth=2), trainer.initial())
    seen = []

    def spy(optimiser, args, kwargs):
        params = optimiser.param_groups[0]["params"]
        seen.append([optimiser.state[p].get("momentum_buffer") is not None for p in params])

    watching = register_optimizer_step_pre_hook(spy)
    try:
        trainer.run(job(steps=4, full_steps=2, depth=2), trainer.initial())
    finally:
        watching.remove()
    assert seen == [[False] * 8, [True] * 8, [True] * 4, [True] * 4]


def test_a_result_does_not_depend_on_the_jobs_before_it():
    a, b = job(0, 1, depth=2, full_steps=3), job(1, 2, depth=5)
    first = Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED)
    second = Trainer(task(normed), TrainSettings(optimiser="Adam"), SEED)
    one = [first.run(a, first.initial()), first.run(b, first.initial())]
    two = [second.run(b, second.initial()), second.run(a, second.initial())]
    assert same(one[0], two[1])
    assert same(one[1], two[0])


def test_a_job_that_failed_half_way_leaves_no_gradients_for_the_next():
    class Fragile(nn.Linear):
        broken = False

        def forward(self, x):
            if Fragile.broken:
                x.register_hook(lambda grad: 1 / 0)
            return super().forward(x)

    trainer = Trainer(
        task(lambda: nn.Sequential(nn.Linear(4, 4), Fragile(4, 3))), TrainSettings(), SEED
    )
    expected = trainer.run(job(depth=2), trainer.initial())
    Fragile.broken = True
    with pytest.raises(ZeroDivisionError):
        trainer.run(job(depth=2), trainer.initial())
    Fragile.broken = False
    assert same(trainer.run(job(depth=2), trainer.initial()), expected)


def test_two_tasks_of_a_client_differ_in_batches_and_dropout():
    trainer = Trainer(task(normed), TrainSettings(), SEED)
    one = trainer.run(job(task=1, depth=5), trainer.initial())
    two = trainer.run(job(task=2, depth=5), trainer.initial())
    assert not torch.equal(one.params, two.params)


def test_training_does_not_touch_the_global_generator():
    state = torch.get_rng_state()
    trainer = Trainer(task(normed), TrainSettings(), SEED)
    trainer.run(job(depth=5), trainer.initial())
    trainer.profile("flops")
    assert torch.equal(torch.get_rng_state(), state)


def test_initial_weights_follow_the_seed():
    divided = task()
    one, two, other = (Trainer(divided, TrainSettings(), seed).initial().params for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_a_pickled_trainer_gives_the_same_results():
    trainer = Trainer(task(normed), TrainSettings(), SEED)
    copy = pickle.loads(pickle.dumps(trainer))
    assert same(trainer.run(job(), trainer.initial()), copy.run(job(), copy.initial()))


def test_a_last_batch_of_one_sample_trains_without_batch_statistics():
    trainer = Trainer(task(normed, clients=(6, 9)), TrainSettings(), SEED)
    update = trainer.run(job(steps=4, depth=5), trainer.initial())  # batches of 5, 1, 5, 1
    assert update.counters.tolist() == [2, 2]
    assert torch.isfinite(update.params).all()


def test_several_epochs_use_every_sample_once_each():
    divided = task()
    seen = []

    class Spy(nn.Linear):
        def forward(self, x):
            seen.append(x)
            return super().forward(x)

    trainer = Trainer(task(lambda: Spy(4, 3)), TrainSettings(), SEED)
    seen.clear()
    trainer.run(job(client=1, steps=10, depth=1), trainer.initial())
    assert [len(batch) for batch in seen] == [5, 5, 5, 5, 1] * 2
    expected = sorted(divided.train[0][divided.clients[1]].tolist())
    first, second = torch.cat(seen[:5]).tolist(), torch.cat(seen[5:]).tolist()
    assert sorted(first) == sorted(second) == expected
    assert first != second


def test_buffers_are_sent_as_they_are_infinite_masks_too():
    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))

    trainer = Trainer(task(Masked), TrainSettings(), SEED)
    assert trainer.run(job(depth=1), trainer.initial()).buffers.tolist() == [0.0, -torch.inf]


def test_training_learns():
    divided = task(plain, clients=(200,))
    targets = (divided.train[0][:, 0] > 0).long()
    learnable = type(divided)(plain, (divided.train[0], targets), divided.test, divided.clients)
    trainer = Trainer(learnable, TrainSettings(lr=0.3), SEED)
    model = plain()

    def loss(weights):
        trainer.layout.bind(model).load(weights)
        return cross_entropy(model(learnable.train[0]), targets).item()

    update = trainer.run(job(steps=100), trainer.initial())
    assert loss(applied(trainer.initial(), update, trainer.layout)) < 0.3 * loss(trainer.initial())
