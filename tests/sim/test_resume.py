"""Killed at any moment and resumed, a run gives the journal and weights of one that was not."""

import multiprocessing
import time

import pytest
import torch

import fedpace
from fedpace.core.commands import Aggregate, SetTimer, Train, Work
from fedpace.core.errors import JournalError
from fedpace.core.events import Arrived, Failed
from fedpace.core.policy import Policy
from fedpace.runs import plugins

ADAM = ("timelyfl", "fedasync", "fedcompass")
NIGHTLY = pytest.mark.nightly


def journal_of(folder):
    return (folder / "journal.jsonl").read_bytes()


def weights_of(folder):
    return torch.load(folder / "weights.pt", weights_only=True)


def assert_same(one, other):
    assert journal_of(one) == journal_of(other)
    expected, found = weights_of(one), weights_of(other)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


class Stop(Exception):
    pass


class Stopping(Policy):
    """Rounds of ten seconds; backward passes stop after four."""

    def on_joined(self, event):
        self.clients = [*getattr(self, "clients", ()), event.client]
        return ()

    def on_started(self, event):
        return self._begin(event.at)

    def _begin(self, at):
        self.arrived = []
        for client in self.clients:
            work = Work(20, steps=2, stop_at=at + 4, stop_in="layer")
            yield Train(client, self.new_task(), self.version, work)
        yield SetTimer("end", at + 10)

    def on_arrived(self, event):
        self.arrived.append(event.task)
        return ()

    def on_timer(self, event):
        yield Aggregate(tuple(self.arrived), (1.0,) * len(self.arrived))
        yield from self._begin(event.at)


def stopping_after(events):
    """A watch that ends the run as a crash would, after so many events."""
    left = [events]

    def watch(standing):
        left[0] -= 1
        if left[0] < 0:
            raise Stop

    return watch


@pytest.mark.parametrize(
    ("policy", "server"),
    [
        # The server's optimiser knows no policy: one of each rule (mean, mix, sum) is enough.
        pytest.param(policy, server, marks=() if server == "fedavg" or policy in ADAM else NIGHTLY)
        for policy in plugins.names("policies")
        for server in ("fedavg", "fedadam")
    ],
)
def test_stopped_at_any_event_and_resumed_it_ends_as_if_nothing_had_happened(
    tmp_path, small, policy, server
):
    small |= {
        "policy": policy,
        "stop": {"rounds": 30 if policy in ("fedasync", "fedcompass") else 6},
        "server": {"average": 0.7, "optimiser": server, "lr": 1.0 if server == "fedavg" else 0.01},
    }
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "stopped"
    for events in (5, 14, 24, 25, 32):  # stopped again and again, always later
        with pytest.raises(Stop):
            fedpace.simulate(
                small, out=out, resume=True, snapshot_every_s=0.0, watches=(stopping_after(events),)
            )
    fedpace.simulate(small, out=out, resume=True)
    assert_same(tmp_path / "whole", out)
    assert not (out / "journal.jsonl.part").exists()


def test_a_run_of_stopped_passes_and_varying_layers_resumes_as_if_nothing_had_happened(tmp_path, small):
    behaviour = {"layer_times": "exponential", "free_links": True}
    small |= {
        "policy": f"{__name__}:Stopping",
        "policies": {},
        "fleet": {"kind": "explicit", "compute_s": [0.05, 0.1, 0.2, 0.4] * 3, "behaviour": behaviour},
    }
    whole = fedpace.simulate(small, out=tmp_path / "whole")
    events = [message for message in whole.journal if isinstance(message, Arrived | Failed)]
    assert {type(event) for event in events} == {Arrived, Failed}
    assert len({event.result.depth for event in events if isinstance(event, Arrived)}) == 3
    out = tmp_path / "stopped"
    for after in (20, 45):
        with pytest.raises(Stop):
            fedpace.simulate(
                small, out=out, resume=True, snapshot_every_s=0.0, watches=(stopping_after(after),)
            )
    fedpace.simulate(small, out=out, resume=True)
    assert_same(tmp_path / "whole", out)


def go_on(config, out):
    fedpace.simulate(config, out=out, resume=True, snapshot_every_s=0.0)


def test_killed_by_the_system_and_resumed_it_ends_as_if_nothing_had_happened(tmp_path, small):
    small |= {"stop": {"rounds": 12}}
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "killed"
    context = multiprocessing.get_context("spawn")
    for delay in (0.0, 0.1, 0.3):
        process = context.Process(target=go_on, args=(small, out))
        process.start()
        deadline = time.monotonic() + 60
        while not (out / "snapshot.pt").exists() and process.exitcode is None:
            assert time.monotonic() < deadline, "the run took no snapshot"
            time.sleep(0.01)
        time.sleep(delay)
        process.kill()
        process.join()
    go_on(small, out)
    assert_same(tmp_path / "whole", out)


def test_a_run_with_timed_costs_goes_on_with_the_costs_it_timed(tmp_path, small):
    small |= {"profile": "clock"}
    with pytest.raises(Stop):
        fedpace.simulate(small, out=tmp_path, snapshot_every_s=0.0, watches=(stopping_after(20),))
    first_line = (tmp_path / "journal.jsonl.part").read_text().splitlines()[0]
    fedpace.simulate(small, out=tmp_path, resume=True)
    assert (tmp_path / "journal.jsonl").read_text().splitlines()[0] == first_line


def test_a_snapshot_is_not_needed_to_resume(tmp_path, small):
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedpace.simulate(small, out=out, watches=(stopping_after(20),))
    assert not (out / "snapshot.pt").exists()
    fedpace.simulate(small, out=out, resume=True)
    assert_same(tmp_path / "whole", out)


@pytest.mark.parametrize("every_s", [0.0, 1e9])
def test_resuming_with_other_settings_is_refused(tmp_path, small, every_s):
    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedpace.simulate(small, out=out, snapshot_every_s=every_s, watches=(stopping_after(20),))
    with pytest.raises(JournalError, match="seed is 5 here but 0 in the folder's run"):
        fedpace.simulate(small | {"seed": 5}, out=out, resume=True)


def test_a_broken_snapshot_says_what_to_do(tmp_path, small):
    out = tmp_path / "stopped"
    with pytest.raises(Stop):
        fedpace.simulate(small, out=out, snapshot_every_s=0.0, watches=(stopping_after(20),))
    found = list(out.glob("snapshot*.pt"))
    for snapshot in found:
        snapshot.write_bytes(snapshot.read_bytes()[:100])
    with pytest.raises(JournalError, match=r"snapshot.pt cannot be read.*delete it"):
        fedpace.simulate(small, out=out, resume=True)
    for snapshot in found:
        snapshot.unlink()
    fedpace.simulate(small, out=out, resume=True)


def test_resuming_a_finished_run_returns_its_result(tmp_path, small):
    first = fedpace.simulate(small, out=tmp_path)
    again = fedpace.simulate(small, out=tmp_path, resume=True)
    assert again.summary == first.summary
