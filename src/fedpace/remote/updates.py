"""Models on their way out to clients, updates on their way in.

An update is on disk before anybody hears of it, and stays there until a snapshot holds what became of
it: so a server that is killed makes the same models again from its journal.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fedpace.core.commands import Work
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived
from fedpace.learn.model.arrays import arrays_to_update, weights_to_arrays
from fedpace.learn.model.weights import Update
from fedpace.learn.server.checks import UpdateNorms, check_measured, check_norm, check_width_offered
from fedpace.learn.server.model_server import BaseWeights
from fedpace.remote import packing
from fedpace.remote.defence.norms import NormGuard
from fedpace.remote.spool import Spool


@dataclass(frozen=True, eq=False)
class _ModelFile:
    data: bytes


class ReceivedUpdates:
    """The updates of real clients: a model server's source. All but `file` is for the run's thread.

    widths: that updates may have, None: any; guard: of their norms.
    """

    trains = False

    def __init__(
        self, spool: Spool, widths: Collection[float] | None = None, guard: NormGuard | None = None
    ) -> None:
        self._spool = spool
        self._widths = widths
        self._guard = guard or NormGuard()
        self._files: dict[int, _ModelFile] = {}
        """Models that clients fetch, by task, for as long as they may ask for them."""
        self._packed: WeakValueDictionary[BaseWeights, _ModelFile] = WeakValueDictionary()
        self._expected: dict[int, Arrived] = {}

    def file(self, task: int) -> bytes | None:
        """The array file of the model that a task starts from; for any thread."""
        found = self._files.get(task)
        return None if found is None else found.data

    def opened(self, task: int, base: BaseWeights) -> None:
        if base.weights is None:
            return
        # A task with a width gets the whole model too: the client takes its part of it.
        file = self._packed.get(base)
        if file is None:
            file = _ModelFile(packing.pack(weights_to_arrays(base.weights)))
        self._packed[base] = self._files[task] = file

    def expect(self, event: Arrived, work: Work, base: BaseWeights) -> None:
        """The task is over: nobody fetches its model any more."""
        self._files.pop(event.task, None)
        self._expected[event.task] = event

    def collect(self, tasks: Iterable[int]) -> Iterator[tuple[int, Update]]:
        """Read and check what has come; what is not there any more is left out."""
        for task in tasks:
            event, path = self._expected.pop(task, None), self._spool.path(task)
            if event is None or path is None:
                continue
            update = arrays_to_update(packing.unpack(path.read_bytes(), self._spool.most_bytes))
            check_width_offered(task, update, self._widths)
            check_norm(task, update, None)
            check_measured(task, update)
            if (update.depth, update.width) != (event.result.depth, event.result.width):
                raise PeerError(
                    f"task {task} carries depth {update.depth} and width {update.width}, but was "
                    f"reported with {event.result.depth} and {event.result.width}"
                )
            yield task, update

    def collect_begun(self) -> Iterable[tuple[int, Update]]:
        return ()

    def vet(self, task: int, client: int, norms: UpdateNorms, members: int | None) -> None:
        self._guard.note(client, norms)
        if members is not None:
            self._guard.check(task, norms, members)

    def state(self) -> Any:
        return self._guard.state()

    def load(self, state: Any) -> None:
        self._guard.load(state)

    def forget(self, task: int) -> None:
        self._files.pop(task, None)
        self._expected.pop(task, None)
