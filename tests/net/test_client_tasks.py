"""What a client says of its own speed."""

import asyncio

import numpy as np
import pytest

from fedpace.core.events import TaskResult
from fedpace.learn.train.orders import LiveResult
from fedpace.net import client_tasks
from fedpace.net import federation_pb2 as pb
from fedpace.net.client_tasks import ClientTasks, ServerLink
from fedpace.net.transfer import TransferTime
from fedpace.remote import packing as arrays
from fedpace.remote.trainee import TrainedTask

MODEL = arrays.pack({"params": np.zeros(250_000, "<f4")})
LATENCY_S = 0.25


class Quick:
    """Trains nothing, and says so at once."""

    samples, model = 20, ""

    def prepare(self, settings, seed, client):
        pass

    def batches(self, batch_size):
        return 1

    def train(self, opened, weights, orders, on_profile, on_step):
        orders.wait()
        return TrainedTask(LiveResult(TaskResult(1, 1, 0, 20, 20), 1e-3, None), {"params": np.zeros(1)})


def reported(monkeypatch, *uploads, trips=()):
    """Speeds that are reported after each of these uploads (bytes, seconds).

    trips: before each task, seconds that a message takes, one way; at first LATENCY_S.
    """
    sent, takes = iter(uploads), iter(trips)

    async def fetch(stub, task, most, metadata):
        return MODEL, TransferTime(len(MODEL), 2.0)

    async def send(stub, task, data, metadata, ask):
        assert not ask
        return TransferTime(*next(sent))

    monkeypatch.setattr(client_tasks.transfer, "fetch", fetch)
    monkeypatch.setattr(client_tasks.transfer, "send", send)

    async def play():
        line = ServerLink(tuple)
        line.stub = None
        line.trips.extend([LATENCY_S] * 3)
        line.connected.set()
        work = ClientTasks(Quick(), line, lambda: 0.0)
        found = []
        work.on_task = lambda: line.trips.append(next(takes, LATENCY_S))
        for task in range(1, len(uploads) + 1):
            work.work(pb.Train(task=task, work='{"batch_size":5,"steps":1}'))
            said = await asyncio.wait_for(line.outbox.get(), 30)
            assert said.done.task == task
            found.append(said.done.rates)
        await work.stop()
        return found

    return asyncio.run(play())


def up_seconds(monkeypatch, *uploads):
    """Of the bytes of the model, without what any message takes."""
    found = reported(monkeypatch, *uploads)
    assert {one.latency_s for one in found} == {3 * LATENCY_S}
    assert {one.down_s for one in found} == {2.0 + LATENCY_S}
    return [one.up_s - one.latency_s for one in found]


def test_an_upload_tells_how_quick_the_line_is(monkeypatch):
    """Of a call that took a second, half a second is its way there and back."""
    assert up_seconds(monkeypatch, (100_000, 1.0)) == [pytest.approx(0.5 * len(MODEL) / 100_000)]


def test_an_upload_of_a_few_bytes_tells_nothing_of_it(monkeypatch):
    """As down, until something larger went up; then as that."""
    found = up_seconds(monkeypatch, (1000, 1.0), (100_000, 1.0), (1000, 1.0))
    large = pytest.approx(0.5 * len(MODEL) / 100_000)
    assert found == [pytest.approx(1.5), large, large]


@pytest.mark.parametrize(("after", "within"), [(1.0, 3), (0.05, 1)])
def test_estimates_follow_a_step_in_latency_within_three_tasks(monkeypatch, after, within):
    found = reported(monkeypatch, *[(1000, 1.0)] * 4, trips=[after] * 4)
    assert found[within - 1].latency_s == pytest.approx(3 * after)
    assert found[within - 1].up_s >= 3 * after
