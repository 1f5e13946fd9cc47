"""Whatever clients claim: no policy breaks, and nothing that cannot be gets to one."""

import random
import threading
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice

import pytest
from msgspec.structs import replace

from fedpace.core.books import Bookkeeper
from fedpace.core.budget import Budget
from fedpace.core.commands import SetTimer
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Joined, Left, Profiled, Started
from fedpace.core.journal import JOURNAL, part_path
from fedpace.core.run import EvaluateSettings
from fedpace.learn.model.arrays import arrays_to_update
from fedpace.remote import packing as arrays
from fedpace.remote.reports import ClientLost, ClientReady, JoinRequest
from fedpace.remote.settings import ServeSettings
from fedpace.remote.world import RemoteWorld
from tests.net.garbage import FLOATS, INTEGERS, MALLORY, files, honest
from tests.net.honest import SERVE, nothing_logged_as_error, played, replay_all
from tests.net.mallory import Mallory
from tests.net.rig import SAMPLES, serving, settings, update
from tests.net.test_parity import CALM, Machines, decide
from tests.policies.test_contract import VARIANTS
from tests.sizes import sizes


@pytest.fixture(autouse=True)
def no_error_in_the_log():
    with nothing_logged_as_error():
        yield


@sizes("seed", 0, 1)
def test_reading_array_files_fails_in_one_way_only(seed):
    draw = random.Random(100 + seed)
    for data in islice(files(draw), 2000):
        with suppress(PeerError):
            arrays_to_update(arrays.unpack(data, 1 << 20))


@sizes("cases", 150, 400)
def test_no_profile_that_cannot_be_gets_to_a_policy(cases, tmp_path):
    draw = random.Random(cases)
    impossible = [
        *({name: value} for name in ("batch_s", "down_s", "up_s", "latency_s") for value in FLOATS[:4]),
        *(
            {name: value}
            for name in ("batch_s", "down_s", "up_s", "latency_s")
            for value in FLOATS[10:]
        ),
        *({"batches": value} for value in (0, SAMPLES + 1, *INTEGERS[5:])),
    ]

    async def play(mallory):
        await mallory.join()
        for _ in range(cases):
            told = honest("profiled", mallory.task, mallory.version)
            for name, value in draw.choice(impossible).items():
                setattr(told.rates, name, value)
            mallory.say(profiled=told)
            assert await mallory.hear("probe"), "the next round's"

    serve = SERVE | {"wait_for": 1}
    with serving(settings("timelyfl", 2, 10**6, serve, k=1), tmp_path) as site:
        before, mallory = site.weights(), Mallory(site.server)
        played(site, play(mallory))
        assert mallory.refused == cases
        assert site.weights() == before
        assert site.error is None
        site.stop.set()
        assert site.ended() is None
    replay_all(part_path(tmp_path / JOURNAL))


def test_a_report_that_is_repeated_takes_nothing_away(tmp_path):
    async def play(mallory):
        await mallory.join()
        number, data = mallory.task, arrays.pack(update(value=0.25))
        await mallory.upload(data)
        mallory.say(done=honest("done", number, 0))
        assert (await mallory.hear("accepted")).accepted.task == number
        if mallory.task == number:
            assert await mallory.hear("train")
        for _ in range(3):
            mallory.say(done=honest("done", number, 0))
        mallory.say(done=mallory.done())  # nothing came of it: it is told when it is read
        while (await mallory.hear("refused")).refused.task != mallory.task:
            pass
        return number

    with serving(settings("fedbuff", 2, 2, SERVE | {"wait_for": 1}, k=2), tmp_path) as site:
        number = played(site, play(Mallory(site.server)))
        kept = site.world._spool.path(number)
        assert kept is not None, "a server that is killed now could not go on"
        assert kept.exists()


class Liars(Machines):
    """Clients whose speeds and data are what they say, at the worst; see test_parity."""

    def __init__(self, draw, folder):
        self.draw = draw
        super().__init__(CALM, folder)

    def report(self, event):
        if isinstance(event, (Arrived, Profiled)) and self.draw.random() < 0.3:
            lies = {
                name: self.draw.choice((*FLOATS, 1e-9, 1e-8, 0.01))
                for name in ("batch_s", "down_s", "up_s", "latency_s")
                if self.draw.random() < 0.5
            }
            if self.draw.random() < 0.3:
                lies["batches"] = self.draw.choice((1, 3, 40, *INTEGERS))
            event = replace(event, rates=replace(event.rates, **lies))
        super().report(event)

    def come(self, client):
        samples, most = self.draw.choice(((1, 1), (2, 50), (40, None), (40, 40), (10**12, None)))
        self.world.put(ClientReady(client, samples, most, f"{client:032x}", False, Future()))

    def send_refusal(self, client, task, reason):
        pass

    def expel(self, client, reason):
        pass


@sizes("seeds", range(1), range(1, 4))
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_no_claim_of_a_client_breaks_a_policy(name, options, seeds, tmp_path):
    for seed in seeds:
        decide(name, options, 0.05, Liars(random.Random(seed), tmp_path), EvaluateSettings())


def test_a_timer_can_be_as_far_away_as_numbers_go(tmp_path):
    names = tmp_path / "clients.json"
    world = RemoteWorld(1, ServeSettings(), None, None, None, names, lambda: None)
    books = Bookkeeper(Budget())
    world.attach(books)
    for report in (JoinRequest("a", Future()), ClientReady(0, 1, None, MALLORY, False, Future())):
        world.put(report)
    for kind in (Joined, Started):
        event = world.next()
        assert isinstance(event, kind)
        books.note(event)
    books.note(SetTimer("late", 1.7e308))
    later = threading.Timer(0.05, world.put, [ClientLost(0, "it has left")])
    later.start()
    assert isinstance(world.next(), Left)
