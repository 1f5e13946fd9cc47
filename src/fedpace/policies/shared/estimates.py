"""Numbers about the loss that clients estimate and a server averages; what is no number is left out.

DYNAMITE, section 6.3: clients estimate around the model that they got, on their last batch.
Differs: rho and beta compare a client's model with the one that it had got, not with the one that it
gets next, so that a client has to keep neither its model nor its batch.
Differs: the gradient of a batch of s samples is off by noise of variance M_i / s, which would make
clients look further apart and the loss steeper than they are; it is taken out of c and delta, which
are then averaged over rounds. M_i is averaged as well, and begins anew when the loss jumps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedpace.policies.shared.answers import Estimate
from fedpace.policies.shared.stepped import Device

MEASURED: tuple[Estimate, ...] = ("loss", "gradient", "noise", "change", "smoothness", "spread")
Values = Mapping[int, float]
"""By client."""

_RECENT = 0.5
"""Weight of a round's c and delta against those before."""
_RECENT_VARIANCE = 0.2
_SURE = 0.05
"""Part of a measured square that is left at least when noise is taken out of it."""


@dataclass(slots=True)
class LossEstimates:
    """Weighted by the samples that clients have seen; the last good value where a round has none.

    epsilon: clients' M is measured anew when their mean loss has grown by more than this.
    """

    epsilon: float
    loss: float = 0.0  # F
    curvature: float = 0.0  # c = |grad F|^2 / (2 F)
    quadratic: float = 0.0  # rho
    smoothness: float = 0.0  # beta
    divergence: float = 0.0  # delta
    variance: dict[int, float] = field(default_factory=dict)  # M_i
    known: bool = False
    _slopes: tuple[float, float] | None = None
    _spreads: tuple[float, float] | None = None

    def update(
        self,
        answers: Mapping[Estimate, Values],
        devices: Mapping[int, Device],
        batches: Mapping[int, int],
    ) -> None:
        """Take a round's numbers in. batches: samples that each client measured with."""
        losses = answers["loss"]
        loss = weighted(losses, devices)
        jumped = loss is not None and self.known and loss - self.loss > self.epsilon
        self.loss = self.loss if loss is None else loss
        self._vary(answers["noise"], anew=jumped)
        for name, values in (("quadratic", answers["change"]), ("smoothness", answers["smoothness"])):
            mean = weighted(values, devices)
            if mean is not None:
                setattr(self, name, mean)
        # Noise of each client's gradient, squared.
        noise = {one: self.variance.get(one, 0.0) / batches[one] for one in batches}
        slopes = {
            one: (gradient**2 / (2 * losses[one]), noise[one] / (2 * losses[one]))
            for one, gradient in answers["gradient"].items()
            if losses.get(one, 0.0) > 0
        }
        self._slopes = _averaged(self._slopes, slopes, devices)
        self._spreads = _averaged(self._spreads, _apart(answers["spread"], noise, devices), devices)
        self.curvature = _without_noise(self._slopes)
        self.divergence = math.sqrt(_without_noise(self._spreads))
        self.known = self.known or bool(self.variance and self.smoothness > 0)

    def _vary(self, noise: Values, anew: bool) -> None:
        if anew and noise:  # else the last good values stay
            self.variance.clear()
        for client, root in noise.items():
            before = self.variance.get(client, root**2)
            self.variance[client] = before + _RECENT_VARIANCE * (root**2 - before)


def weighted(values: Values, devices: Mapping[int, Device]) -> float | None:
    """The mean by samples; None where nobody could tell. Negative numbers are nonsense here."""
    good = {client: value for client, value in values.items() if value >= 0}
    total = sum(devices[client].samples for client in good)
    if not total:
        return None
    return sum(devices[client].samples * value for client, value in good.items()) / total


def _apart(
    spreads: Values, noise: Values, devices: Mapping[int, Device]
) -> dict[int, tuple[float, float]]:
    """Client -> squared distance of its gradient from the mean, and what noise adds to it.

    With shares p_j and independent noise n_j, |g_i - sum_j p_j g_j|^2 grows by (1 - 2 p_i) n_i + sum_j
    p_j^2 n_j on average.
    """
    total = sum(devices[client].samples for client in spreads)
    shares = {client: devices[client].samples / total for client in spreads}
    common = sum(share**2 * noise[client] for client, share in shares.items())
    return {
        client: (spread**2, (1 - 2 * shares[client]) * noise[client] + common)
        for client, spread in spreads.items()
    }


def _averaged(
    before: tuple[float, float] | None,
    values: Mapping[int, tuple[float, float]],
    devices: Mapping[int, Device],
) -> tuple[float, float] | None:
    """Means over clients and rounds of what was measured, and of the noise in it."""
    measured = weighted({client: value for client, (value, _) in values.items()}, devices)
    noise = weighted({client: max(part, 0.0) for client, (_, part) in values.items()}, devices)
    if measured is None or noise is None or not math.isfinite(measured - noise):
        return before
    if before is None:
        return measured, noise
    return (before[0] + _RECENT * (measured - before[0]), before[1] + _RECENT * (noise - before[1]))


def _without_noise(found: tuple[float, float] | None) -> float:
    if found is None:
        return 0.0
    measured, noise = found
    return max(measured - noise, _SURE * measured)
