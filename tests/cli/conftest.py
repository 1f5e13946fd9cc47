"""Small configs, as a user would write them."""

from contextlib import contextmanager
from unittest import mock

import pytest

CONFIG = """
name = "Small test"
clients = 12
policy = "timelyfl"
[task]
kind = "idx"
folder = "{clothes}"
model = "mlp"
[train]
lr = 0.1
[stop]
rounds = 4
[policies.timelyfl]
n = 8
[policies.sync]
n = 4
[compare]
policies = ["timelyfl", "sync"]
seeds = 2
targets = [0.2]
"""


@pytest.fixture
def folder(tmp_path, few_clothes):
    """Holds two configs: one that trains, and one that has nothing to train, which needs no torch."""
    (tmp_path / "config.toml").write_text(CONFIG.format(clothes=few_clothes))
    start, end = CONFIG.index("[task]"), CONFIG.index("[train]")
    (tmp_path / "timing.toml").write_text(f'{CONFIG[:start]}[task]\nkind = "timing"\n{CONFIG[end:]}')
    return tmp_path


def leave_empty(_, path_stem):
    """Files of a figure that nobody looks at."""
    paths = [path_stem.with_name(f"{path_stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        path.touch()
    return paths


@contextmanager
def undrawn():
    """Reports whose figures get all that is in them, but are not drawn: that takes most of the time."""
    with (
        mock.patch("fedpace.report.figures.save_both", leave_empty),
        mock.patch("fedpace.report.sweep.heatmap.save_both", leave_empty),
    ):
        yield


@pytest.fixture(autouse=True)
def _undrawn(request):
    """Spare drawing but in tests that ask for it, of runs that are unlike others."""
    if "drawn" in request.fixturenames:
        yield
        return
    with undrawn():
        yield


@pytest.fixture
def drawn():
    """Let figures be drawn as they are for users."""
