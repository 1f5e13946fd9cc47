"""The last update of every client, of which steps are made as if everybody were in each of them.

A client whose updates weigh w and are used at every t-th step weighs w / t here, so that on average a
step is as long as one of arrivals alone; t is its mean over the client's last few updates.

    latest     the step is the mean of all last updates: MIFA, Gu et al., NeurIPS 2021
    corrected  the mean of the arrivals, less that of their last updates, plus that of all last updates:
               FedVARP, Jhunjhunwala et al., UAI 2022; CA2FL, Wang et al., ICLR 2024

Differs: the papers count all clients alike, and never forget one. Here a client that has not been heard
for three times as long as the slowest takes between two updates counts no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedpace.core.commands import Aggregate
from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.host import free_bytes
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update
from fedpace.learn.server.aggregate import AggregatedUpdate
from fedpace.learn.server.sums import add_scaled
from fedpace.learn.server.weigh import common_device

PATIENCE = 3
"""Times the longest gap between two updates of a client after which one is forgotten."""


class UpdateOrigin(NamedTuple):
    """Where an update comes from. age: steps of its model since its task began, its own included."""

    client: int
    age: int


@dataclass(frozen=True, eq=False)
class KeptUpdate:
    """A client's last update. weight: at each step; gap: steps between its updates; at: its step."""

    depth: int
    params: Tensor
    weight: float
    gap: float
    at: int


class LastUpdates:
    """Last updates by client, and their weighted sum; vectors stay on the device they come from."""

    def __init__(self, layout: Layout, corrected: bool = False) -> None:
        self._layout, self._corrected = layout, corrected
        self._kept: dict[int, KeptUpdate] = {}
        self._sum = torch.zeros(layout.start(0).params, dtype=torch.float64)
        self._steps = 0

    def combine(
        self,
        arrived: AggregatedUpdate,
        command: Aggregate,
        updates: Sequence[Update],
        origins: Sequence[UpdateOrigin],
    ) -> AggregatedUpdate:
        """Make the step of what arrived into one of everybody's, and keep what arrived."""
        check_rule(command, updates)
        self._steps += 1
        self._sum = self._sum.to(common_device(one.params for one in updates))
        each = list(zip(updates, command.weights, origins, strict=True))
        each = [one for one in each if one[1]]
        correction = self._correction(command, each) if self._corrected else None
        for update, weight, origin in each:
            self._keep(update, weight, origin)
        self._forget()
        if correction is not None:
            params = correction.float().to(arrived.params.device)
            params[len(params) - len(arrived.params) :] += arrived.params
            return self._with(arrived, self._layout.depth, params)
        depth = max((one.depth for one in self._kept.values()), default=0)
        start = self._layout.start(depth).params
        params = self._mean(command)[start:].float().to(arrived.params.device)
        return self._with(arrived, depth, params)

    def _correction(
        self, command: Aggregate, each: Sequence[tuple[Update, float, UpdateOrigin]]
    ) -> Tensor:
        """The mean of all last updates less that of the last updates of those who arrive."""
        values = self._mean(command)
        total = sum(weight for _, weight, _ in each) if command.rule == "mean" else 1.0
        known = [(self._kept.get(origin.client), weight) for _, weight, origin in each]
        terms = [(one, -weight / total) for one, weight in known if one is not None]
        add_scaled(values, [(self._places(one.depth), one.params, factor) for one, factor in terms])
        return values

    def _mean(self, command: Aggregate) -> Tensor:
        """A new vector: the mean of all last updates over those who carry a layer, or their sum."""
        values = self._sum.clone()
        if command.rule == "sum":
            return values
        weights = [0.0] * (self._layout.depth + 1)
        for one in self._kept.values():
            weights[one.depth] += one.weight
        total = sum(weights)
        carried = 0.0
        for depth in range(self._layout.depth, 0, -1):
            carried += weights[depth]
            if carried:
                first, last = self._layout.start(depth).params, self._layout.start(depth - 1).params
                values[first:last].div_(total if command.missing == "zero" else carried)
        return values

    def _keep(self, update: Update, weight: float, origin: UpdateOrigin) -> None:
        before = self._kept.pop(origin.client, None)
        gap = float(origin.age) if before is None else (before.gap + self._steps - before.at) / 2
        one = KeptUpdate(update.depth, update.params.clone(), weight / gap, gap, self._steps)
        self._kept[origin.client] = one
        terms = [(self._places(one.depth), one.params, one.weight)]
        if before is not None:
            terms.insert(0, (self._places(before.depth), before.params, -before.weight))
        add_scaled(self._sum, terms)

    def _forget(self) -> None:
        longest = max((one.gap for one in self._kept.values()), default=0.0)
        old = [key for key, one in self._kept.items() if self._steps - one.at > PATIENCE * longest]
        for key in old:
            one = self._kept.pop(key)
            add_scaled(self._sum, [(self._places(one.depth), one.params, -one.weight)])

    def _places(self, depth: int) -> slice:
        return slice(self._layout.start(depth).params, None)

    def _with(self, arrived: AggregatedUpdate, depth: int, params: Tensor) -> AggregatedUpdate:
        """What arrived with other changes of parameters, of as many layers or more."""
        now, wanted = self._layout.start(arrived.depth), self._layout.start(depth)
        buffers, counters = now.buffers - wanted.buffers, now.counters - wanted.counters
        least, device = torch.iinfo(torch.int64).min, params.device
        unmoved = torch.zeros(buffers, device=device)
        return replace(
            arrived,
            depth=depth,
            params=params,
            buffers=torch.cat([unmoved, arrived.buffers]),
            buffer_shares=torch.cat([unmoved, arrived.buffer_shares]),
            counters=torch.cat([torch.full((counters,), least, device=device), arrived.counters]),
        )

    def state(self) -> dict[str, Any]:
        """Everything that changes, as plain values and tensors."""
        kept = [
            [client, one.depth, one.params.cpu(), one.weight, one.gap, one.at]
            for client, one in self._kept.items()
        ]
        return {"kept": kept, "sum": self._sum.cpu().clone(), "steps": self._steps}

    def load(self, state: dict[str, Any]) -> None:
        """Become the memory whose `state()` this was; {}: that of nothing yet."""
        self._kept = {client: KeptUpdate(*rest) for client, *rest in state.get("kept", ())}
        size = self._layout.start(0).params
        self._sum = state["sum"].clone() if "sum" in state else torch.zeros(size, dtype=torch.float64)
        self._steps = state.get("steps", 0)


def check_fits(clients: int, params: int, device: str) -> None:
    """ConfigError where an update of every client does not fit the memory of the device."""
    needed, free = 4 * clients * params, free_bytes()
    if device != "cpu":
        free = torch.cuda.mem_get_info(device)[0]
    if free is not None and needed > free:
        raise ConfigError(
            f"server.memory keeps an update of each of {clients} clients, {needed / 1e9:.3g} GB, but "
            f"{free / 1e9:.3g} GB are free; set it to 'none', or use fewer clients or a smaller model"
        )


def check_rule(command: Aggregate, updates: Sequence[Update]) -> None:
    """PolicyError where a step cannot be made of last updates."""
    if command.rule == "mix" or command.missed is not None:
        found = "rule 'mix'" if command.rule == "mix" else "chances that layers are missed"
    elif any(one.width is not None for one in updates):
        found = "updates of a thinner model"
    else:
        return
    raise PolicyError(
        f"server.memory keeps updates for means and sums of whole layers, but the policy has {found}; "
        "set server.memory to 'none'"
    )
