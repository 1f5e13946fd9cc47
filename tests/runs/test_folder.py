"""The folder of a run: when it may begin there, go on, or is over."""

import pytest

from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.facts import Finished
from fedpace.core.journal import Header, Journal
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.runs.folder import RunFolder

HEADER = Header("sync", {}, Context(0, 1, ModelProfile.even(1, 1), 1), {}, "0")
OTHER = Header("fedbuff", {}, HEADER.context, {}, "0")


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def write(folder, complete, header=HEADER):
    folder.path.mkdir(exist_ok=True)
    journal = Journal(folder.journal, header)
    journal.write(Finished(0.0, "over"))
    journal.close(complete)
    folder.snapshot.touch()
    folder.name_run()


def names(folder):
    return {path.name for path in folder.path.iterdir()}


def test_a_run_may_begin_in_a_folder_that_is_not_there(folder):
    assert folder.header() is None
    assert folder.open(HEADER, resume=False, overwrite=False)
    assert folder.path.is_dir()


def test_a_file_is_no_folder(folder):
    folder.path.touch()
    with pytest.raises(ConfigError, match="is a file; give a folder"):
        folder.open(HEADER, resume=True, overwrite=False)


@pytest.mark.parametrize("complete", [True, False])
def test_a_folder_with_a_run_is_left_alone_unless_somebody_says_otherwise(folder, complete):
    write(folder, complete)
    before = names(folder)
    with pytest.raises(ConfigError, match="holds a run already; use --resume, --overwrite"):
        folder.open(HEADER, resume=False, overwrite=False)
    assert names(folder) == before


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_gone_on_with_must_be_the_same_run(folder, complete):
    write(folder, complete)
    with pytest.raises(JournalError, match="belongs to another run"):
        folder.open(OTHER, resume=True, overwrite=False)


def test_an_unfinished_run_goes_on_with_all_that_it_has(folder):
    write(folder, complete=False)
    before, name = names(folder), folder.name_run()
    assert folder.header() == HEADER
    assert folder.open(HEADER, resume=True, overwrite=False)
    assert (names(folder), folder.name_run()) == (before, name)


def test_a_finished_run_is_not_run_again_and_keeps_nothing_that_helps_to_go_on(folder):
    write(folder, complete=True)
    assert not folder.open(HEADER, resume=True, overwrite=False)
    assert names(folder) == {"journal.jsonl"}


@pytest.mark.parametrize("complete", [True, False])
def test_overwriting_deletes_all_that_a_run_has_left(folder, complete):
    write(folder, complete, OTHER)
    name = folder.name_run()
    for path in (folder.weights, folder.clients):
        path.touch()
    folder.spool.mkdir()
    (folder.spool / "1.json").touch()
    (folder.path / "notes.txt").touch()  # of somebody else
    assert folder.open(HEADER, resume=False, overwrite=True)
    assert names(folder) == {"notes.txt"}
    assert folder.name_run() != name


@pytest.mark.parametrize("content", [b"", b'{"policy":"sy'])
def test_a_journal_without_a_first_line_is_as_if_it_never_was(folder, content):
    folder.path.mkdir()
    folder.part.write_bytes(content)
    assert folder.header() is None
    assert folder.open(HEADER, resume=True, overwrite=False)
    assert names(folder) == set()
