"""Inputs of every form on a GPU: in memory there, in files, and read by a dataset."""

import pytest

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.many.test_inputs import jobs
from tests.learn.many.test_stacked import distance
from tests.learn.samples import input_toys as toys

pytestmark = pytest.mark.gpu

SETTINGS = TrainSettings(lr=0.1, batch_size=5)


def on_cpu(updates):
    for update in updates:
        for name in ("params", "buffers", "counters"):
            object.__setattr__(update, name, getattr(update, name).cpu())
    return updates


@pytest.mark.parametrize("name", [*toys.ALL, "mapped"])
def test_a_gpu_gives_what_the_cpu_gives(name, tmp_path):
    task = toys.mapped(tmp_path) if name == "mapped" else toys.ALL[name]()
    cpu, gpu = Trainer(task, SETTINGS, 7), Trainer(task, SETTINGS, 7, "cuda")
    for less, full_steps in ((0, 0), (1, 2)):
        work = jobs(cpu, cpu.layout.depth - less, full_steps)
        expected = SerialExecutor(cpu).train(work)
        assert distance(on_cpu(SerialExecutor(gpu).train(work)), expected) < 1e-3
        executor = StackedExecutor(gpu, size=4)
        assert distance(on_cpu(executor.train(work)), expected) < 1e-3
        assert "in stacks" in next(iter(executor.notes.values()))


@pytest.mark.parametrize("name", ["nested", "sentences", "mapped"])
def test_a_gpu_tests_as_the_cpu_does(name, tmp_path):
    task = toys.mapped(tmp_path) if name == "mapped" else toys.ALL[name]()
    trainer = Trainer(task, SETTINGS, 7)
    found = [
        Evaluator(task, trainer.layout, trainer.new_model(), 40, device)(trainer.initial())
        for device in ("cpu", "cuda")
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-4)
