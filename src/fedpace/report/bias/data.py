"""Devices and classes of a simulated run's clients, in a file beside its journal.

The journal has neither: policies are not told. A report needs them to say whose data counts.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from fedpace.core.host import write_whole
from fedpace.report.bias.groups import Bias, bias_of
from fedpace.report.bias.weights import ClientWeights

CLIENT_DATA = "client_data.json"
MOST_NUMBERS = 500_000
"""Numbers that the file may have; of more only seconds are kept, or nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class ClientData:
    """What clients are and have. seconds: a sample of each one's device, before its first task.

    counts: samples of each client (row) in each class (column), None where they are not known.
    """

    seconds: np.ndarray
    counts: np.ndarray | None = None

    def write(self, path: Path) -> None:
        """Write the file; where there are too many clients, none."""
        if len(self.seconds) > MOST_NUMBERS:
            return
        known = self.counts is not None and self.counts.size <= MOST_NUMBERS
        values = {
            "seconds": self.seconds.tolist(),
            "counts": self.counts.tolist() if known and self.counts is not None else None,
        }
        write_whole(path, json.dumps(values, separators=(",", ":")), 0o600)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The data of the run in a folder; None where there is no such file, or it is damaged."""
        try:
            values = json.loads((folder / CLIENT_DATA).read_text(encoding="utf-8"))
            seconds = np.array(values["seconds"], dtype=np.float64)
            counts = values["counts"]
            table = None if counts is None else np.array(counts, dtype=np.int64)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        right = seconds.ndim == 1 and (table is None or table.ndim == 2)
        return cls(seconds, table) if right else None

    def seconds_by_client(self) -> dict[int, float]:
        """Seconds a sample by client."""
        return dict(enumerate(self.seconds.tolist()))


def bias_with_data(counted: ClientWeights, data: ClientData | None) -> Bias:
    """The bias of a run, by devices and classes where they are known, else by measured speeds."""
    if data is None:
        return bias_of(counted)
    return bias_of(counted, data.seconds_by_client(), data.counts)
