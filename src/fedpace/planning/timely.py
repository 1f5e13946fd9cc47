"""TimelyFL's workload scheduling (Zhang et al., CVPRW 2023, Algorithm 3), usable on its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import ConfigError
from fedpace.planning.checks import check_columns, check_number, check_whole, read_column


@dataclass(frozen=True, slots=True)
class Schedule:
    """Workloads of one round; entry i belongs to client i. Times are seconds."""

    interval_s: float
    epochs: tuple[int, ...]
    fractions: tuple[float, ...]
    report_s: tuple[float, ...]


def schedule(
    unit_compute_s: Sequence[float],
    unit_comm_s: Sequence[float],
    k: int,
    unit_down_s: Sequence[float] | None = None,
) -> Schedule:
    """Algorithm 3: interval, epochs, fractions and report times from measured speeds.

    unit_compute_s: one full-model epoch; unit_comm_s: one transfer of the model, scaled by the
    fraction that is trained; unit_down_s: the download, always whole (left out: free, as in the
    paper). The interval T_k is the k-th smallest sum. A client that cannot even download in T_k
    has fraction 0. report_s is when a client must stop computing and start to report.

    >>> plan = schedule([10, 4, 30, 5], [2, 1, 10, 15], k=2)
    >>> plan.interval_s, plan.epochs
    (12.0, (1, 2, 1, 1))
    >>> plan.fractions, plan.report_s
    ((1.0, 1.0, 0.3, 0.6), (10.0, 11.0, 9.0, 3.0))
    """
    compute, comm = _times("unit_compute_s", unit_compute_s), _times("unit_comm_s", unit_comm_s)
    down = np.zeros_like(compute) if unit_down_s is None else _times("unit_down_s", unit_down_s)
    if not len(compute):
        raise ConfigError("unit_compute_s is empty; give the times of one client or more")
    if not len(compute) == len(comm) == len(down):
        raise ConfigError(
            f"{len(compute)} compute, {len(comm)} communication and {len(down)} download times; "
            f"give one of each for every client"
        )
    if (compute <= 0).any():
        raise ConfigError("a unit compute time is 0; an epoch takes time, give what it takes")
    check_whole("k", k, 1, len(compute), f", but {len(compute)} clients are sampled")
    total = down + compute + comm
    interval = float(np.partition(total, k - 1)[k - 1])  # Algorithm 1, line 7
    epochs, fractions, report = workloads(interval, compute, comm, down)
    return Schedule(interval, tuple(epochs.tolist()), tuple(fractions.tolist()), tuple(report.tolist()))


def workloads(
    interval: float, compute: np.ndarray, comm: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Epochs, fractions and report times for a given interval (Algorithm 3, lines 2 to 4)."""
    check_number("interval", interval)
    check_columns(compute=compute, comm=comm, down=down)
    # The tolerance keeps an epoch that fits exactly from being lost to rounding.
    epochs = np.floor((interval - down - comm) / compute * (1 + TOLERANCE)).clip(1, 1e9)
    in_time = down + compute + comm <= interval
    fractions = np.where(in_time, 1.0, (interval - down) / (compute + comm)).clip(0.0, 1.0)
    return epochs.astype(np.int64), fractions, interval - fractions * comm


def _times(name: str, values: Sequence[float]) -> np.ndarray:
    times = read_column(name, values, "seconds, none negative")
    if (times < 0).any():
        raise ConfigError(f"{name} has {times.min():g}; give a list of finite seconds, none negative")
    return times
