"""The weight that each client's updates had in the global model, from a run's messages.

An aggregation of rule "mean" hands out a weight of 1 where every update carries the whole model: each
update has its weight over the sum of those that carry the same parameters, taken over all parameters.
With rules "sum" and "mix" weights count as they are. All are multiplied by the server's learning rate
where the aggregation names one.

Updates of another slot count when a blend takes that slot's model into the global one, by its share of
the blend. A "mix" puts clients' models in the place of the slot's own: what it held before counts as
much less, and what it holds counts in every blend, as it is part of every model that comes of one.
"""

from collections.abc import Iterable, Mapping, Sequence

from fedpace.core.codec import Message
from fedpace.core.commands import GLOBAL, Aggregate, Blend, Cancel, Drop, Probe, Train
from fedpace.core.events import Arrived, Event, Failed, Joined, Profiled, Rates
from fedpace.core.facts import Closed, Fact, KeptOut, RolledBack
from fedpace.core.journal import Header
from fedpace.core.model import ModelProfile

WeightByClient = dict[int, float]
"""Client -> weight."""


class ClientWeights:
    """Counts weights, samples and speeds of clients as messages come, in the journal's order.

    A session can write straight into it. weights: by client, of everybody who ever joined; samples:
    that each has got, as last told; last_s: latest time that anything named. undoable: versions may be
    taken back later, as a server does with models that have gone bad.
    """

    def __init__(self, model: ModelProfile, undoable: bool = False) -> None:
        self.samples: dict[int, int] = {}
        self.weights: WeightByClient = {}
        self.last_s = 0.0
        self._model, self._undoable = model, undoable
        self._widths = {one.share: one.bytes / model.total_bytes for one in model.widths}
        self._waiting: dict[int, tuple[int, float]] = {}
        """Task -> its client, and the share of the parameters that its update carries."""
        self._batch_sizes: dict[int, int] = {}
        self._speeds: dict[int, tuple[int, float]] = {}
        """Client -> how often its speed was measured, and the sum of its seconds a sample."""
        self._version = 0
        self._given: dict[int, WeightByClient] = {}
        """Version of the global model -> weights that went into it, where they may be taken back."""
        self._added: dict[str, WeightByClient] = {}
        """Slot -> weights that went into it and have not been passed on; not for "global"."""
        self._held: dict[str, WeightByClient] = {}
        """Slot -> weights of the clients' models that its model is made of."""

    @property
    def seconds(self) -> dict[int, float]:
        """Seconds a sample by client, mean of what was measured; only of those who were."""
        return {client: total / count for client, (count, total) in self._speeds.items()}

    def write(self, message: Message) -> None:
        """Count one message."""
        if isinstance(message, Event | Fact):
            self.last_s = max(self.last_s, message.at)
        match message:
            case Probe(batch_size=size):
                self._batch_sizes[message.task] = size
            case Train(work=work):
                self._batch_sizes[message.task] = work.batch_size
            case Profiled(client=client, task=task):
                self._measure(client, self._batch_sizes.get(task), message.rates)
            case Arrived():
                self._arrive(message)
            case Joined(client=client, samples=samples):
                self.samples[client] = max(samples, self.samples.get(client, 0))
                self.weights.setdefault(client, 0.0)
            case Aggregate():
                self._aggregate(message)
            case Blend():
                self._blend(message)
            case Drop(task=task):
                self._waiting.pop(task, None)
            case Failed(task=task) | Cancel(task=task) | Closed(task=task):
                self._batch_sizes.pop(task, None)
            case KeptOut(slot=slot, version=version) if slot == GLOBAL:
                self._take_back(version, version)
            case RolledBack(to=to, version=version):
                self._take_back(to + 1, version)

    def _arrive(self, event: Arrived) -> None:
        result = event.result
        self._measure(event.client, self._batch_sizes.pop(event.task, None), event.rates)
        if result.seen is not None:
            self.samples[event.client] = result.seen
        share = self._model.byte_share.item(result.depth - 1)
        if result.width is not None:
            share = self._widths.get(result.width, 1.0)
        self._waiting[event.task] = event.client, share

    def _measure(self, client: int, batch_size: int | None, rates: Rates) -> None:
        if batch_size is not None:
            size = min(batch_size, self.samples.get(client, batch_size)) or 1
            count, total = self._speeds.get(client, (0, 0.0))
            self._speeds[client] = count + 1, total + rates.batch_s / size

    def _aggregate(self, command: Aggregate) -> None:
        updates = [self._waiting.pop(task, None) for task in command.tasks]
        carried = [0.0 if one is None else one[1] for one in updates]
        given = WeightByClient()
        for update, weight in zip(updates, update_weights(command, carried, self._model), strict=True):
            if update is not None:
                given[update[0]] = given.get(update[0], 0.0) + weight
        slot = command.slot
        if slot == GLOBAL:
            self._enter(given)
        elif command.rule == "mix":
            left = max(1 - sum(given.values()), 0.0)
            before = {client: left * one for client, one in self._held.get(slot, {}).items() if left}
            self._held[slot] = _sum(before, given)
        else:
            self._added[slot] = _sum(self._added.get(slot, {}), given)

    def _blend(self, command: Blend) -> None:
        total, given = sum(command.weights), WeightByClient()
        for source, weight in zip(command.sources, command.weights, strict=True):
            taken = _sum(self._added.pop(source, {}), self._held.get(source, {}))
            given = _sum(given, {client: one * weight / total for client, one in taken.items()})
        if command.slot == GLOBAL:
            self._enter(given)
        else:
            self._held[command.slot] = given

    def _enter(self, given: WeightByClient) -> None:
        """Count what a new version of the global model was made of."""
        self._version += 1
        if self._undoable:
            self._given[self._version] = given
        for client, weight in given.items():
            self.weights[client] = self.weights.get(client, 0.0) + weight

    def _take_back(self, first: int, last: int) -> None:
        for version in range(first, last + 1):
            for client, weight in self._given.pop(version, {}).items():
                self.weights[client] = max(self.weights[client] - weight, 0.0)


