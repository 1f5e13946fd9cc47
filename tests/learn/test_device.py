"""Where clients train. What needs a GPU is in test_cuda.py."""

import pickle
import threading

import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn import device
from fedpace.learn.device import (
    DeviceStart,
    at_work,
    default_precision,
    drawing,
    open_device,
    settle_precision,
)
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import task


@pytest.fixture
def gpus(monkeypatch):
    """Make torch believe in so many GPUs."""

    def believe(count, built="13.0"):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.version, "cuda", built)

    return believe


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "mps", ""])
def test_an_unknown_device_is_refused_with_the_known_ones(gpus, name):
    gpus(1)
    with pytest.raises(ConfigError, match="use cpu, cuda or cuda:N"):
        open_device(name)


def test_a_device_is_started_beside_other_work_and_says_later_what_went_wrong(gpus, monkeypatch):
    gpus(1)
    begun, go_on = threading.Event(), threading.Event()

    def start(name):
        begun.set()
        go_on.wait(60)
        raise RuntimeError(f"{name} is broken")

    monkeypatch.setattr(device, "start_device", start)
    started = DeviceStart("cuda")
    assert begun.wait(60)
    go_on.set()
    with pytest.raises(RuntimeError, match="cuda is broken"):
        started.wait()
    started.join()
    with pytest.raises(ConfigError, match="GPUs are numbered 0 to 0"):
        DeviceStart("cuda:1")


def test_a_cpu_is_always_there():
    DeviceStart("cpu").wait()


@pytest.mark.parametrize(
    ("capability", "precision"), [((9, 0), "tf32"), ((8, 0), "tf32"), ((7, 5), "float32")]
)
def test_a_gpu_trains_in_tf32_where_it_has_that(gpus, monkeypatch, capability, precision):
    gpus(1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert default_precision("cuda") == precision
    assert settle_precision(TrainSettings(), "cuda").precision == precision
    assert settle_precision(TrainSettings(precision="bf16"), "cuda").precision == "bf16"


def test_a_cpu_trains_in_float32_and_so_does_a_trainer_that_is_not_told(gpus):
    gpus(1)
    assert settle_precision(TrainSettings(), "cpu").precision == "float32"
    assert Trainer(task(), TrainSettings(), 0).settings.precision == "float32"
    assert Trainer(task(), TrainSettings(precision="tf32"), 0).settings.precision == "tf32"


def test_without_cuda_the_error_says_why_and_what_to_do(gpus):
    gpus(0, built=None)
    with pytest.raises(ConfigError, match=r"device is cuda,.* built without CUDA; use device='cpu'"):
        open_device("cuda")
    gpus(0)
    with pytest.raises(ConfigError, match=r"device is cuda:1,.* no GPU is visible; use device='cpu'"):
        open_device("cuda:1")


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(gpus):
    gpus(2)
    assert open_device("cuda") == torch.device("cuda", 0)
    assert open_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="GPUs are numbered 0 to 1"):
        open_device("cuda:2")


def test_trainer_and_evaluator_refuse_a_bad_device():
    trainer = Trainer(task(), TrainSettings(), 1)
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        Trainer(task(), TrainSettings(), 1, device="tpu")
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        Evaluator(trainer.task, trainer.layout, trainer.new_model(), device="tpu")


def test_a_pickled_trainer_asks_for_its_device_again():
    trainer = Trainer(task(), TrainSettings(), 1)
    trainer.device = "cuda:99"  # as if it came from another machine
    packed = pickle.dumps(trainer)
    with pytest.raises(ConfigError, match="cuda:99"):
        pickle.loads(packed)


def test_on_the_cpu_no_setting_of_torch_is_touched(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "flags", None)
    with at_work(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "highest"


def test_draws_follow_the_seed_and_leave_no_trace():
    cpu = torch.device("cpu")
    before = torch.get_rng_state()
    with drawing(cpu, 3):
        one = torch.rand(4)
    with drawing(cpu, 3):
        assert torch.equal(torch.rand(4), one)
    with drawing(cpu):
        torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
