"""Training on a GPU, by graphs and without."""

import warnings
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.core.facts import Evaluated
from fedpace.data.fashion import load_shipped
from fedpace.learn.device import at_work, open_device
from fedpace.learn.many.processes import ProcessExecutor
from fedpace.learn.model.stopped import backward_until
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.tasks.images import image_task
from fedpace.learn.tasks.models import build_model
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.graphs import GraphSteps
from fedpace.learn.train.steps import EagerSteps
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, task
from tests.learn.train.test_training import job, same

pytestmark = pytest.mark.gpu

SEED = 7
SGD = TrainSettings(lr=0.1, options={"momentum": 0.9, "weight_decay": 0.01})
# A usual eps would make the first step the sign of a gradient, and so of its rounding.
ADAM = TrainSettings(optimiser="Adam", lr=0.003, options={"eps": 1e-3})
ADAMW = TrainSettings(optimiser="AdamW", lr=0.003, options={"eps": 1e-3})


def images(model="cnn", clients=3, samples=150):
    data = load_shipped()
    shares = torch.arange(clients * samples).split(samples)
    build = partial(build_model, model, 1, 10)
    whole = Task(build, (data.train_x, data.train_y), (data.test_x, data.test_y), scale=1 / 255)
    return whole.divided([share.numpy() for share in shares])


def steady():
    """`normed` without dropout, which draws other numbers on a GPU."""
    return nn.Sequential(*(layer for layer in normed() if not isinstance(layer, nn.Dropout)))


def both(made, settings):
    return Trainer(made, settings, SEED), Trainer(made, settings, SEED, device="cuda")


def eager(made, settings):
    trainer = Trainer(made, settings, SEED, device="cuda")
    trainer._whole.steps = EagerSteps(trainer._whole.model, made.loss, settings)
    return trainer


def close(one, other, params, buffers=1e-5):
    assert (one.depth, one.width) == (other.depth, other.width)
    assert torch.equal(one.counters.cpu(), other.counters.cpu())
    assert (one.params.cpu() - other.params.cpu()).abs().max() < params
    assert one.buffers.numel() == 0 or (one.buffers.cpu() - other.buffers.cpu()).abs().max() < buffers


def estimates_agree(one, other):
    for name in ("gradient", "noise", "smoothness", "loss", "change", "slope"):
        found, expected = getattr(one.estimates, name), getattr(other.estimates, name)
        assert found == pytest.approx(expected, rel=0.01), name
    scale = other.gradient.abs().max()
    assert (one.gradient.cpu() - other.gradient).abs().max() < 1e-3 * scale


def devices(update):
    return {tensor.device.type for tensor in (update.params, update.buffers, update.counters)}


@pytest.mark.parametrize("settings", [SGD, ADAM, ADAMW], ids=lambda s: s.optimiser)
@pytest.mark.parametrize(("steps", "tolerance"), [(1, 2e-6), (20, 3e-4)])
def test_a_gpu_trains_as_a_cpu_does(settings, steps, tolerance):
    cpu, gpu = both(images(), settings)
    work = job(steps=steps, depth=5, batch_size=32)  # batches of 32 and 22
    expected = cpu.run(work, cpu.initial())
    update = gpu.run(work, gpu.initial())
    assert devices(update) == {"cuda"}
    assert expected.params.abs().max() > 1e-3
    close(update, expected, tolerance)


@pytest.mark.parametrize("settings", [SGD, ADAM], ids=lambda s: s.optimiser)
@pytest.mark.parametrize(("depth", "full_steps"), [(4, 0), (2, 0), (2, 3), (1, 9)])
def test_partial_depths_and_statistics_are_those_of_a_cpu(settings, depth, full_steps):
    cpu, gpu = both(task(steady, clients=(13, 21)), settings)
    work = job(1, depth=depth, full_steps=full_steps)  # batches of 5 and one of 1
    close(gpu.run(work, gpu.initial()), cpu.run(work, cpu.initial()), 1e-4, 1e-4)


@pytest.mark.parametrize("settings", [SGD, ADAM], ids=lambda s: s.optimiser)
def test_graphs_and_steps_one_by_one_agree(settings):
    graphs, plain = Trainer(images(), settings, SEED, device="cuda"), eager(images(), settings)
    assert isinstance(graphs._whole.steps, GraphSteps)
    work = job(steps=12, depth=5, batch_size=32)
    close(graphs.run(work, graphs.initial()), plain.run(work, plain.initial()), 2e-5)


@pytest.mark.parametrize("settings", [SGD, ADAM], ids=lambda s: s.optimiser)
@pytest.mark.parametrize(("steps", "depth", "last"), [(1, 2, 2), (3, 4, 2), (4, 4, 1), (2, 4, 4)])
def test_a_stopped_step_is_that_of_a_cpu(settings, steps, depth, last):
    cpu, gpu = both(task(steady, clients=(13, 21)), settings)
    work = job(0, steps=steps, depth=depth, last_depth=last)
    close(gpu.run(work, gpu.initial()), cpu.run(work, cpu.initial()), 1e-4, 1e-4)


