"""An honest client beside one that plays with the server, and what must be true after it."""

import asyncio
import logging
import threading
from contextlib import contextmanager, suppress

from fedpace.core.events import Arrived, Failed, Left
from fedpace.core.facts import Finished
from fedpace.core.journal import JOURNAL, read, replay
from fedpace.net.client import Client
from fedpace.runs import config as configs
from fedpace.runs import plugins
from tests.net.rig import LONG_S, Sleeper, serving, settings

SERVE = {
    "wait_for": 2,
    "hellos_per_minute": 10**9,
    "quarantine_after": 10**9,
    "silent_s": 60.0,
    "return_s": 60.0,
    # What is wrong is to be found out by each report itself, thousands of times.
    "failures_in_a_row": 0,
    "norm_factor": 0.0,
    "loss_factor": 0.0,
    "influence": 0.0,
}
ROUNDS = 10


class Honest:
    """A client in a thread of its own: it trains on and on, but waits with the last round."""

    def __init__(self, address):
        self.may_end, self.has_all_but_one = threading.Event(), threading.Event()
        self.said = ""
        self.thread = threading.Thread(target=lambda: asyncio.run(self._take_part(address)))
        self.thread.start()

    async def _take_part(self, address):
        honest = self
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()

        class Patient(Sleeper):
            def train(self, opened, *others):
                if opened.version == ROUNDS - 1:
                    honest.has_all_but_one.set()
                    assert honest.may_end.wait(2 * LONG_S)
                return super().train(opened, *others)

        with suppress(asyncio.CancelledError):
            self.said = await Client(address, "honest", Patient(0.003, value=0.5)).take_part()

    def end(self):
        self.may_end.set()
        self.thread.join(5)
        if self.thread.is_alive():  # the server is gone, and it waits for it
            self._loop.call_soon_threadsafe(self._task.cancel)
            self.thread.join(LONG_S)


@contextmanager
def beside_an_honest_client(folder, undisturbed, **serve):
    """A server to be played with. It ends as it would have without that: bit by bit."""
    with serving(settings("fedasync", 4, ROUNDS, SERVE | serve), folder) as site:
        honest = Honest(site.address)
        try:
            yield site
            assert honest.has_all_but_one.wait(LONG_S)
            updates = {record.name: record.updates for record in site.world.clients}
            assert updates.pop("honest") == ROUNDS - 1
            assert set(updates.values()) <= {0}
            honest.may_end.set()
            site.ended()
            honest.thread.join(LONG_S)
            assert honest.said == f"{ROUNDS} rounds are over"
            assert undisturbed in (None, site.weights())
        finally:
            honest.end()
    told = list(read(folder / JOURNAL)[1])
    assert [one for one in told if isinstance(one, Finished)]
    number = next(one.client for one in told if isinstance(one, Arrived))
    assert not [one for one in told if isinstance(one, Left | Failed) and one.client == number]
    replay_all(folder / JOURNAL)


def replay_all(path):
    header, _ = read(path)
    kind = plugins.load("policies", header.policy)
    own = configs.build(kind.Settings, header.settings, header.policy)
    replay(path, kind(own, header.context))


def played(site, play):
    """Run it in the server's loop."""
    return asyncio.run_coroutine_threadsafe(play, site.server._loop).result(4 * LONG_S)


@contextmanager
def nothing_logged_as_error():
    """What is turned away is worth a warning, by the thousands; nothing is an error of the server's."""
    found = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record.getMessage())
    # What grpc.aio says in a process with several loops, when one of them has ended.
    handler.addFilter(lambda record: "PollerCompletionQueue" not in record.getMessage())
    ours, root = logging.getLogger("fedpace"), logging.getLogger()
    ours.setLevel(logging.ERROR)
    root.addHandler(handler)
    yield
    root.removeHandler(handler)
    ours.setLevel(logging.NOTSET)
    assert found == []
