"""FedAT (Chai et al., SC 2021): tiers of clients, synchronous inside, asynchronous between them.

A tier's clients train on the global model; when all of them are there, the tier's model becomes their
average, and the global model becomes the weighted mean of all tiers' models. Fast tiers come round
more often, so slow ones weigh more: tier m of M weighs as much as tier M + 1 - m has had rounds
(Algorithm 2, line 13).

Tiers are made by a ratio, as FedCompass (Li et al., 2024, appendix E.2) does for its comparison: from
the fastest client on, whoever needs up to `ratio` times the time of a tier's fastest is in it.

Differs: the paper profiles clients once. Here they are probed with one batch when they come, and
tiers are made anew after every round of a tier from what the clients' tasks have shown since
(`retier = false` keeps the first ones). When their number changes, all of them count from one round:
counts of tiers that are no more say nothing about the others.
Differs: only tiers that have had a round are mirrored and weighed. By the paper's formula the global
model would stay at its initial weights until the slowest tier has come for the first time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Command,
    Note,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.errors import Allowed, Checked, Count, OneOrMore
from fedpace.core.events import Arrived, Failed, Joined, Left, Profiled, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.tiers import Clients, Tiers

WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True)
class FedATSettings(Checked):
    ratio: Annotated[
        float,
        Allowed("above 1", lambda value: 1 < value < math.inf),
        "clients of a tier differ by this factor in time, at most",
    ] = 2.0
    retier: Annotated[
        bool, "make tiers anew after every round; false: those of the first probe stay"
    ] = True
    n: Annotated[Count | None, "clients of a tier that train in one of its rounds; default: all"] = None
    patience: Annotated[
        OneOrMore, "first tiers are made after this many times what the first probe took, at the latest"
    ] = 10.0
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None


@dataclass(slots=True)
class _Round:
    missing: int
    """Clients that have neither arrived nor failed."""
    clients: list[int] = field(default_factory=list)
    """Who has arrived."""
    tasks: list[int] = field(default_factory=list)


class FedAT(Policy[FedATSettings]):
    """Tiers of clients with like speeds: synchronous inside a tier, asynchronous between them."""

    Settings = FedATSettings
    asynchronous = True

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return False

    def __init__(self, settings: FedATSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._work = context.work(settings.epochs)
        self._tiered = False
        self._draws = 0
        self._tiers = Tiers(settings.ratio, settings.retier)
        self._unanswered: set[int] = set()
        self._probing_since = 0.0
        self._rounds: dict[int, _Round] = {}
        self._had: dict[int, int] = {}
        """Tier -> rounds that it has had: T_tier."""

    def on_started(self, event: Started) -> Iterator[Command]:
        for client in self.books.clients.online:
            yield self._probe(client, event.at)

    def on_joined(self, event: Joined) -> Iterator[Command]:
        if self.books.started:
            yield self._probe(event.client, event.at)

    def on_left(self, event: Left) -> Commands:
        self._tiers.forget(event.client)
        return ()

    def on_profiled(self, event: Profiled) -> Iterator[Command]:
        client, at = event.client, event.at
        first = not self._tiers.known
        self._unanswered.discard(client)
        self._tiers.put(client, self._seconds(event.rates))
        if self._tiered:
            yield Cancel(client, event.task, "waits for the next round of its tier")
            yield from self._make_tiers()
        elif not self._unanswered:
            yield from self._first_tiers()
        elif first:
            yield SetTimer(WARM_UP, at + self.settings.patience * (at - self._probing_since))

    def on_timer(self, event: Timer) -> Commands:
        return self._first_tiers() if not self._tiered and self._tiers.known else ()

    def on_arrived(self, event: Arrived) -> Commands:
        tier = self._tiers.round_of(event.client)
        one = self._rounds[tier]
        one.missing -= 1
        one.clients.append(event.client)
        one.tasks.append(event.task)
        self._tiers.put(event.client, self._seconds(event.rates))
        return () if one.missing else self._end(tier)

    def on_failed(self, event: Failed) -> Iterator[Command]:
        client = event.client
        tier = self._tiers.round_of(client)
        if client in self._unanswered or not tier:  # it was probed
            self._unanswered.discard(client)
            if self.books.clients.is_online(client):
                self._tiers.forget(client)
                yield self._probe(client, event.at)
            if not self._tiered and not self._unanswered and self._tiers.known:
                yield from self._first_tiers()
            return
        self._tiers.release(client)
        self._rounds[tier].missing -= 1
        if not self._rounds[tier].missing:
            yield from self._end(tier)

    def _probe(self, client: int, at: float) -> Probe:
        if not self._unanswered:
            self._probing_since = at
        self._unanswered.add(client)
        batch_size, version = self._work.batch_size, self.version
        return Probe(client, self.new_task(), version, batch_size, go_on=False)

    def _seconds(self, rates: Rates) -> float:
        steps = self._work.steps or (self._work.epochs or 1) * rates.batches
        return rates.down_s + steps * rates.batch_s + rates.up_s

    def _first_tiers(self) -> Iterator[Command]:
        """Those who have answered go on with the task that they were probed in."""
        self._tiered = True
        yield CancelTimer(WARM_UP)
        yield from self._make_tiers(probed=True)

    def _make_tiers(self, probed: bool = False) -> Iterator[Command]:
        """Sort all clients into tiers, and start those that have nobody at work.

        probed: all of them wait after their probes.
        """
        before = self._tiers.count
        self._tiers.make()
        count = self._tiers.count
        # The model of a tier that is gone must not count should the tier come back.
        kept = {tier: rounds for tier, rounds in self._had.items() if tier <= count}
        self._had = kept if count == before else dict.fromkeys(kept, 1)
        for tier in range(1, count + 1):
            if tier not in self._rounds and self._tiers.has_free(tier):
                yield from self._begin(tier, probed)

    def _begin(self, tier: int, probed: bool) -> Iterator[Command]:
        members = self._tiers.free(tier)
        chosen = self._draw(members)
        self._rounds[tier] = _Round(len(chosen))
        for client in chosen:
            self._tiers.occupy(client, tier)
            task = self.books.task_of(client) or self.new_task()
            yield Train(client, task, self.version, self._work)
        if probed and len(chosen) < len(members):
            waiting = set(members.tolist()).difference(chosen)
            for client in self._tiers.by_speed(waiting):
                probe = self.books.tasks_of(client)[0]
                yield Cancel(client, probe, "not drawn for its tier's first round")

    def _draw(self, members: Clients) -> list[int]:
        n = self.settings.n
        if n is not None and len(members) > n:
            self._draws += 1
            rng = self.generator("sample", self._draws)
            members = np.sort(rng.choice(members, n, replace=False))
        drawn: list[int] = members.tolist()
        return drawn

    def _end(self, tier: int) -> Iterator[Command]:
        one = self._rounds.pop(tier)
        for client in one.clients:
            self._tiers.release(client)
        if one.clients:
            samples = [self.books.clients.samples(client) for client in one.clients]
            total = sum(samples)
            yield Aggregate(
                tuple(one.tasks),
                tuple(count / total for count in samples),
                rule="mix",
                slot=f"tier-{tier}",
            )
            self._had[tier] = self._had.get(tier, 0) + 1
            yield self._blend()
        else:
            yield Note(f"tier {tier} has lost all clients of its round")
        yield from self._make_tiers()

    def _blend(self) -> Blend:
        """Algorithm 2, line 13, over the tiers that have a model."""
        active = sorted(self._had)
        mirrored = [float(self._had[tier]) for tier in reversed(active)]
        return Blend(tuple(f"tier-{tier}" for tier in active), tuple(mirrored))
