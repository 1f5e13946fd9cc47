"""Metrics for tasks of your own: ready-made ones, and `Metric` for others. See docs/own.md."""

from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.metrics.metric import Metric, StreamingMetric
from fedpace.learn.metrics.ready import (
    accuracy,
    auc,
    binary_accuracy,
    f1,
    mae,
    mse,
    perplexity,
    r2,
    rmse,
    token_accuracy,
)

__all__ = [
    "Metric",
    "StreamingMetric",
    "TokenLoss",
    "accuracy",
    "auc",
    "binary_accuracy",
    "f1",
    "mae",
    "mse",
    "perplexity",
    "r2",
    "rmse",
    "token_accuracy",
]
