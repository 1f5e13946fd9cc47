"""Corrections of combined deltas: for unequal local work, and for layers that nobody reached."""

from collections.abc import Iterable

from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.server.sums import CarriedSpan
from fedpace.learn.server.weigh import AggregationRule


def restore_effort(values: Tensor, spans: Iterable[CarriedSpan]) -> None:
    """Multiply what was divided by efforts tau_i by the carriers' mean effort, in place.

    FedNova (Wang et al., NeurIPS 2020, eq. 8): sum(w_i delta_i / tau_i) * tau_eff with
    tau_eff = sum(w tau) / sum(w), over those who carry a number. `WeightedUpdate.factor` divides.
    """
    for span in spans:
        values[span.params].mul_(span.effort)


def correct_missed(values: Tensor, layout: Layout, depth: int, rule: AggregationRule) -> None:
    """Divide each layer's mean by 1 - p_l, the chance that somebody carries it, in place.

    ADEL-FL, eq. 5 in deltas. values: of the last `depth` layers.
    """
    if rule.missed is None:
        return
    starts = [start.params - layout.start(depth).params for start in layout.starts]
    for layer in range(layout.depth - depth, layout.depth):
        values[starts[layer] : starts[layer + 1]].div_(1 - rule.missed[layer])


def check_missed(rule: AggregationRule, layout: Layout) -> None:
    """Refuse chances that correct nothing: of another rule, or of other layers."""
    if rule.missed is None:
        return
    if (rule.name, rule.missing) != ("mean", "skip"):
        raise PolicyError(
            f"missed layers for rule {rule.name!r} and missing {rule.missing!r}; only a mean over "
            f"those who carry a layer is corrected"
        )
    if len(rule.missed) != layout.depth or not all(0 <= chance < 1 for chance in rule.missed):
        raise PolicyError(
            f"missed is {tuple(rule.missed)}; give {layout.depth} chances in [0, 1), one a layer"
        )
