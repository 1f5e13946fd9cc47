"""Adapters on a frozen base: only they are layers, travel, are cut and are averaged."""

from functools import partial

import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.events import Arrived, TaskResult
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.digest import model_digest
from fedpace.learn.train.job import Job
from fedpace.learn.train.trainer import Trainer
from tests.learn.adapters import RANK, WIDTH, Lora, Transformer, WithNorm, task

ADAPTER_BYTES = 4 * 2 * (WIDTH * RANK + RANK * 3 * WIDTH)
CONFIG = {
    "clients": 4,
    "policy": "sync",
    "fleet": {
        "kind": "explicit",
        "compute_s": [0.01, 0.02, 0.04, 0.08],
        "down_mbps": [1.0],
        "up_mbps": [1.0],
    },
    "train": {"batch_size": 5, "lr": 0.3},
    "stop": {"rounds": 3},
}


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(), TrainSettings(batch_size=5, lr=0.3), seed=0)


def job(client, depth=4, steps=3):
    result = TaskResult(depth, steps, steps if depth == 4 else 0, 10)
    return Job(client, client + 1, 0, 5, result)


def test_layers_are_the_adapters_in_the_order_in_which_they_run(trainer):
    assert [layer.name for layer in trainer.layout.layers] == [
        "blocks.0.attend.down",
        "blocks.0.attend.up",
        "blocks.1.attend.down",
        "blocks.1.attend.up",
    ]
    assert sum(layer.bytes for layer in trainer.layout.layers) == ADAPTER_BYTES
    assert trainer.initial().params.numel() * 4 == ADAPTER_BYTES
    assert {"embedding.weight", "blocks.1.mix.3.bias"} < trainer.layout.constants.keys()


def test_the_journals_bytes_are_those_of_the_adapters():
    result = fedpace.simulate(CONFIG, task=task())
    sent = [message.up_bytes for message in result.journal if isinstance(message, Arrived)]
    assert set(sent) == {ADAPTER_BYTES}
    assert result.summary.up_bytes == len(sent) * ADAPTER_BYTES
    assert result.summary.down_bytes == result.summary.tasks * ADAPTER_BYTES
    assert result.journal.header.context.model.depth == 4


def test_it_learns_and_slow_clients_train_the_last_adapters():
    config = CONFIG | {
        "policy": "timelyfl",
        "stop": {"rounds": 25},
        "train": {"batch_size": 5, "lr": 0.1},
    }
    result = fedpace.simulate(config, task=task())
    depths = {m.result.depth for m in result.journal if isinstance(m, Arrived)}
    assert min(depths) < 4
    first, last = result.summary.loss[0][1], result.summary.loss[-1][1]
    assert last < 0.8 * first


def test_what_is_frozen_stays_bit_by_bit_whatever_the_depth(trainer):
    before = {name: value.clone() for name, value in trainer.layout.constants.items()}
    for depth in (1, 2, 4):
        update = trainer.run(job(0, depth), trainer.initial())
        assert update.params.numel() == sum(
            trainer.layout.start(0).params - start.params for start in [trainer.layout.start(depth)]
        )
    body = dict(trainer.body(None).model.named_parameters())
    for name, value in before.items():
        assert torch.equal(body[name], value)


def test_the_base_is_in_memory_once_and_stays_tied(trainer):
    evaluator = Evaluator(trainer.task, trainer.layout, trainer.new_model())
    one, two = trainer.body(None).model, evaluator._model
    assert one is not two
    for name in ("embedding.weight", "blocks.0.attend.base.weight", "blocks.1.mix.1.weight"):
        assert one.get_parameter(name).data_ptr() == two.get_parameter(name).data_ptr()
    assert two.head.weight is two.embedding.weight
    adapter = "blocks.0.attend.down.weight"
    assert one.get_parameter(adapter).data_ptr() != two.get_parameter(adapter).data_ptr()


@pytest.mark.parametrize("depth", [1, 3, 4])
def test_stacks_share_the_base_and_give_what_one_by_one_gives(trainer, depth):
    jobs = [(job(client, depth), trainer.initial()) for client in range(4)]
    settings = TrainSettings(batch_size=5, lr=0.3, together="stacked")
    stacked = StackedExecutor(Trainer(task(), settings, seed=0))
    for one, many in zip(SerialExecutor(trainer).train(jobs), stacked.train(jobs), strict=True):
        assert torch.allclose(one.params, many.params, atol=1e-6)
    assert any("stack" in note for note in stacked.notes.values()), stacked.notes


