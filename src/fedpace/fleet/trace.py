"""Devices from a trace of real phones; `files/README.md` tells the origin of the shipped one."""

import math
import warnings
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from fedpace.core.errors import ConfigError, Count, Positive, check
from fedpace.core.random import keyed as seeds
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.fleet import Fleet, Floats, build_fleet, one_of
from fedpace.fleet.listed import read_listed_presence
from fedpace.fleet.speeds import MOBILENET_V2, FleetSettings
from fedpace.fleet.tables import CsvTable, check_rows, read_table

BYTES_S_PER_KBPS = 1000 / 8


@dataclass(frozen=True, slots=True)
class PhonesSettings(FleetSettings):
    """A trace of phones, and factors from its numbers to those of training this model."""

    file: Annotated[
        Path | None,
        "CSV (or .gz) with computation_ms_per_sample (of inference) and communication_kbps; unset: 500 "
        'shipped phones. Devices of your own, measured in training: kind = "file"',
    ] = None
    training_factor: Annotated[Positive, "time of a training step over that of inference"] = 3.0
    speed_scale: Annotated[Positive, "multiplies seconds a sample: below 1 for a lighter model"] = 1.0
    link_scale: Annotated[Positive, "multiplies bandwidth, down and up"] = 1.0
    behaviour: Annotated[Behaviour, "jitter, drift, dropout, presence"] = STEADY
    order: Annotated[
        Literal["drawn", "as listed"] | None,
        "drawn: clients get random rows, several the same one where there are fewer; as listed: client "
        "i gets row i; unset: drawn",
    ] = None

    def reference(self) -> float | None:
        """MobileNet-V2's for the shipped trace; what another file is of, only its owner knows."""
        return self.reference_operations or (MOBILENET_V2 if self.file is None else None)

    def _check_rest(self) -> None:
        if self.file is not None and self.order is None and self.behaviour.presence == "trace":
            raise ConfigError(
                "presence_file speaks of clients by number, but they get random rows of file; set "
                "order to 'as listed', or to 'drawn' if devices and presence are to be independent"
            )


class Phones:
    """Phones from a trace, drawn without replacement while it has enough, else with; or as listed.

    Down and up have the same bandwidth, since the trace has one number. A client that drifts becomes
    another phone of the trace, in compute and link at once.
    """

    Settings = PhonesSettings

    @staticmethod
    def build(settings: PhonesSettings, clients: int, seed: int) -> Fleet:
        """A fleet of `clients` phones; the same for the same seed."""
        check("clients", clients, Count)
        if settings.file is not None and settings.order is None:
            warnings.warn(
                "fleet.file is drawn from at random; set fleet.order to 'drawn' to say so, or to "
                "'as listed' to give client i row i",
                UserWarning,
                stacklevel=2,
            )
        phones = _shipped() if settings.file is None else read_capacity(settings.file)
        phones[:, 0] *= settings.training_factor * settings.speed_scale
        phones[:, 1] *= settings.link_scale
        rng = seeds.generator(seed, "fleet.phones")
        if settings.order == "as listed":
            check_rows(settings.file or "the shipped trace", len(phones), clients)
            chosen = phones[:clients]
        elif clients <= len(phones):
            chosen = phones[rng.permutation(len(phones))[:clients]]
        else:
            chosen = phones[rng.integers(len(phones), size=clients)]
        sample_s, bytes_s = chosen.T
        redraw, presence = partial(one_of, phones[:, [0, 1, 1]]), None
        if settings.order == "as listed":
            table = CsvTable.read(_source(settings.file), ())
            presence = read_listed_presence(table, settings.behaviour, range(clients))
        return build_fleet(
            sample_s, bytes_s, bytes_s, settings.behaviour, seed, redraw, presence=presence
        )


def _shipped() -> Floats:
    """Phones of the trace that comes with fedpace, for the caller to change."""
    return _read_shipped().copy()


@cache
def _read_shipped() -> Floats:
    return read_capacity(_source(None))


def read_capacity(path: Traversable) -> Floats:
    """Phones of a trace, (rows, 2): seconds of inference a sample, bytes a second."""
    rows = read_table(path, ("computation_ms_per_sample", "communication_kbps"))
    for line, (compute, link) in rows:
        if not (0 < compute < math.inf and 0 < link < math.inf):
            raise ConfigError(
                f"{path}, line {line}: {compute} ms a sample and {link} kbit/s; "
                "both must be finite and above 0"
            )
    return np.array([values for _, values in rows]) * (1e-3, BYTES_S_PER_KBPS)


def _source(file: Path | None) -> Traversable:
    if file is not None:
        return Path(file)
    return resources.files("fedpace.fleet") / "files" / "device_capacity.csv.gz"
