"""Aggregation with a rule's parts as arguments of their own."""

from fedpace.learn.server.aggregate import aggregate
from fedpace.learn.server.weigh import AggregationRule


def combine(
    layout,
    updates,
    weights,
    rule="mean",
    missing="skip",
    normalise=False,
    *,
    lags=(),
    missed=None,
    slims=None,
):
    together = AggregationRule(rule, missing, normalise, missed)
    return aggregate(layout, updates, weights, together, lags, slims)
