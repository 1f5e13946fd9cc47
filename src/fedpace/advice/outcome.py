"""The outcome of advice: candidates, their timings and ranking, and a config that runs the first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

from fedpace.advice.aims import Aim
from fedpace.advice.timing.measure import TimedCandidate
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.host import write_whole

Verdict = Literal["clear", "tied", "timing only", "none"]
ADVICE_JSON, ADVICE_TEXT, ADVISED_CONFIG = "advice.json", "advice.md", "advised.toml"


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate in the order of the advice.

    score: by the aim, a mean over seeds; low, high: its interval; values: of each seed; reached: seeds
    with which the target was reached, None without a target; trained_s: seconds of the run's clock that
    its pilots went; best: the best value of the metric in them, a mean. place: "first", "tied" with it,
    "worse", "left" before the last pilots, "diverged", or "timed" alone.
    """

    label: str
    place: Literal["first", "tied", "worse", "left", "diverged", "timed"]
    score: float | None = None
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()
    reached: int | None = None
    trained_s: float = 0.0
    best: float | None = None


@dataclass(frozen=True, repr=False)
class Advice:
    """Which policy to take, with which settings.

    verdict: "clear"; "tied": seeds do not tell the first from others; "timing only": nothing was
    trained, the order is that of the timings' promise; "none": nothing can be said. level: the target
    by which candidates were ranked, where it was a lower one than the aim's. timed: all candidates;
    beaten: label -> the label that dominates it; refused: label -> why it cannot be run here;
    sentences: reasons and warnings in words; config: TOML text that runs the first, "" without one.
    timing_s, pilots_s: real seconds that both parts took.
    """

    name: str
    aim: Aim
    metrics: tuple[MetricInfo, ...]
    verdict: Verdict
    ranking: tuple[RankedCandidate, ...]
    timed: tuple[TimedCandidate, ...]
    beaten: Mapping[str, str]
    refused: Mapping[str, str]
    sentences: tuple[str, ...]
    config: str = ""
    level: float | None = None
    timing_s: float = 0.0
    pilots_s: float = 0.0
    rungs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def best(self) -> str | None:
        """Label of the first choice; None where there is none."""
        return self.ranking[0].label if self.ranking and self.verdict != "none" else None

    @property
    def tied(self) -> list[str]:
        """Labels that the pilots do not tell from the first."""
        return [one.label for one in self.ranking if one.place == "tied"]

    def candidate(self, label: str) -> TimedCandidate:
        """The candidate of a label."""
        return next(one for one in self.timed if one.label == label)

    def rows(self) -> list[dict[str, Any]]:
        """A row for every ranked candidate, for a data frame: settings, score and timings."""
        found = []
        for one in self.ranking:
            timed = self.candidate(one.label)
            timing = {} if timed.measures is None else timed.measures.to_dict()
            timing.pop("bias", None)
            candidate = timed.candidate
            found.append(
                {"policy": candidate.policy, "settings": candidate.words, **asdict(one), **timing}
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "format": 1,
            "name": self.name,
            "aim": asdict(self.aim) | {"words": self.aim.words(self.metrics)},
            "verdict": self.verdict,
            "first": self.best,
            "tied": self.tied,
            "level": self.level,
            "ranking": [asdict(one) for one in self.ranking],
            "sentences": list(self.sentences),
            "candidates": [one.to_dict() for one in self.timed],
            "dominated": dict(self.beaten),
            "refused": dict(self.refused),
            "rungs": [dict(one) for one in self.rungs],
            "timing_s": self.timing_s,
            "pilots_s": self.pilots_s,
            "config": self.config,
        }

    def markdown(self) -> str:
        """The text of advice.md."""
        from fedpace.advice.text import advice_markdown

        return advice_markdown(self)

    def write(self, folder: Path) -> None:
        """Write advice.json, advice.md and, where there is a first choice, advised.toml."""
        write_whole(folder / ADVICE_JSON, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")
        write_whole(folder / ADVICE_TEXT, self.markdown())
        if self.config:
            write_whole(folder / ADVISED_CONFIG, self.config)

    def __repr__(self) -> str:
        from fedpace.advice.text import advice_text

        return advice_text(self, 100)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