def test_a_backward_pass_on_a_gpu_can_be_broken_off_again_and_again():
    gpu = Trainer(images(), SGD, SEED, device="cuda")
    bound, depth = gpu._whole.bound, gpu.layout.depth
    inputs, targets = (one[:32].to(open_device("cuda")) for one in gpu.task.train)

    def value():
        bound.model.zero_grad()
        return gpu.task.loss(bound.model(inputs), targets)

    with at_work(open_device("cuda")):
        value().backward()
        expected = [param.grad for param in bound.params(depth)]
        for _ in range(20):
            for wanted in range(1, depth + 1):
                assert (
                    backward_until(value(), bound, lambda reached, at=wanted: reached >= at) == wanted
                )
                known = len(bound.params(wanted))
                assert all(param.grad is None for param in bound.frozen(wanted))
                for param, grad in zip(bound.params(wanted), expected[-known:], strict=True):
                    assert torch.equal(param.grad, grad)


def test_a_learning_rate_that_decays_and_estimates_are_those_of_a_cpu():
    settings = TrainSettings(lr=0.1, decay=0.5, options={"momentum": 0.9})
    cpu, gpu = both(task(steady, clients=(13, 21)), settings)
    assert isinstance(gpu._whole.steps, EagerSteps)
    work = job(depth=4, version=3, estimate="gradient")
    one, two = gpu.run(work, gpu.initial()), cpu.run(work, cpu.initial())
    close(one, two, 1e-4, 1e-4)
    estimates_agree(one, two)


@pytest.mark.parametrize("model", ["svm", "lrn-cnn"])
def test_dynamites_models_train_and_estimate_as_on_a_cpu(model):
    data = load_shipped()
    cpu, gpu = both(
        image_task("shipped", model, data).divided([torch.arange(150).numpy()]), TrainSettings(lr=0.003)
    )
    work = job(client=0, steps=5, depth=gpu.layout.depth, batch_size=30, estimate="gradient")
    one, two = gpu.run(work, gpu.initial()), cpu.run(work, cpu.initial())
    close(one, two, 1e-5)
    estimates_agree(one, two)


def test_a_thinner_model_trains_as_on_a_cpu():
    cpu, gpu = both(images(), SGD)
    work = job(steps=3, depth=5, batch_size=32, width=0.5)
    update = gpu.run(work, gpu.initial())
    assert devices(update) == {"cuda"}
    close(update, cpu.run(work, cpu.initial()), 2e-5)


def test_weights_of_a_round_go_to_the_gpu_once():
    uploads = []

    class Watched(Weights):
        def on(self, device):
            uploads.append(self)
            return super().on(device)

    trainer = Trainer(task(steady), SGD, SEED, device="cuda")
    start = trainer.initial()
    rounds = [Watched(start.params + 0.01 * n, start.buffers, start.counters) for n in range(2)]
    found = [trainer.run(job(number, depth=4), rounds[at]) for at in (0, 1) for number in range(3)]
    assert uploads == rounds
    assert same(trainer.run(job(1, depth=4), rounds[0]), found[1])


def test_a_result_does_not_depend_on_the_jobs_before_it():
    jobs = [
        job(0, 1, depth=5),
        job(1, 2, depth=5),
        job(0, 3, depth=2, full_steps=3),
        job(1, 4, depth=1),
        job(1, 5, steps=3, depth=5, last_depth=3),
        job(1, 6, depth=5, width=0.5),
        job(1, 7, depth=5, estimate="numbers"),
    ]
    one = Trainer(task(normed), ADAM, SEED, device="cuda")
    two = Trainer(task(normed), ADAM, SEED, device="cuda")
    first = [one.run(work, one.initial()) for work in jobs]
    second = [two.run(work, two.initial()) for work in reversed(jobs)]
    for update, other in zip(first, reversed(second), strict=True):
        assert same(update, other)


def test_dropout_follows_the_task_and_leaves_the_generators_alone():
    trainer = Trainer(task(normed), SGD, SEED, device="cuda")
    before = torch.get_rng_state(), torch.cuda.get_rng_state()
    one, two = (trainer.run(job(task=t, depth=5), trainer.initial()) for t in (1, 2))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(torch.cuda.get_rng_state(), before[1])
    assert not torch.equal(one.params, two.params)
    assert same(trainer.run(job(task=1, depth=5), trainer.initial()), one)
    close(eager(task(normed), SGD).run(job(task=1, depth=5), trainer.initial()), one, 1e-5)


class Peeking(nn.Module):
    """Looks at a value, which a graph cannot."""

    def __init__(self):
        super().__init__()
        self.one, self.drop, self.two = nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3)

    def forward(self, x):
        out = self.drop(torch.tanh(self.one(x)))
        return self.two(out if out.sum() > 0 else -out)


