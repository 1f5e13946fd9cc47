"""What measurements read from the journals of runs."""

from pathlib import Path
from typing import Any


def messages(out: Path) -> list[Any]:
    """What the journal of a run has."""
    from fedpace.core.journal import JOURNAL, read

    return list(read(out / JOURNAL)[1])


def accuracies(told: list[Any]) -> list[float]:
    """Accuracies of the tests, in their order."""
    from fedpace.core.facts import Evaluated

    return [one.accuracy for one in told if isinstance(one, Evaluated)]


def trained(out: Path) -> int:
    """Samples that all updates of a run have seen, each as often as it was used."""
    from fedpace.core.events import Arrived

    results = (one.result for one in messages(out) if isinstance(one, Arrived))
    return sum(result.trained or result.samples for result in results)