def make_weights(header: Header) -> ClientWeights:
    """What counts the messages of a run with this header."""
    return ClientWeights(header.context.model, undoable=header.run.get("clock") == "real")


def weights_by_client(header: Header, messages: Iterable[Message]) -> ClientWeights:
    """The weights, samples and speeds of a journal's clients; its messages are gone through once."""
    counted = make_weights(header)
    for message in messages:
        counted.write(message)
    return counted


def update_weights(
    command: Aggregate, carried: Sequence[float], model: ModelProfile
) -> Sequence[float]:
    """The weight of each update in an aggregation.

    carried: share of the parameters in each update. Of two that carry less than all, one has all that
    the other has, since models are cut from one side.
    """
    lr, weights = command.lr or 1.0, command.weights
    if command.rule != "mean":
        return [lr * weight * share for weight, share in zip(weights, carried, strict=True)]
    total = sum(weights)
    if command.missing == "zero" or (command.missed is None and all(one == 1.0 for one in carried)):
        return [lr * weight * share / total for weight, share in zip(weights, carried, strict=True)]
    worth = _worth_of(weights, carried, _corrections(command.missed, model))
    return [lr * weight * worth[share] for weight, share in zip(weights, carried, strict=True)]


def _worth_of(
    weights: Sequence[float], carried: Sequence[float], corrections: Mapping[float, float]
) -> dict[float, float]:
    """For each share that is carried, what a weight of 1 comes to in its part of the parameters."""
    order = sorted(zip(carried, weights, strict=True))
    bounds = sorted({*carried, *corrections})
    carriers, place = sum(weights), 0
    worth, so_far, below = dict[float, float](), 0.0, 0.0
    for bound in bounds:
        # Those who carry less than this part have no say in it.
        while place < len(order) and order[place][0] < bound:
            carriers -= order[place][1]
            place += 1
        if place == len(order):
            break
        so_far += (bound - below) * corrections.get(bound, 1.0) / carriers
        worth[bound] = so_far
        below = bound
    return worth


def _corrections(missed: Sequence[float] | None, model: ModelProfile) -> dict[float, float]:
    """Upper bound of each layer, as a share from the output on -> what its mean is multiplied by."""
    if missed is None:
        return {}
    return {
        share: 1 / (1 - chance)
        for share, chance in zip(model.byte_share.tolist(), reversed(missed), strict=True)
    }


def _sum(one: Mapping[int, float], other: Mapping[int, float]) -> WeightByClient:
    total = dict(one)
    for client, weight in other.items():
        total[client] = total.get(client, 0.0) + weight
    return total
