"""Verdicts on the global model: who is to blame where numbers go bad, the model or a member.

A point of the model's history is proved by several members whose updates from it, or from later
versions, could be used. A version is bad where several members of good standing, and more than half of
those who have reported on it, sent numbers from it that could not be used, or where its tested loss is
many times that of the first model. It is rolled back to the last point that was proved. What follows
from a bad version is nobody's fault: refusals that were counted for it are taken back. All of it
follows from a run's messages, so a journal gives it again.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from fedpace.core.books import Books
from fedpace.core.facts import Evaluated, Fact, KeptOut, RolledBack
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.defence.conduct import Conduct

log = logging.getLogger("fedpace.server")

_SEVERAL = 2
_KEPT = 64
"""Latest versions whose reports are remembered."""


@dataclass(slots=True)
class _Reports:
    """Members that sent good and bad numbers from one version."""

    good: set[int] = field(default_factory=set)
    bad: set[int] = field(default_factory=set)
    counted: list[int] = field(default_factory=list)
    """Members that a refusal was counted against."""


class ModelHealth:
    """Reports by version, and the verdict on the current model. loss_factor: 0: loss is no reason."""

    def __init__(self, loss_factor: float) -> None:
        self._loss_factor = loss_factor
        self._versions: dict[int, _Reports] = {}
        self._trusted = 0
        """Up to this version the model was good when it began, whatever members say."""
        self._point = 0
        self._proving: set[int] = set()
        """Members with good updates from the version of the point, or later ones."""
        self._first_loss: float | None = None
        self.verdict: str | None = None
        """Why the model is bad, until it is rolled back."""

    def good(self, client: int, version: int, now: int, online: int) -> bool:
        """Note a usable update; true if the last point is proved, and the next one is here.

        now: current version; online: members that there are.
        """
        self._reports(version).good.add(client)
        if version >= self._point:
            self._proving.add(client)
        if len(self._proving) < min(_SEVERAL, online):
            return False
        self._proving.clear()
        self._point = now
        return True

    def bad(self, client: int, version: int, trusted: bool) -> None:
        """Note numbers that cannot be used, and were counted against a member.

        trusted: it has sent more updates that could be used than others.
        """
        reports = self._reports(version)
        reports.counted.append(client)
        if trusted:
            reports.bad.add(client)
        told = len(reports.good | reports.bad)
        if version > self._trusted and len(reports.bad) >= _SEVERAL and 2 * len(reports.bad) > told:
            self.verdict = (
                f"{len(reports.bad)} of {told} members that trained version {version} sent numbers "
                "that cannot be used"
            )

    def tested(self, version: int, loss: float | None) -> None:
        """Note the loss of the current model; None: it is not finite."""
        if not self._loss_factor:
            return
        if self._first_loss is None:
            self._first_loss = loss
            return
        most = self._loss_factor * max(self._first_loss, 1e-3)
        if version > self._trusted and (loss is None or not math.isfinite(loss) or loss > most):
            said = "not finite" if loss is None else f"{loss:.6g}"
            self.verdict = (
                f"the loss of version {version} is {said}, and was {self._first_loss:.6g} once"
            )

    def rolled_back(self, version: int, to: int) -> list[int]:
        """Note that a version was given up; members whose refusals are taken back, once for each."""
        self.verdict, self._trusted, self._point = None, version, version
        self._proving.clear()
        later = [one for one in self._versions if one > to]
        return [client for one in later for client in self._versions.pop(one).counted]

    def _reports(self, version: int) -> _Reports:
        if version not in self._versions:
            self._versions[version] = _Reports()
            for old in sorted(self._versions)[:-_KEPT]:
                del self._versions[old]
        return self._versions.get(version, _Reports())


class ModelHealer:
    """Rolls models back that are bad, and writes it down; a journal's facts do it again.

    books: gives those of the run; now: the time of what happens here; record: writes into its journal.
    """

    def __init__(
        self,
        health: ModelHealth,
        models: ModelServer,
        conduct: Conduct,
        books: Callable[[], Books],
        now: Callable[[], float],
    ) -> None:
        self._health, self._models, self._conduct = health, models, conduct
        self._books, self._now = books, now
        self.record: Callable[[Fact], None] = lambda fact: None

    def tested(self, loss: float | None) -> bool:
        """Hear the loss of the global model; true if it was bad, and an earlier one is in its place."""
        self._health.tested(self._books().version(), loss)
        return self.heal()

    def heal(self) -> bool:
        """Roll the models back where they are bad; true if they were."""
        reason, version = self._health.verdict, self._books().version()
        if reason is None:
            return False
        to = self._roll_back()
        log.warning("the models are rolled back from version %d to %d: %s", version, to, reason)
        self.record(RolledBack(self._now(), version, to, reason))
        return True

    def note_step(self, slot: str, at: float) -> None:
        """Write down that the last step of a slot was not taken, where that is so."""
        if self._models.kept_out:
            log.warning("a step of model %s is not taken: its numbers are not finite", slot)
            self.record(KeptOut(at, self._books().version(slot), slot))

    def retrace(self, fact: Fact) -> None:
        """Do what a fact of a journal changes here."""
        if isinstance(fact, Evaluated):
            self._health.tested(fact.version, fact.loss)
        elif isinstance(fact, RolledBack):
            self._roll_back()

    def _roll_back(self) -> int:
        to = self._models.roll_back()
        self._conduct.absolve(self._health.rolled_back(self._books().version(), to))
        return to
