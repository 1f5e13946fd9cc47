"""Small configs, as a user would write them."""

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
def folder(tmp_path, clothes):
    """Holds two configs: one that trains, and one that has nothing to train, which needs no torch."""
    (tmp_path / "config.toml").write_text(CONFIG.format(clothes=clothes))
    start, end = CONFIG.index("[task]"), CONFIG.index("[train]")
    (tmp_path / "timing.toml").write_text(f'{CONFIG[:start]}[task]\nkind = "timing"\n{CONFIG[end:]}')
    return tmp_path
