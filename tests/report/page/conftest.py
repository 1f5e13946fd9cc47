"""A small comparison in virtual time, with tests written into its journals as if it had learned."""

import math
from dataclasses import replace

import pytest

import fedpace
from fedpace.core.commands import Aggregate
from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.core.facts import ClientsEvaluated, Finished
from fedpace.core.journal import JOURNAL, Journal, read
from fedpace.report.collection import collect_runs, find_journals
from fedpace.report.page.write import PAGE, write_page
from tests.messages import evaluated
from tests.report.page.browser import Browser, find_chromium

ODD = "<b>&</script>\"'"
"""A label that is markup where somebody forgets to escape it."""
CONFIG = {
    "clients": 12,
    "task": {"kind": "timing", "samples": 60, "layers": 4, "model_mb": 0.5},
    "fleet": {"kind": "phones", "behaviour": {"jitter": 0.1}},
    "policies": {
        "sync": {"n": 8, "over_selection": 1.5},
        "fedbuff": {"concurrency": 8, "k": 4},
        ODD: {"use": "timelyfl", "n": 8, "k": 3},
    },
    "stop": {"rounds": 12},
}


def learned(path):
    """Write tests into a journal, after every second round."""
    header, messages = read(path)
    header = replace(header, context=replace(header.context, metrics=(ACCURACY, LOSS)))
    lines, now, rounds = list(messages), 0.0, 0
    path.unlink()
    with Journal(path, header) as journal:
        for message in lines:
            if isinstance(message, Finished):
                values = tuple(0.5 + 0.03 * client for client in range(12))
                groups = {"slow": 0.5, "middle": 0.6, "fast": 0.8}
                journal.write(ClientsEvaluated(now, rounds, "accuracy", 0.6, 0.5, 0.1, groups, values))
            journal.write(message)
            now = getattr(message, "at", now)
            if isinstance(message, Aggregate):
                rounds += 1
                if rounds % 2 == 0:
                    score = 1 - math.exp(-rounds / 6) - 0.01 * (header.context.seed % 3)
                    journal.write(evaluated(now, rounds, score, 2 * (1 - score)))


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """The folder of a comparison of three labels with two seeds."""
    folder = tmp_path_factory.mktemp("compared")
    for place, label in enumerate(CONFIG["policies"]):
        for seed in (0, 1):
            out = folder / f"label-{place}" / f"seed-{seed}"
            fedpace.simulate(CONFIG | {"seed": seed}, policy=label, out=out)
            learned(out / JOURNAL)
    return folder


@pytest.fixture(scope="session")
def page(compared):
    """The page of the comparison."""
    groups, path = collect_runs(compared, ("sync",)), compared / PAGE
    write_page(groups, path, (0.5, 0.7), find_journals(compared), f"Title {ODD}")
    return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One Chromium for all tests of pages."""
    program = find_chromium()
    if program is None:
        pytest.skip("no chromium is installed; pages are looked at in one")
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser
