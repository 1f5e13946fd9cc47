"""How far a race is, on disk."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpace.advice.aims import Aim
from fedpace.advice.pilots.halving import PilotCost, Rung
from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from fedpace.runs import config as configs
from fedpace.runs.config import Config

RACE = "race.json"


@dataclass
class RaceState:
    """How far a race is; written after every rung, so that it can be gone on with."""

    spent_s: float = 0.0
    rungs: list[dict[str, Any]] = field(default_factory=list)
    costs: dict[str, PilotCost] = field(default_factory=dict)
    aim: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the pilots' config, by keys such as train.lr."""

    @classmethod
    def read(cls, folder: Path) -> "RaceState":
        """The state that a folder holds; a new one where there is none."""
        path = folder / RACE
        if not path.exists():
            return cls()
        try:
            told = json.loads(path.read_text())
            costs = {label: PilotCost(**one) for label, one in told["costs"].items()}
            settings = told.get("settings", {})
            return cls(told["spent_s"], told["rungs"], costs, told["aim"], settings)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                f"{path} is not what advise wrote; use overwrite=True or another folder"
            ) from None

    def check(self, aim: Aim, labels: Sequence[str], config: Config) -> None:
        """Note what the race is for; ConfigError where it was begun for something else.

        labels: of the candidates; config: of their pilots.
        """
        if self.aim and self.aim != asdict(aim):
            before = Aim(**self.aim).words()
            raise ConfigError(
                f"the pilots that are there are for another aim, {before}; use overwrite=True or "
                "another folder"
            )
        unknown = [one for rung in self.rungs for one in rung["labels"] if one not in labels]
        if unknown:
            raise ConfigError(
                f"the pilots that are there are of other candidates, such as {unknown[0]}; go on with "
                "the same policies, use overwrite=True or another folder"
            )
        here = json.loads(json.dumps(_flat(configs.plain(replace(config, name="")))))
        if self.settings:
            self._check_settings(here)
        self.aim, self.settings = asdict(aim), here

    def _check_settings(self, here: Mapping[str, Any]) -> None:
        """ConfigError for a setting that the pilots had otherwise; candidates may be fewer or more."""
        both = _policies(here) & _policies(self.settings)
        for key in {**self.settings, **here}:
            if key.startswith("policies/") and key.split("/")[1] not in both:
                continue
            was, now = self.settings.get(key, "not set"), here.get(key, "not set")
            if was != now:
                raise ConfigError(
                    f"{key.replace('/', '.')} is {now} here, but {was} in the pilots that are there; "
                    "use overwrite=True or another folder"
                )

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        write_whole(folder / RACE, json.dumps(asdict(self), indent=1) + "\n")

    @property
    def last(self) -> Rung | None:
        """The last rung that was carried out."""
        return _rung(self.rungs[-1]) if self.rungs else None

    @property
    def left(self) -> list[str]:
        """Labels that were left out, the last first."""
        return [label for rung in reversed(self.rungs) for label in rung["left"]]

    @property
    def finalists(self) -> list[str]:
        """Labels that were taken as far as the last rung."""
        last = self.last
        if last is None:
            return []
        far = [_rung(one) for one in self.rungs if one["hours"] >= 0.999 * last.hours]
        return list(dict.fromkeys([*last.labels, *(label for rung in far for label in rung.labels)]))

    def note(self, rung: Rung, kept: list[str]) -> None:
        """Enter a rung that is over; kept: those that go on."""
        left = [one for one in rung.labels if one not in kept]
        told = {"labels": list(rung.labels), "seeds": rung.seeds, "hours": rung.hours}
        last = self.last
        if last == rung:
            self.rungs.pop()  # it was gone on with
        self.rungs.append(told | {"kept": kept, "left": left})


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values of nested tables by their whole keys, parts of which are between slashes."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{above}{key}/")
        else:
            found[f"{above}{key}"] = value
    return found


def _policies(settings: Mapping[str, Any]) -> set[str]:
    """Labels of [policies] in the values of a config."""
    return {key.split("/")[1] for key in settings if key.startswith("policies/")}


def _rung(told: dict[str, Any]) -> Rung:
    return Rung(tuple(told["labels"]), told["seeds"], told["hours"])
