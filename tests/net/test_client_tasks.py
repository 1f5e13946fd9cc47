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


def up_seconds(monkeypatch, *uploads):
    """What is reported of an upload of the model, after each of these (bytes, seconds)."""
    sent = iter(uploads)

    async def fetch(stub, task, most, metadata):
        return MODEL, TransferTime(len(MODEL), 2.0)

    async def send(stub, task, data, metadata):
        return TransferTime(*next(sent))

    monkeypatch.setattr(client_tasks.transfer, "fetch", fetch)
    monkeypatch.setattr(client_tasks.transfer, "send", send)

    async def play():
        line = ServerLink(tuple)
        line.stub, line.latency_s = None, LATENCY_S
        line.connected.set()
        work = ClientTasks(Quick(), line, lambda: 0.0)
        found = []
        for task in range(1, len(uploads) + 1):
            work.work(pb.Train(task=task, work='{"batch_size":5,"steps":1}'))
            said = await asyncio.wait_for(line.outbox.get(), 30)
            assert said.done.task == task
            found.append(said.done.rates.up_s - LATENCY_S)
            assert said.done.rates.down_s == 2.0 + LATENCY_S
        await work.stop()
        return found

    return asyncio.run(play())


def test_an_upload_tells_how_quick_the_line_is(monkeypatch):
    assert up_seconds(monkeypatch, (100_000, 1.0)) == [pytest.approx(len(MODEL) / 100_000)]


def test_an_upload_of_a_few_bytes_tells_nothing_of_it(monkeypatch):
    """As down, until something larger went up; then as that."""
    found = up_seconds(monkeypatch, (1000, 1.0), (100_000, 1.0), (1000, 1.0))
    large = pytest.approx(len(MODEL) / 100_000)
    assert found == [pytest.approx(2.0), large, large]
