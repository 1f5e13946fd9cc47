"""What computes a run's steps is a property of the run: its journal says it, and it goes on so."""

import json

import pytest
import torch

import fedpace
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.journal import JOURNAL, read
from fedpace.learn.many import choice
from fedpace.learn.many.compiled import trainer as compiled
from fedpace.learn.many.compiled.compiler import CannotCompile
from fedpace.learn.many.compiled.library import find_library
from tests.learn.many.compiled.test_dense import make_task


def cannot():
    raise CannotCompile("there is no C compiler (cc)")


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(choice, "find_library", cannot)
    monkeypatch.setattr(compiled, "find_library", cannot)


@pytest.fixture
def compiler():
    try:
        find_library()
    except CannotCompile as reason:
        pytest.skip(str(reason))


def run(out, rounds=2, kernel=None, **more):
    train = {"lr": 0.1, "batch_size": 8} | ({} if kernel is None else {"kernel": kernel})
    config = {
        "clients": 4,
        "train": train,
        "fleet": {"kind": "distribution"},
        "stop": {"rounds": rounds},
    }
    result = fedpace.simulate(config, task=make_task(), policy="sync", out=out, **more)
    return result.weights


def kernel_of(out):
    return read(out / JOURNAL)[0].run["train"].get("kernel")


@pytest.mark.usefixtures("compiler")
def test_a_journal_says_which_kernel_was_used(tmp_path):
    for asked, used in ((None, "compiled"), ("compiled", "compiled"), ("torch", "torch")):
        run(tmp_path / str(asked), kernel=asked)
        assert kernel_of(tmp_path / str(asked)) == used


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_is_used_unless_the_kernel_was_asked_for(tmp_path, caplog):
    with caplog.at_level("INFO", "fedpace"):
        found = run(tmp_path / "open")
    assert "steps are computed by torch: there is no C compiler" in caplog.text
    assert kernel_of(tmp_path / "open") == "torch"
    plain = run(tmp_path / "torch", kernel="torch")
    assert all(torch.equal(value, plain[name]) for name, value in found.items())
    with pytest.raises(ConfigError, match=r"there is no C compiler.*set it to 'torch'"):
        run(tmp_path / "asked", kernel="compiled")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("kernel", ["compiled", "torch"])
def test_a_run_goes_on_with_the_kernel_that_it_began_with(tmp_path, kernel):
    whole = run(tmp_path / "whole", 4, kernel)
    run(tmp_path / "parts", 2, kernel)
    found = run(tmp_path / "parts", 4, None if kernel == "torch" else kernel, resume=True)
    assert kernel_of(tmp_path / "parts") == kernel
    assert all(torch.equal(value, whole[name]) for name, value in found.items())


@pytest.mark.usefixtures("compiler")
def test_a_run_that_is_older_than_the_choice_goes_on_with_torch(tmp_path):
    whole = run(tmp_path / "whole", 4, "torch")
    run(tmp_path / "old", 2, "torch")
    journal = tmp_path / "old" / JOURNAL
    first, rest = journal.read_text().split("\n", 1)
    header = json.loads(first)
    del header["run"]["train"]["kernel"]
    journal.write_text(json.dumps(header, separators=(",", ":")) + "\n" + rest)
    found = run(tmp_path / "old", 4, resume=True)
    assert all(torch.equal(value, whole[name]) for name, value in found.items())


@pytest.mark.usefixtures("compiler")
def test_a_run_does_not_go_on_with_another_kernel(tmp_path, monkeypatch):
    run(tmp_path, 2)
    with pytest.raises(
        JournalError, match=r"train\.kernel is 'torch' here but 'compiled' in the folder"
    ):
        run(tmp_path, 4, "torch", resume=True)
    monkeypatch.setattr(compiled, "find_library", cannot)
    with pytest.raises(ConfigError, match=r"computed by the compiled kernel, but there is no C comp"):
        run(tmp_path, 4, resume=True)


@pytest.mark.usefixtures("compiler")
def test_models_of_other_kinds_leave_the_choice_open(tmp_path):
    config = {"clients": 4, "fleet": {"kind": "distribution"}, "stop": {"rounds": 1}}
    task = make_task(between=torch.nn.Tanh)
    fedpace.simulate(config, task=task, policy="sync", out=tmp_path)
    assert kernel_of(tmp_path) == "auto"
