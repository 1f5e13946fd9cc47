"""TimelyFL (Zhang et al., CVPRW 2023): a round lasts as long as its k-th fastest client needs.

Each round samples n clients (Algorithm 1), learns their speeds (Algorithm 2) and fits their work to
the interval T_k (Algorithm 3, in `planning.timely`): fast clients train more epochs, slow ones only the
output-side layers that they can finish. Whatever is there at T_k is averaged layer by layer. No update
is ever stale.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np

from fedpace.core.commands import (
    TOLERANCE,
    Aggregate,
    Cancel,
    CancelTimer,
    Command,
    Note,
    Probe,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import Checked, ConfigError, Count
from fedpace.core.events import Arrived, Failed, Joined, Profiled, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.planning.cuts import depths_by_bytes, fit_partial_work, progress_since_probe
from fedpace.planning.fastest import FastestClients
from fedpace.planning.timely import Schedule, schedule, workloads
from fedpace.policies.shared.checks import resolve
from fedpace.policies.shared.columns import Columns

__all__ = ["Schedule", "TimelyFL", "TimelyFLSettings", "schedule"]

END = "round ends"
DECIDE = "profiles are due"


@dataclass(frozen=True, slots=True)
class TimelyFLSettings(Checked):
    n: Annotated[Count | None, "clients sampled each round (concurrency); default: all"] = None
    k: Annotated[Count | None, "the interval is the k-th fastest client's time; default: half of n"] = (
        None
    )
    alpha: Annotated[
        Literal["cost", "parameters"],
        "what a fraction buys: the layers whose predicted time fits, or its share of the parameters",
    ] = "cost"
    clock: Annotated[
        Literal["honest", "paper"],
        "times count from the sending of the model, or (paper) from when workloads are known",
    ] = "honest"
    probe: Annotated[
        Literal["message", "history"], "speeds from a probe each round, or from a client's last task"
    ] = "message"
    late: Annotated[
        Literal["cut", "drop"], "a client behind its time sends what it has, or misses the round"
    ] = "cut"
    workload: Annotated[
        Literal["adaptive", "frozen"], "fitted every round, or kept from a client's first (ablation)"
    ] = "adaptive"
    missing: Annotated[
        Literal["skip", "zero"], "a layer's mean ignores clients that froze it, or counts them as zero"
    ] = "skip"
    max_epochs: Annotated[Count | None, "upper limit of local epochs; default: none"] = None

    def _check_rest(self) -> None:
        if self.clock == "paper" and self.probe == "history":
            raise ConfigError(
                "clock 'paper' takes the model to be there when workloads are known, but with probe "
                "'history' it has not been sent yet; set clock to 'honest' or probe to 'message'"
            )
        if self.n is not None and self.k is not None and self.k > self.n:
            raise ConfigError(
                f"k is {self.k}, but {self.n} clients are sampled; set k between 1 and {self.n}"
            )


@dataclass(slots=True)
class _Round:
    began_at: float
    unknown: set[int]
    """Clients whose profile is still to come; all others that have a task are known."""
    probed: frozenset[int]
    fastest: FastestClients
    interval_from: float
    interval_s: float | None = None
    due: float | None = None
    arrived: list[Arrived] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Load:
    epochs: int
    depth: int
    upload_share: float
    """Fraction of a full upload's time that is kept for reporting."""
    batches: int | None = None
    """Set where not even the last layer over all batches fits."""


