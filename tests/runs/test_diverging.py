"""A run whose training diverges is a result: it ends, says where, and keeps the last good model."""

import pytest
import torch

import fedpace
from fedpace.core.facts import Evaluated, Finished

MEASURES = ("dynamic_tau", "dynamite")


def absurd(small, lr=1e6, **changes):
    return small | {"train": {"lr": lr}, "stop": {"rounds": 30}, "evaluate": {}} | changes


@pytest.mark.parametrize("policy", ["timelyfl", "fedbuff", "fedat", *MEASURES])
def test_a_run_that_diverges_ends_with_the_round_and_a_finite_model(tmp_path, small, policy):
    small["policies"]["dynamic_tau"] = {"tau_max": 20}
    result = fedpace.simulate(absurd(small, policy=policy), out=tmp_path)
    *_, last = result.journal
    at_round, at = result.summary.diverged
    assert last == Finished(at, result.summary.finished, at_round)
    assert last.reason.startswith(f"diverged at round {at_round}: ")
    assert at_round < 30
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert all(torch.isfinite(value).all() for value in weights.values())
    tested = [message for message in result.journal if isinstance(message, Evaluated)]
    assert [test.version for test in tested if test.loss is not None] == [*range(at_round)]


def test_it_is_not_run_again(tmp_path, small):
    config = absurd(small)
    first = fedpace.simulate(config, out=tmp_path)
    before = (tmp_path / "journal.jsonl").stat().st_mtime_ns
    again = fedpace.simulate(config, out=tmp_path, resume=True)
    assert again.summary == first.summary
    assert (tmp_path / "journal.jsonl").stat().st_mtime_ns == before
