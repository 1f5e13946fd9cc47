"""Hooks: functions of the user's that a simulated run calls on its way.

They are called between two events, when everything that the last one brought about is done, in the
order of the journal. A run that is resumed is gone through from its beginning, so hooks hear all of it
again. A hook ends the run by raising StopRun.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedpace.core.codec import Message
from fedpace.core.commands import GLOBAL, Aggregate, Blend
from fedpace.core.contract.places import place_of_error
from fedpace.core.errors import ConfigError, HookError, StopRun
from fedpace.core.events import Arrived, Event
from fedpace.core.facts import Evaluated, Spent
from fedpace.core.run import Standing
from fedpace.core.session import Recorder


@dataclass(frozen=True, slots=True)
class RoundInfo:
    """A round of the global model that is over, as `on_round` is told.

    number: the first is 1; now_s: seconds of the run's clock; clients: whose updates were used, in
    their order; metrics: values of the last test by name, the main one first, of the round `tested`;
    money: spent so far, None where nothing has a price.
    """

    number: int
    now_s: float
    clients: tuple[int, ...]
    metrics: dict[str, float]
    tested: int | None
    money: float | None

    @property
    def loss(self) -> float | None:
        """The loss of the last test; None where there was none."""
        return self.metrics.get("loss")


OnRound = Callable[[RoundInfo], object]
OnEvaluate = Callable[[Evaluated], object]
OnEvent = Callable[[Event], object]


class Hooks:
    """The hooks of a run: a watch that also hears what is written into the journal."""

    def __init__(
        self,
        on_round: OnRound | None = None,
        on_evaluate: OnEvaluate | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self._calls: dict[str, Callable[[Any], object] | None] = {
            "on_round": on_round,
            "on_evaluate": on_evaluate,
            "on_event": on_event,
        }
        for name, hook in self._calls.items():
            if hook is not None and not callable(hook):
                raise ConfigError(f"{name} is {hook!r}; give a function of one argument")
        self._waiting: list[tuple[str, Any]] = []
        self._rounds: list[tuple[int, ...]] = []
        self._round, self._owners = 0, dict[int, int]()
        self._tested: Evaluated | None = None
        self._money: float | None = None
        self._stop: StopRun | None = None
        self._stopped = False
        self.retracing: Callable[[], bool] = lambda: False
        """Tells if the run is where it has been before it was resumed; it cannot end there."""

    def __bool__(self) -> bool:
        return any(hook is not None for hook in self._calls.values())

    def tap(self, recorder: Recorder) -> Recorder:
        """The recorder, and these hooks beside it; as it is where there are none."""
        return _Tap(recorder, self) if self else recorder

    def hear(self, message: Message) -> None:
        """Take a line of the journal."""
        if isinstance(message, Event):
            if isinstance(message, Arrived):
                self._owners[message.task] = message.client
            self._wait("on_event", message)
        elif isinstance(message, Aggregate | Blend):
            tasks = message.tasks if isinstance(message, Aggregate) else ()
            clients = tuple(self._owners.pop(task) for task in tasks)
            if message.slot == GLOBAL:
                self._rounds.append(clients)
        elif isinstance(message, Spent):
            self._money = message.money
        elif isinstance(message, Evaluated) and message.slot == GLOBAL:
            self._tested = message
            self._wait("on_evaluate", message)

    def __call__(self, standing: Standing) -> None:
        tested = self._tested
        metrics = {} if tested is None else tested.metrics
        for clients in self._rounds:
            self._round += 1
            version = None if tested is None else tested.version
            known = standing.now_s, clients, dict(metrics), version, self._money
            self._wait("on_round", RoundInfo(self._round, *known))
        self._rounds.clear()
        self.flush()
        if self._stop is not None and not self._stopped and not self.retracing():
            self._stopped = True
            raise self._stop

    def flush(self) -> None:
        """Call the hooks for all that waits; at the end of a run nobody else does."""
        waiting, self._waiting = self._waiting, []
        for name, argument in waiting:
            hook = self._calls[name]
            if hook is None:
                continue
            try:
                hook(argument)
            except StopRun as stop:
                self._stop = self._stop or stop
            except Exception as error:
                raise _failure(name, argument, error) from error

    def _wait(self, name: str, argument: Any) -> None:
        if self._calls[name] is not None:
            self._waiting.append((name, argument))


@dataclass(frozen=True, slots=True)
class _Tap:
    """A recorder that lets hooks hear what it writes."""

    recorder: Recorder
    hooks: Hooks

    def write(self, message: Any) -> None:
        self.recorder.write(message)
        self.hooks.hear(message)


def _failure(name: str, argument: Any, error: Exception) -> HookError:
    at = argument.now_s if isinstance(argument, RoundInfo) else argument.at
    place = place_of_error(error)
    where = "" if place is None else f" ({place})"
    about = f"round {argument.number}, " if isinstance(argument, RoundInfo) else ""
    return HookError(f"{name} failed at {about}{at:g} s: {type(error).__name__}: {error}{where}")
