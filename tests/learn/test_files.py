import errno

import pytest
import torch

from fedpace.core.errors import FedpaceError, JournalError
from fedpace.learn import files


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "x.pt"
    files.save(path, {"a": torch.arange(3), "n": 7})
    assert torch.equal(files.load(path)["a"], torch.arange(3))
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("write failed")]
)
def test_on_a_full_disk_the_old_file_stays_and_nothing_half_written_is_left(
    tmp_path, monkeypatch, error
):
    path = tmp_path / "x.pt"
    files.save(path, {"n": 1})

    def fail(values, file):
        file.write(b"half")
        raise error

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(FedpaceError, match=r"x.pt could not be written.*free some space and resume"):
        files.save(path, {"n": 2})
    assert files.load(path) == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


def test_a_file_that_would_run_code_is_refused(tmp_path):
    import pickle

    path = tmp_path / "x.pt"
    path.write_bytes(pickle.dumps(print))
    with pytest.raises(JournalError, match="cannot be read"):
        files.load(path)