def test_processes_train_as_one_process_does(tmp_path):
    for name, workers in (("one", 1), ("two", 2)):
        fedpace.simulate(CONFIG, task=task(), out=tmp_path / name, workers=workers)
    one, two = (torch.load(tmp_path / n / "weights.pt", weights_only=True) for n in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_saved_weights_are_the_whole_model_or_what_was_trained(tmp_path):
    for what in ("all", "trainable"):
        fedpace.simulate(CONFIG | {"weights": what}, task=task(), out=tmp_path / what)
    whole, trained = (
        torch.load(tmp_path / what / "weights.pt", weights_only=True) for what in ("all", "trainable")
    )
    assert len(trained) == 4
    assert {"embedding.weight", "head.weight"} < whole.keys()
    assert all(torch.equal(whole[name], value) for name, value in trained.items())
    model = Transformer()
    assert model.load_state_dict(trained, strict=False).unexpected_keys == []


def test_a_client_with_another_base_is_told_by_the_digest():
    loaded = Transformer().state_dict()

    def digest(name=None):
        weights = dict(loaded)
        if name is not None:
            weights[name] = weights[name] + 1e-3
        return model_digest(task(partial(from_file, weights)))

    assert digest() == digest()
    assert digest("blocks.0.attend.down.weight") == digest()  # what travels may differ
    assert digest("blocks.0.mix.1.bias") != digest()


def test_a_base_that_is_drawn_follows_the_seed_of_the_run_and_not_the_digest():
    torch.manual_seed(1)
    first = model_digest(task())
    torch.manual_seed(2)
    assert model_digest(task()) == first


def from_file(weights):
    model = Transformer()
    model.load_state_dict(weights)
    return model


def test_statistics_of_a_frozen_module_stay_and_do_not_travel():
    trainer = Trainer(task(WithNorm), TrainSettings(batch_size=5, lr=0.3), seed=0)
    assert trainer.initial().buffers.numel() == trainer.initial().counters.numel() == 0
    assert "scaled.running_mean" in trainer.layout.constants
    trainer.run(job(0), trainer.initial())
    norm = trainer.body(None).model.scaled
    assert torch.equal(norm.running_mean, torch.zeros(20))
    assert int(norm.num_batches_tracked) == 0
    assert not norm.training


def chain():
    return nn.Sequential(*(Lora(nn.Linear(8, 8, bias=False), rank=1) for _ in range(3)))


def test_the_way_back_through_the_frozen_base_is_counted():
    """Adapters of layer 1 need gradients through the bases of 2 and 3, not of 1, and no base's own."""
    trainer = Trainer(
        fedpace.Task(
            chain,
            (torch.randn(4, 8), torch.randn(4, 8)),
            (torch.randn(4, 8), torch.randn(4, 8)),
            [range(4)],
            loss=nn.functional.mse_loss,
            accuracy=lambda outputs, targets: torch.zeros(len(targets)),
        ),
        TrainSettings(),
        seed=0,
    )
    layers = trainer.profile().layers
    base, thin = 2 * 2 * 8 * 8, 2 * 2 * 8  # products of two samples: by W, and by A or B
    assert base * 3 < sum(layer.forward for layer in layers) < base * 3 + 6 * thin + 200
    first_down, first_up, second_down, _, _, last_up = (layer.backward for layer in layers)
    # The last B needs its own gradient; those before it the way back through a base, and their own.
    assert last_up < thin + 100
    assert base < second_down + layers[3].backward < base + 6 * thin + 200
    assert base < first_down + first_up < base + 6 * thin + 200


def test_a_model_made_of_one_base_for_all_is_fine():
    base = Transformer()

    result = fedpace.simulate(CONFIG, task=task(partial(shared_base, base)))
    assert len(result.summary.loss) == 4


def shared_base(base):
    model = Transformer()
    for name, value in base.named_parameters():
        if not value.requires_grad:
            model.get_parameter(name).data = value.data
    return model
