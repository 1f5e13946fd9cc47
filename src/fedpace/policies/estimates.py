"""Numbers about the loss that clients estimate and a server averages; what is no number is left out.

DYNAMITE, section 6.3: clients estimate around the model that they got, on their last batch.
Differs: rho and beta compare a client's model with the one that it had got, not with the one that it
gets next, so that a client has to keep neither its model nor its batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedpace.policies.answers import Estimate
from fedpace.policies.stepped import Device

MEASURED: tuple[Estimate, ...] = ("loss", "gradient", "noise", "change", "smoothness", "spread")


@dataclass(slots=True)
class Estimates:
    """Weighted by the samples that clients have seen; the last good value where a round has none.

    epsilon: a client's M is measured anew when its loss has grown by more than this.
    """

    epsilon: float
    loss: float = 0.0  # F
    curvature: float = 0.0  # c = |grad F|^2 / (2 F)
    quadratic: float = 0.0  # rho
    smoothness: float = 0.0  # beta
    divergence: float = 0.0  # delta
    variance: dict[int, float] = field(default_factory=dict)  # M_i
    known: bool = False
    _losses: dict[int, float] = field(default_factory=dict)

    def update(
        self, answers: Mapping[Estimate, Mapping[int, float]], devices: Mapping[int, Device]
    ) -> None:
        losses, gradients = answers["loss"], answers["gradient"]
        curvatures = {
            client: gradients[client] ** 2 / (2 * loss)
            for client, loss in losses.items()
            if client in gradients and loss > 0
        }
        for name, values in (
            ("loss", losses),
            ("curvature", curvatures),
            ("quadratic", answers["change"]),
            ("smoothness", answers["smoothness"]),
            ("divergence", answers["spread"]),
        ):
            mean = weighted(values, devices)
            if mean is not None:
                setattr(self, name, mean)
        for client, noise in answers["noise"].items():
            before, now = self._losses.get(client), losses.get(client)
            jumped = before is not None and now is not None and now - before > self.epsilon
            if client not in self.variance or jumped:
                self.variance[client] = noise**2
        self._losses.update(losses)
        self.known = self.known or bool(self.variance and self.smoothness > 0)


def weighted(values: Mapping[int, float], devices: Mapping[int, Device]) -> float | None:
    """The mean by samples; None where nobody could tell. Negative numbers are nonsense here."""
    good = {client: value for client, value in values.items() if value >= 0}
    total = sum(devices[client].samples for client in good)
    if not total:
        return None
    return sum(devices[client].samples * value for client, value in good.items()) / total