class TimelyFL(Policy[TimelyFLSettings]):
    """Rounds as long as the k-th fastest client needs; slower ones train their last layers only."""

    Settings = TimelyFLSettings

    def __init__(self, settings: TimelyFLSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._n = resolve("n", settings.n, context.clients, context.clients, "clients are in the fleet")
        self._k = resolve("k", settings.k, (self._n + 1) // 2, self._n, "clients are sampled")
        self._rates: MutableMapping[int, Rates] = Columns(Rates) if settings.probe == "history" else {}
        """Of those who are asked in this round, or with history of everybody who ever was."""
        self._frozen: dict[int, _Load] = {}
        self._round: _Round | None = None

    def on_started(self, event: Started) -> Commands:
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        return self._begin(event.at) if self.books.started and self._round is None else ()

    # A round begins: sample, and ask for profiles (Algorithm 1, lines 3 to 6).

    def _begin(self, at: float) -> Iterator[Command]:
        version = self.version
        asked = self.books.clients.draw(self._n, self.generator("sample", version))
        if not asked:
            self._round = None
            return
        known = {c: None for c in asked if self.settings.probe == "history" and c in self._rates}
        if len(known) < min(self._k, len(asked)):
            known = {}  # T_k cannot be told from history: everybody is asked, and trains meanwhile
        probed = [client for client in asked if client not in known]
        round_ = _Round(at, set(probed), frozenset(probed), FastestClients(self._k), at)
        self._round = round_
        for client in probed:
            yield Probe(
                client,
                self.new_task(),
                version,
                self.context.batch_size,
                go_on=self.settings.clock == "honest",
                max_epochs=self.settings.max_epochs,
            )
        if known:
            yield from self._decide(round_, at, list(known))

    def on_profiled(self, event: Profiled) -> Commands:
        self._rates[event.client] = event.rates
        round_ = self._round
        if round_ is None:
            return ()
        round_.unknown.discard(event.client)
        self._add_fastest(round_, event.client)
        if round_.interval_s is not None:
            return self._assign(round_, round_.interval_s, event.at, [event.client])
        return self._decide_or_wait(round_, event.at)

    def on_failed(self, event: Failed) -> Commands:
        round_ = self._round
        if round_ is None:
            return ()
        round_.unknown.discard(event.client)
        if round_.interval_s is not None:
            return ()
        round_.fastest.remove(event.client)
        if self.books.open:
            return self._decide_or_wait(round_, event.at)
        return self._end(round_, event.at)

    def _decide_or_wait(self, round_: _Round, at: float) -> Commands:
        """Fix T_k when all profiles are in, or when waiting longer would cost those that are.

        Differs: the paper waits for all. Once k profiles are in, their T_k can only shrink, and the
        first of the k fastest has to report before it; who has no profile by then is let go. Where
        time is real it is decided a little sooner: work that comes late can only be a part of it.
        """
        if not round_.unknown:
            return self._decide(round_, at, self.books.busy)
        fastest = round_.fastest
        if len(fastest) < self._k or self.settings.clock == "paper":
            return ()
        due = round_.began_at + fastest.spare_s * (1 - self.context.slack)
        if at >= due:
            return self._decide(round_, at, self._known(round_))
        if due == round_.due:
            return ()
        round_.due = due
        return (SetTimer(DECIDE, due),)

    def _add_fastest(self, round_: _Round, client: int) -> None:
        # Its work has to reach a client before its upload can begin.
        rates = self._rates[client]
        round_.fastest.add(client, self._total_s(rates), rates.latency_s + rates.up_s)

    def _known(self, round_: _Round) -> list[int]:
        return [client for client in self.books.busy if client not in round_.unknown]

    def _total_s(self, rates: Rates) -> float:
        return self._down_s(rates) + rates.compute_s + rates.up_s

    def _down_s(self, rates: Rates) -> float:
        return rates.down_s if self.settings.clock == "honest" else 0.0

    # T_k is fixed, and work is given out (Algorithm 1, lines 7 to 10).

    def _decide(self, round_: _Round, at: float, known: list[int]) -> Iterator[Command]:
        yield CancelTimer(DECIDE)
        if self.settings.clock == "paper":
            round_.interval_from = at
        totals = sorted(self._total_s(self._rates[client]) for client in known)
        interval = round_.interval_s = totals[min(self._k, len(totals)) - 1]
        # Clients whose speed is known from history need no probe; the others still may answer.
        if self.settings.probe == "message":
            late, round_.unknown = sorted(round_.unknown), set()
            for client in late:
                yield self._cancel(client, "no profile in time")
        yield from self._assign(round_, interval, at, known)
        length_s = interval * (1 + self.context.slack) * (1 + TOLERANCE)
        yield SetTimer(END, max(round_.interval_from + length_s, at))

    def _assign(
        self, round_: _Round, interval: float, at: float, clients: list[int]
    ) -> Iterator[Command]:
        loads = self._fit(round_, interval, at, clients)
        for client, fitted in zip(clients, loads, strict=True):
            load = self._frozen.get(client, fitted)
            task = self.books.task_of(client) or self.new_task()
            if load is None:
                yield self._excuse(round_, client)
                continue
            if self.settings.workload == "frozen":
                self._frozen[client] = load
            rates = self._rates[client]
            upload_s = rates.latency_s + load.upload_share * (rates.up_s - rates.latency_s)
            report_at = round_.interval_from + interval - upload_s
            yield Train(
                client,
                task,
                self.version,
                Work(
                    self.context.batch_size,
                    epochs=load.epochs if load.batches is None else None,
                    steps=load.batches,
                    depth=load.depth if load.depth < self.context.model.depth else None,
                    stop_at=max(report_at, at) if self.settings.late == "cut" else None,
                ),
            )

    def _fit(
        self, round_: _Round, interval: float, at: float, clients: list[int]
    ) -> list[_Load | None]:
        """The work of each client, None where nothing it could do would arrive in time."""
        rates = [self._rates[client] for client in clients]
        batch_s = np.array([r.batch_s for r in rates])
        batches = np.array([r.batches for r in rates])
        up_s = np.array([r.up_s for r in rates])
        down_s = np.array([self._down_s(r) for r in rates])
        epochs, fractions, _ = workloads(interval, batch_s * batches, up_s, down_s)
        most = self.settings.max_epochs
        epochs = epochs if most is None else np.minimum(epochs, most)
        profile = self.context.model
        if self.settings.alpha == "parameters":
            depths = depths_by_bytes(profile, fractions)
            return [
                _Load(int(e), int(d), float(f)) if f > 0 else None
                for e, d, f in zip(epochs, depths, fractions, strict=True)
            ]
        latency_s = np.array([r.latency_s for r in rates])
        told_s = at + latency_s - round_.interval_from
        going_on = np.array([c in round_.probed for c in clients]) & (self.settings.clock == "honest")
        wanted = epochs * batches
        # Since its probe a client has trained the full model: those batches count, and are paid.
        done, begun, ready_s = progress_since_probe(told_s, down_s, batch_s, wanted, going_on)
        cuts = fit_partial_work(
            profile,
            wanted,
            done,
            begun,
            wait_s=np.maximum(ready_s - told_s, 0.0),
            batch_s=batch_s,
            send_s=up_s - latency_s,
            left_s=interval - told_s - latency_s,
        )
        return [
            _Load(int(e), cut.depth, float(profile.byte_share[cut.depth - 1]), cut.batches)
            if cut is not None
            else None
            for e, cut in zip(epochs, cuts, strict=True)
        ]

    def _excuse(self, round_: _Round, client: int) -> Command:
        reason = "nothing it can train and send fits the interval"
        if client in round_.probed:
            return self._cancel(client, reason)
        del self._rates[client]  # it is asked again when it is drawn next
        return Note(f"not asked: {reason}", client)

    def _cancel(self, client: int, reason: str) -> Cancel:
        return Cancel(client, self.books.tasks_of(client)[0], reason)

    # The interval is over: average what is there (Algorithm 1, line 12).

    def on_arrived(self, event: Arrived) -> Commands:
        self._rates[event.client] = event.rates
        if self._round is not None:
            self._round.arrived.append(event)
        return ()

    def on_timer(self, event: Timer) -> Commands:
        round_ = self._round
        if round_ is None:
            return ()
        if event.name == END:
            return self._end(round_, event.at)
        round_.due = None
        return self._decide_or_wait(round_, event.at)

    def _end(self, round_: _Round, at: float) -> Iterator[Command]:
        yield CancelTimer(DECIDE)
        for client in self.books.busy:
            yield self._cancel(client, "late")
        if self.settings.probe == "message":
            self._rates.clear()  # the next round asks anew
        if not round_.arrived:
            yield Note("empty round: nobody arrived")
        yield Aggregate(
            tuple(update.task for update in round_.arrived),
            tuple(float(update.result.samples) for update in round_.arrived),
            missing=self.settings.missing,
        )
        yield from self._begin(at)
