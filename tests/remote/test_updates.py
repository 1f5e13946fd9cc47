"""Models that go out and updates that come in, as the model server's source on a real network."""

import hashlib
import zlib

import numpy as np
import pytest
import torch

from fedpace.core.commands import Aggregate, Train, Work
from fedpace.core.errors import PeerError, PolicyError
from fedpace.learn.model.arrays import update_to_arrays, weights_to_arrays
from fedpace.learn.model.weights import Update
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.remote.defence.norms import NormGuard
from fedpace.remote.packing import pack, unpack
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from tests.messages import arrived
from tests.net.toy_task import task

MOST = 1 << 16


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(), TrainSettings(), 0)


class Site:
    """A model server with its spool."""

    def __init__(self, trainer, folder):
        store = ModelStore(trainer.layout, trainer.initial(), ServerSettings(), lambda _: {"loss": 0.0})
        self.spool = Spool(folder, MOST, 4 * MOST)
        self.updates = ReceivedUpdates(self.spool, (), NormGuard(bound=100.0))
        self.models = ModelServer(store, self.updates)

    def open(self, *tasks, version=0):
        for number in tasks:
            self.models.opened(Train(0, number, version, Work(10, epochs=1)))

    def send(self, number, update):
        data = pack(update_to_arrays(update))
        self.spool.offer(number, len(data), hashlib.sha256(data).digest())
        self.spool.append(number, 0, data, zlib.crc32(data))
        self.spool.finish(number)

    def receive(self, number, depth=3):
        self.models.expect(arrived(1.0, 0, number, depth=depth), Work(10, epochs=1))
        self.models.collect((number,))
        self.models.vet(number, 0, members=1)


@pytest.fixture
def site(trainer, tmp_path):
    return Site(trainer, tmp_path)


def moved(trainer, by=1.0):
    start = trainer.initial()
    return Update(3, torch.full_like(start.params, by), start.buffers, start.counters, 1.0)


def test_tasks_of_one_version_fetch_one_file_for_as_long_as_they_may(site, trainer):
    site.open(1, 2)
    file = site.updates.file(1)
    assert file is site.updates.file(2)
    params = unpack(file, MOST)["params"]
    assert np.array_equal(params, weights_to_arrays(trainer.initial())["params"])
    site.send(1, moved(trainer))
    site.receive(1)
    assert site.updates.file(1) is None
    assert site.updates.file(2) is file
    site.models.forget(2)
    assert site.updates.file(2) is None
    assert not site.updates._packed


def test_an_update_that_has_come_is_used(site, trainer):
    site.open(1)
    site.send(1, moved(trainer))
    site.receive(1)
    site.models.aggregate(Aggregate((1,), (1.0,)))
    assert torch.equal(site.models.weights().params, trainer.initial().params + 1)
    site.open(2, version=1)
    params = unpack(site.updates.file(2), MOST)["params"]
    assert np.array_equal(params, weights_to_arrays(site.models.weights())["params"])


@pytest.mark.parametrize(
    ("by", "depth", "complaint"), [(1e3, 3, "has norm"), (1.0, 2, "carries depth 3 and width None")]
)
def test_an_update_is_refused_that_is_too_large_or_not_what_was_reported(
    site, trainer, by, depth, complaint
):
    site.open(1)
    site.send(1, moved(trainer, by))
    with pytest.raises(PeerError, match=complaint):
        site.receive(1, depth)
    site.models.forget(1)
    with pytest.raises(PolicyError, match=r"not here: \[1\]"):
        site.models.aggregate(Aggregate((1,), (1.0,)))


class Unasked:
    """Nobody asks it anything."""


def test_a_server_that_is_retraced_up_to_a_snapshot_goes_on_as_the_one_before(trainer, tmp_path):
    def up_to_the_snapshot(site, send):
        site.open(1, 2)
        send(1)
        site.receive(1)
        site.models.aggregate(Aggregate((1,), (1.0,)))
        site.open(3, version=1)
        send(2)
        site.receive(2)
        return site

    before = Site(trainer, tmp_path)
    up_to_the_snapshot(before, lambda number: before.send(number, moved(trainer)))
    after = Site(trainer, tmp_path)
    after.models.retrace(Unasked())
    up_to_the_snapshot(after, lambda number: None)
    assert after.updates.file(3) is None  # the model is not known yet
    after.models.load(before.models.state())
    assert after.updates.file(3) == before.updates.file(3)
    assert after.updates.file(2) is None
    for site in (before, after):
        site.models.aggregate(Aggregate((2,), (0.5,), rule="mix"))
    assert torch.equal(after.models.weights().params, before.models.weights().params)
