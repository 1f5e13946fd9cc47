"""Cadence, a policy of our own: the server steps at short, even beats, and everybody arrives on one.

A beat is as long as the k-th fastest client needs for a few batches of the whole model, with its
transfers, or somewhat longer where more clients fill it then. Whoever is faster does more batches;
whoever is slower does as many with fewer samples each, down to an eighth, by halves, and takes more
beats if not even that fits one. Where few clients are at work over links that are nearly free,
beats are shorter if one client would do many times what the others do in one, and parts go down to a
64th. Where links are slow, everybody takes the beat at which it has done most for the time that its
transfers cost, too. Everybody sends its update just before a beat. So nobody waits for others, nobody
is left out, no client drifts far on data of its own, and no update is older than `most` beats. An
update of m beats and b batches counts (m / b)^power times the client's data: over time a client then
counts by its data, and not by how often it arrives or by how many batches it gets through. Where links
are slow, updates are of old models: there one counts its client's data by the versions that its model
had behind it, as a share of those by now.

Adaptive optimisers of the server make every step as long as their rate says, however few and noisy
the updates behind it. Under one of them beats move a model of their own (slot "beats") by plain means,
and each time that half of the clients have been heard, what they have moved it by is one step of the
optimiser, from whose model beats go on.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedpace.core.commands import (
    GLOBAL,
    TOLERANCE,
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Command,
    Note,
    Probe,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import Checked, ConfigError, Count, Natural, NonNegative, Positive
from fedpace.core.events import Arrived, Failed, Joined, Profiled, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.planning.beats import (
    BeatClients,
    BeatSpeeds,
    BeatWork,
    beat_length,
    cut_beat,
    fit_to_beats,
)
from fedpace.planning.fastest import FastestClients
from fedpace.policies.shared.checks import resolve
from fedpace.policies.shared.link_cost import LinkCost
from fedpace.policies.shared.whole_batches import WholeBatchRates

BEAT = "beat"
MEET = "profiles are due"
BEATS = "beats"
"""The model that beats move under an adaptive optimiser."""
MORE_HALVINGS = 3
"""Extra halvings where few clients are at work over nearly free links (decision 71)."""
UPDATES_A_BEAT = 2.0
"""Usual updates a client that a beat has time for there at most, on average over clients."""


@dataclass(frozen=True, slots=True)
class CadenceSettings(Checked):
    n: Annotated[Count | None, "clients at work at any time; default: all"] = None
    k: Annotated[
        Count | None, "a beat is the k-th fastest client's time for `batches`; default: a quarter of n"
    ] = None
    batches: Annotated[
        Natural, "batches of an update, by which beats are measured; 0: the client's data, once"
    ] = 1
    longest: Annotated[
        Positive, "beats may be so many times as long, where more of the clients fill them; 1: never"
    ] = 2.0
    halvings: Annotated[
        Natural, "a slow client's work is halved so often at most, for it to be back sooner; 0: never"
    ] = 3
    few: Annotated[
        Natural,
        "with an `n` of so many at most (default: the fleet, whoever is online) and nearly free links, "
        "work is halved three times more, and beats are cut to two usual updates a client on average; "
        "needs `halvings`; 0: never",
    ] = 20
    most: Annotated[Count, "most beats of one update; who needs more trains a part"] = 24
    power: Annotated[
        NonNegative,
        "an update of m beats and b batches counts m / b to this power; 1: by data alone, 0: by speed; "
        "where links are slow it counts by its age instead",
    ] = 0.5
    power_adaptive: Annotated[NonNegative, "`power` where the server's optimiser is adaptive"] = 0.0
    cut: Annotated[
        Literal["batches", "layers"],
        "the part of who needs more: fewer batches where one fits, or its last layers",
    ] = "batches"
    max_epochs: Annotated[Count | None, "upper limit of local epochs; default: none"] = None

    def _check_rest(self) -> None:
        if self.longest < 1:
            raise ConfigError(
                f"longest is {self.longest:g}, but says how many times as long as the k-th fastest "
                "client needs a beat may be; set longest to 1 or more"
            )
        if self.n is not None and self.k is not None and self.k > self.n:
            raise ConfigError(
                f"k is {self.k}, but {self.n} clients are at work; set k between 1 and {self.n}"
            )


class Cadence(Policy[CadenceSettings]):
    """Steps at short, even beats; slow clients do less for one, and all count by their data."""

    Settings = CadenceSettings
    asynchronous = True
    revision = 1

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return not adaptive

    def __init__(self, settings: CadenceSettings, context: Context) -> None:
        super().__init__(settings, context)
        clients = context.clients
        self._n = resolve("n", settings.n, clients, clients, "clients are in the fleet")
        self._k = resolve("k", settings.k, -(-self._n // 4), self._n, "clients are at work")
        self._rates = WholeBatchRates(context.batch_size, lambda one: self.books.clients.held(one))
        self._sizes: dict[int, int] = {}
        """Client -> the samples of a batch that it is at work on."""
        self._arrived: list[Arrived] = []
        self._fastest = FastestClients(self._k)
        """Of those who have answered, while the first beat's length is not known."""
        self._met_at = 0.0
        self._due: float | None = None
        self._beat_s: float | None = None
        self._links = LinkCost()
        self._next_at = 0.0
        self._draws = 0
        self._slot = BEATS if context.adaptive else GLOBAL
        self._power = settings.power_adaptive if context.adaptive else settings.power
        self._heard: set[int] = set()
        """Clients since the last step of an adaptive optimiser."""

    # Before the first beat: everybody tells its speed, and trains meanwhile.

    def on_started(self, event: Started) -> Commands:
        return self._meet(event.at)

    def on_joined(self, event: Joined) -> Commands:
        if not self.books.started:
            return ()
        if self._beat_s is None:
            return self._meet(event.at) if not self.books.open else self._ask(self._free())
        return self._fill(event.at)

    def _meet(self, at: float) -> Iterator[Command]:
        self._met_at, self._due, self._fastest = at, None, FastestClients(self._k)
        yield from self._ask(self._free())

    def on_profiled(self, event: Profiled) -> Commands:
        self._rates.learn(event.client, event.rates, self._rates.whole(event.client))
        if self._beat_s is not None:
            return self._assign([event.client], event.at)
        rates = self._rates[event.client]
        usual_s = rates.down_s + self._goal(rates) * rates.batch_s + rates.up_s
        self._fastest.add(event.client, usual_s, rates.latency_s + rates.up_s)
        return self._begin_or_wait(event.at)

    def on_failed(self, event: Failed) -> Commands:
        if self._beat_s is not None:
            return ()  # another one takes its place at the next beat
        self._fastest.remove(event.client)
        return self._begin_or_wait(event.at) if self.books.open else ()

    def _begin_or_wait(self, at: float) -> Commands:
        """Begin when all have answered, or when waiting longer would cost those who have."""
        fastest, known = self._fastest, self._answered()
        if len(known) == len(self.books.open):
            return self._begin(at, known)
        if len(fastest) < self._k:
            return ()
        due = self._met_at + fastest.spare_s * (1 - self.context.slack)
        if at >= due:
            return self._begin(at, known)
        if due == self._due:
            return ()
        self._due = due
        return (SetTimer(MEET, due),)

    def _answered(self) -> list[int]:
        tasks = self.books.open.values()
        return [task.command.client for task in tasks if not task.awaits_profile]

    def _begin(self, at: float, known: list[int]) -> Iterator[Command]:
        yield CancelTimer(MEET)
        period = self._period(known)
        first = self._met_at + period
        self._next_at = first if self._in_time(known, at, first) else at + period
        yield SetTimer(BEAT, self._next_at * (1 + TOLERANCE))
        yield from self._assign(known, at)

    def _in_time(self, clients: list[int], at: float, beat: float) -> bool:
        """Tell if the k fastest of these can send what they have by a beat."""
        up_s = (self._rates[client].latency_s + self._rates[client].up_s for client in clients)
        able = sum((at + one) * (1 - TOLERANCE) <= beat for one in up_s)
        return able >= min(self._k, len(clients))

    def _period(self, clients: list[int]) -> float:
        """Seconds from one beat to the next, by the speeds of these clients."""
        rates = [self._rates[client] for client in clients]
        transfer_s = np.array([one.down_s + one.up_s for one in rates])
        speeds = BeatSpeeds(**self._speeds(clients), transfer_s=transfer_s)
        self._links.learn(transfer_s, speeds.batch_s)
        most, halvings = self.settings.most, self._halvings
        self._beat_s = beat_length(speeds, self._k, halvings, self.settings.longest)
        if self._cuts_beats:
            self._beat_s = cut_beat(self._beat_s, speeds, halvings, UPDATES_A_BEAT, most)
        return self._beat_s * (1 + self.context.slack)

    @property
    def _cuts_beats(self) -> bool:
        """Beats are cut down, and work is halved more often (decision 71)."""
        return self.settings.halvings > 0 and self._links.free and self._n <= self.settings.few

    @property
    def _halvings(self) -> int:
        return self.settings.halvings + MORE_HALVINGS * self._cuts_beats

    def _speeds(self, clients: list[int]) -> dict[str, np.ndarray]:
        """What beats and the work for them are planned by, as in BeatClients and BeatSpeeds."""
        rates = [self._rates[client] for client in clients]
        return {
            "batch_s": np.array([one.batch_s for one in rates]),
            "goals": np.array([self._goal(one) for one in rates]),
            "kept": np.array([self._kept(one) for one in rates]),
            "whole": np.array([self._rates.whole(client) for client in clients]),
            "fixed": np.array([self._rates.fixed_share(client) for client in clients]),
        }

    def _goal(self, rates: Rates) -> int:
        """Batches of an update; no more than the client's data has."""
        epoch = rates.batches * self.context.epochs
        return min(self.settings.batches or epoch, epoch)

    def _kept(self, rates: Rates) -> int:
        """Batches that a smaller update still has, with fewer samples in each.

        Where updates are of a client's whole data, fewer batches are done before one is halved.
        """
        return self._goal(rates) if self.settings.batches else 1

    # A beat: what is there moves the model, and who is free begins anew.

    def on_arrived(self, event: Arrived) -> Commands:
        size = self._sizes.pop(event.client, self._rates.whole(event.client))
        self._rates.learn(event.client, event.rates, size)
        self._arrived.append(event)
        return ()

    def on_timer(self, event: Timer) -> Commands:
        if event.name == BEAT:
            return self._beat(event.at)
        self._due = None
        if self._beat_s is not None:
            return ()
        return self._begin_or_wait(event.at) if self.books.open else self._meet(event.at)

    def _beat(self, at: float) -> Iterator[Command]:
        arrived, self._arrived = self._arrived, []
        tasks, weights = [one.task for one in arrived], [self._weight(one) for one in arrived]
        yield Aggregate(tuple(tasks), tuple(weights), slot=self._slot)
        if self._slot != GLOBAL:
            yield from self._step([one.client for one in arrived])
        here = [one.client for one in arrived if self.books.clients.is_online(one.client)]
        known = [client for client in (*self.books.busy, *here) if client in self._rates]
        if not known:
            self._beat_s = None
            yield from self._meet(at)
            return
        self._next_at = at + self._period(known)
        yield from self._fill(at)
        yield SetTimer(BEAT, self._next_at * (1 + TOLERANCE))

    def _step(self, arrived: list[int]) -> Iterator[Command]:
        """Hand what beats have moved to the optimiser, if half of those at work have been heard."""
        self._heard.update(arrived)
        if 2 * len(self._heard) >= len({*self.books.busy, *self._heard}):
            self._heard.clear()
            yield Blend((BEATS,), (1.0,))
            yield Blend((GLOBAL,), (1.0,), BEATS)

    def _weight(self, update: Arrived) -> float:
        """What an update counts: its client's data, by its beats and batches, or by its age."""
        share = self._freshness(update) if self._links.slow else self._slowness(update)
        return self._data(update) * share

    def _slowness(self, update: Arrived) -> float:
        """The beats that one of its batches took.

        Beats are versions; the optimiser's steps among them make all counts larger alike.
        """
        beats = self._version - update.version + 1
        return math.pow(beats / max(update.result.steps, 1), self._power)

    def _freshness(self, update: Arrived) -> float:
        """The versions up to that which it began with, as a share of those by now (decision 70)."""
        return (update.version + 1) / (self._version + 1)

    def _data(self, update: Arrived) -> int:
        """The data that an update speaks for."""
        return self.books.clients.samples(update.client)

    @property
    def _version(self) -> int:
        """Version of the model that beats move."""
        return self.books.version(self._slot)

    def _fill(self, at: float) -> Iterator[Command]:
        """Give work to free clients until n of them have some."""
        free = self._free()
        known = [client for client in free if client in self._rates]
        yield from self._assign(known, at)
        yield from self._ask([client for client in free if client not in self._rates])

    def _free(self) -> list[int]:
        wanted = self._n - len(self.books.open)
        if wanted <= 0:
            return []
        self._draws += 1
        return self.books.clients.draw(wanted, self.generator("sample", self._draws))

    def _ask(self, clients: list[int]) -> Iterator[Command]:
        for client in clients:
            yield Probe(
                client,
                self.new_task(),
                self._version,
                self.context.batch_size,
                max_epochs=self.settings.max_epochs,
                slot=self._slot,
            )

    # Work that fills beats.

    def _assign(self, clients: list[int], at: float) -> Iterator[Command]:
        if not clients:
            return
        profile = self.context.model
        for client, load in zip(clients, self._fit(clients, at), strict=True):
            task = self.books.task_of(client)
            if load is None:
                reason = f"nothing it can train and send fits {self.settings.most} beats"
                if task is not None:
                    yield Cancel(client, task, reason)
                else:
                    yield Note(f"not asked: {reason}", client)
                self._rates.forget(client)  # it is asked again when it is drawn next
                continue
            rates = self._rates[client]
            self._sizes[client] = load.size or self._rates.whole(client)
            share = float(profile.byte_share[load.depth - 1])
            upload_s = rates.latency_s + share * (rates.up_s - rates.latency_s)
            yield Train(
                client,
                self.new_task() if task is None else task,
                self._version if task is None else self.books.open[task].command.version,
                Work(
                    load.size or self.context.batch_size,
                    steps=load.batches,
                    depth=load.depth if load.depth < profile.depth else None,
                    stop_at=max(load.due - upload_s, at),
                ),
                self._slot,
            )

    def _fit(self, clients: list[int], at: float) -> list[BeatWork | None]:
        """The work of each client, of which some have begun with their probe."""
        rates = [self._rates[client] for client in clients]
        epoch = np.array([one.batches for one in rates]) * self.context.epochs
        limit = self.settings.max_epochs
        tasks = [self.books.task_of(client) for client in clients]
        began = [at if task is None else self.books.open[task].opened_at for task in tasks]
        them = BeatClients(
            **self._speeds(clients),
            down_s=np.array([one.down_s for one in rates]),
            up_s=np.array([one.up_s for one in rates]),
            latency_s=np.array([one.latency_s for one in rates]),
            epoch=epoch,
            limits=epoch * 0 + 2**31 if limit is None else epoch // self.context.epochs * limit,
            began=np.array(began),
            going_on=np.array([task is not None for task in tasks]),
        )
        beat_s, slack = self._beat_s or 0.0, self.context.slack
        due = self._next_at + np.arange(self.settings.most) * beat_s * (1 + slack) - slack * beat_s
        fewer, patient = self.settings.cut == "batches", self._links.slow
        return fit_to_beats(self.context.model, them, at, due, self._halvings, fewer, patient)
