"""Corrections of combined deltas: for unequal local work, and for layers that nobody reached."""

from collections.abc import Iterable

from torch import Tensor

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