def test_a_model_that_cannot_be_captured_trains_all_the_same():
    trainer = Trainer(task(Peeking), ADAM, SEED, device="cuda")
    with pytest.warns(UserWarning, match="cannot be made a CUDA graph"):
        first = trainer.run(job(depth=2), trainer.initial())
    assert same(trainer.run(job(depth=2), trainer.initial()), first)
    plain = eager(task(Peeking), ADAM)
    close(first, plain.run(job(depth=2), plain.initial()), 1e-5)
    other = Trainer(task(normed), SGD, SEED, device="cuda")  # the GPU is as good as before
    assert same(other.run(job(), other.initial()), other.run(job(), other.initial()))


def test_an_optimiser_that_needs_the_cpu_trains_without_graphs():
    cpu, gpu = both(task(), TrainSettings(optimiser="RMSprop", lr=0.01))
    assert isinstance(gpu._whole.steps, EagerSteps)
    close(gpu.run(job(), gpu.initial()), cpu.run(job(), cpu.initial()), 1e-4)


def test_products_and_convolutions_are_float32_whatever_the_program_has_set():
    gpu = open_device("cuda")
    draw = torch.Generator().manual_seed(1)
    one, two = (torch.rand(256, 256, generator=draw) for _ in range(2))
    image, kernel = torch.rand(8, 32, 16, 16, generator=draw), torch.rand(64, 32, 5, 5, generator=draw)
    torch.set_float32_matmul_precision("medium")
    try:
        with at_work(gpu):
            product = (one.to(gpu) @ two.to(gpu)).cpu()
            convolved = nn.functional.conv2d(image.to(gpu), kernel.to(gpu)).cpu()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.allclose(product.double(), one.double() @ two.double(), rtol=2e-6)
    exact = nn.functional.conv2d(image.double(), kernel.double())
    assert torch.allclose(convolved.double(), exact, rtol=5e-6)


def test_evaluation_is_that_of_a_cpu():
    cpu = Trainer(images(), ADAM, SEED)
    weights = cpu.initial()
    on_cpu, on_gpu = (
        Evaluator(cpu.task, cpu.layout, cpu.new_model(), device=device)(weights)
        for device in ("cpu", "cuda")
    )
    assert on_gpu == pytest.approx(on_cpu, abs=1e-3)


def test_several_processes_share_a_gpu():
    trainer = Trainer(task(steady), ADAM, SEED, device="cuda")
    jobs = [(job(client, client, depth=5), trainer.initial()) for client in (0, 1, 2)]
    with ProcessExecutor(trainer, 2) as processes:
        updates = processes.train(jobs)
        on_gpu = processes.train([(work, weights.on(open_device("cuda"))) for work, weights in jobs])
    assert all(map(same, updates, on_gpu))
    assert devices(updates[0]) == {"cpu"}
    for (work, weights), update in zip(jobs, updates, strict=True):
        close(update, trainer.run(work, weights), 1e-6)


@pytest.mark.parametrize("policy", ["timelyfl", "sync"])
def test_a_run_decides_the_same_on_every_device_and_learns_as_much(small, policy):
    small |= {"policy": policy, "stop": {"rounds": 25}}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".* will be slow")
        on_cpu, on_gpu = (fedpace.simulate(small, device=device) for device in ("cpu", "cuda"))
    decided = [[m for m in run.journal if not isinstance(m, Evaluated)] for run in (on_cpu, on_gpu)]
    assert decided[0] == decided[1]
    headers = [deepcopy(run.journal.header) for run in (on_cpu, on_gpu)]
    assert [one.run["train"].pop("precision") for one in headers] == ["float32", "tf32"]
    assert [one.run["train"].pop("kernel") for one in headers][1] == "torch"
    assert headers[0] == headers[1]
    assert on_gpu.accuracy[-1][1] == pytest.approx(on_cpu.accuracy[-1][1], abs=0.03)


def test_a_run_may_go_on_with_another_device(tmp_path, small):
    class Halt(Exception):
        pass

    def halt(standing):
        if standing.round == 3:
            raise Halt

    with pytest.raises(Halt):
        fedpace.simulate(small, out=tmp_path, device="cuda", snapshot_every_s=0, watches=(halt,))
    result = fedpace.simulate(small, out=tmp_path, resume=True)
    assert result.summary.rounds == 6


def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="GPUs are numbered 0 to"):
        Trainer(task(), SGD, SEED, device=f"cuda:{torch.cuda.device_count()}")


def test_memory_does_not_grow_with_tasks():
    trainer = Trainer(images(), ADAM, SEED, device="cuda")
    trainer.run(job(depth=5, batch_size=32), trainer.initial())
    before = torch.cuda.memory_allocated()
    for number in range(20):
        trainer.run(job(task=number, depth=5, batch_size=32), trainer.initial())
    assert torch.cuda.memory_allocated() <= before
