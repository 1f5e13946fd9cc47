"""Journals of small runs on disk, whole or as far as they have come."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedpace.core.budget import Budget
from fedpace.core.codec import Message, encode
from fedpace.core.commands import Aggregate, Finish
from fedpace.core.events import Started
from fedpace.core.facts import ClientsEvaluated
from fedpace.core.journal import JOURNAL, Header, part_path
from tests.messages import evaluated
from tests.report.conftest import Tale, make_arrived, make_header, make_train

RUN = {"name": "A study", "label": "timely", "task": {"kind": "timing"}, "stop": {"rounds": 2}}


def tell(header: Header, start: float = 0.0) -> list[Message]:
    """Two rounds of three clients, of which two take part; the second round is one version behind."""
    tale = Tale(header)
    tale.join(start, 0, 1, 2)
    tale.on(Started(start), make_train(0, 1), make_train(1, 2))
    tale.fact(evaluated(start, 0, 0.1, 2.5))
    tale.on(make_arrived(start + 4.0, 0, 1), Aggregate((1,), (1.0,)), make_train(0, 3, 1))
    tale.fact(evaluated(start + 4.0, 1, 0.5, 1.5))
    tale.on(make_arrived(start + 6.5, 1, 2), Aggregate((2,), (1.0,)), Finish("2 rounds"))
    tale.fact(evaluated(start + 6.5, 2, 0.75, 0.5))
    groups = {"slow": 0.25, "fast": 0.5}
    tale.fact(ClientsEvaluated(start + 6.5, 2, "accuracy", 0.4, 0.25, 0.1, groups, (0.25, 0.5, None)))
    tale.session.end(start + 6.5, "2 rounds")
    return tale.memory.messages


def header_of(label: str = "timely", seed: int = 7, rounds: int = 2) -> Header:
    run = {**RUN, "label": label, "stop": {"rounds": rounds}}
    return make_header(seed, run, Budget(sample_cost=(0.1,), round_cost=2.0))


def write(folder: Path, header: Header, messages: list[Message], whole: bool = True) -> Path:
    """A run's folder with the journal of these messages."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / JOURNAL
    lines = [encode(header), *map(encode, messages)]
    (path if whole else part_path(path)).write_bytes(b"\n".join(lines) + b"\n")
    return folder


@pytest.fixture
def run_folder(tmp_path) -> Callable[..., Path]:
    """Makes the folder of a run of this label and seed; upto: messages that are written so far."""

    def make(label: str = "timely", seed: int = 7, upto: int | None = None, **changes: object) -> Path:
        header = replace(header_of(label, seed), **changes)
        messages = tell(header)
        folder = tmp_path / "runs" / label / f"seed-{seed}"
        return write(folder, header, messages[:upto], whole=upto is None)

    return make
