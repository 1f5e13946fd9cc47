"""Rates of clients for whole batches, which are learned from batches of any size."""

from collections.abc import Callable

from fedpace.core.commands import TOLERANCE
from fedpace.core.events import Rates
from fedpace.planning.step_times import StepTime
from fedpace.policies.shared.columns import Columns


class WholeBatchRates:
    """The rates of each client as they are with whole batches, by client.

    held: tells the samples that a client has now.
    """

    def __init__(self, batch_size: int, held: Callable[[int], int]) -> None:
        self._batch_size, self._held = batch_size, held
        self._rates: Columns[Rates] = Columns(Rates)
        self._steps: dict[int, StepTime] = {}
        """Client -> what its steps take by their size."""

    def __getitem__(self, client: int) -> Rates:
        return self._rates[client]

    def __contains__(self, client: int) -> bool:
        return client in self._rates

    def forget(self, client: int) -> None:
        """Take a client for unknown; what its steps take is kept."""
        del self._rates[client]

    def learn(self, client: int, rates: Rates, size: int) -> None:
        """Take what a client has measured with batches of a size."""
        known, seconds = self._steps.get(client), max(rates.batch_s, TOLERANCE)
        step = StepTime(size, seconds) if known is None else known.then(size, seconds)
        whole, self._steps[client] = self.whole(client), step
        epoch = -(-self._held(client) // self._batch_size)
        batches = rates.batches if size == whole else epoch
        told = (rates.down_s, rates.up_s, rates.latency_s)
        self._rates[client] = Rates(step.of(whole), batches, *told)

    def whole(self, client: int) -> int:
        """Samples of a client's whole batch."""
        return min(self._batch_size, max(self._held(client), 1))

    def fixed_share(self, client: int) -> float:
        """The part of the time of a client's whole batch that a smaller one takes, too."""
        return self._steps[client].fixed_share(self.whole(client))
