"""The folder of a run: when it may begin there, go on, or is over."""

from dataclasses import replace

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.evaluation.metric import ACCURACY
from fedpace.core.events import Started, Timer
from fedpace.core.facts import Evaluated, Finished
from fedpace.core.journal import Header, Journal
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.runs.disk.changes import BUDGET_ENDS
from fedpace.runs.disk.lock import LOCK
from fedpace.runs.folder import RunFolder

HEADER = Header("sync", {}, Context(0, 1, ModelProfile.even(1, 1), 1), {}, "0")
OTHER = Header("fedbuff", {}, HEADER.context, {}, "0")


@pytest.fixture
def folder(tmp_path):
    with RunFolder(tmp_path / "run") as made:
        yield made


def write(folder, complete, header=HEADER):
    folder.path.mkdir(exist_ok=True)
    journal = Journal(folder.journal, header)
    journal.write(Finished(0.0, "over"))
    journal.close(complete)
    folder.snapshot.touch()
    folder.name_run()


def names(folder):
    return {path.name for path in folder.path.iterdir()} - {LOCK}


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
    with pytest.raises(ConfigError, match="holds a run already; use resume=True, overwrite=True"):
        folder.open(HEADER, resume=False, overwrite=False)
    assert names(folder) == before


@pytest.mark.parametrize("complete", [True, False])
def test_what_is_gone_on_with_must_be_the_same_run(folder, complete):
    write(folder, complete)
    with pytest.raises(JournalError, match=r"policies.sync.use is not set here but 'sync' in the"):
        folder.open(OTHER, resume=True, overwrite=False)


def test_an_unfinished_run_goes_on_with_all_that_it_has(folder):
    write(folder, complete=False)
    before, name = names(folder), folder.name_run()
    assert folder.header() == HEADER
    assert folder.open(HEADER, resume=True, overwrite=False)
    assert (names(folder), folder.name_run()) == (before, name)


def test_a_finished_run_is_not_run_again_and_keeps_what_helps_to_extend_it(folder):
    write(folder, complete=True)
    before = names(folder)
    assert not folder.open(HEADER, resume=True, overwrite=False)
    assert names(folder) == before


def test_what_helps_to_go_on_with_a_run_that_is_not_there_is_deleted(folder):
    folder.path.mkdir()
    folder.snapshot.touch()
    folder.name_run()
    assert folder.open(HEADER, resume=True, overwrite=False)
    assert names(folder) == set()


def ending(policy="sync", budget=None, clock=None, lr=0.1, **stop):
    """A header of a run with these ends."""
    context = replace(HEADER.context, budget=Budget(**(budget or {})), metrics=(ACCURACY,))
    run = {"label": "mine", "train": {"lr": lr}, "stop": stop} | ({"clock": clock} if clock else {})
    return Header(policy, {"n": 3}, context, run, "0")


def write_rounds(folder, header, rounds=5, complete=True):
    """A journal of a run that has gone so many rounds of ten seconds, and was tested at each."""
    folder.path.mkdir(exist_ok=True)
    journal = Journal(folder.journal, header)
    journal.write(Started(0.0))
    for number in range(1, rounds + 1):
        journal.write(Timer(10.0 * number, "beat"))
        journal.write(Aggregate((), ()))
        journal.write(Evaluated(10.0 * number, number, {"accuracy": number / 10}))
    if complete:
        journal.write(Finished(10.0 * rounds, "over"))
    journal.close(complete)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    "longer",
    [
        ending(rounds=50),
        ending(rounds=5, hours=1.0),
        ending(hours=50 / 3600),
        ending(target=0.55),
        ending(budget={"time_s": 50.0}),
    ],
)
def test_a_run_may_go_on_under_ends_that_it_has_not_passed(folder, longer, complete):
    write_rounds(folder, ending(rounds=5, target=0.9), complete=complete)
    found = folder.journal if complete else folder.part
    before = found.read_bytes()
    assert folder.open(longer, resume=True, overwrite=False)
    assert folder.header() == longer
    assert folder.part.read_bytes().split(b"\n", 1)[1] == before.split(b"\n", 1)[1]
    if complete:
        assert folder.journal.read_bytes() == before  # until the longer one is over
    assert not folder.is_over


@pytest.mark.parametrize(
    ("shorter", "complaint"),
    [
        (ending(rounds=4), "stop.rounds is 4 here, but the folder's run has gone 5 rounds"),
        (ending(rounds=9, hours=0.01), "stop.hours is 0.01 here, but .* gone 0.0138889 hours"),
        (ending(target=0.3), "stop.target is 0.3 here, but .* reached that before"),
        (ending(budget={"time_s": 49.0}), "budget.time_s is 49.0 here, but .* gone 50 seconds"),
    ],
)
def test_a_run_cannot_be_shortened(folder, shorter, complaint):
    write_rounds(folder, ending(rounds=5, budget={"time_s": 80.0}))
    with pytest.raises(JournalError, match=complaint + r".*extended, not shortened"):
        folder.open(shorter, resume=True, overwrite=False)
    assert names(folder) == {"journal.jsonl"}


def test_settings_that_differ_are_named_and_a_few_are_enough(folder):
    write_rounds(folder, ending(rounds=5))
    with pytest.raises(JournalError) as caught:
        folder.open(ending(lr=0.5, rounds=9), resume=True, overwrite=False)
    assert "journal.jsonl: train.lr is 0.5 here but 0.1 in the folder's run; resume with" in str(
        caught.value
    )
    assert "rounds" not in str(caught.value)
    other = Header("sync", {}, HEADER.context, {"a": 1, "b": 2, "c": "x" * 99, "d": 4, "e": 5}, "1")
    with pytest.raises(JournalError, match=r"c is 'x+\.\.\. here but not set in.* and \d+ more; "):
        folder.open(other, resume=True, overwrite=False)


def test_another_model_is_named_where_no_setting_differs(folder):
    write_rounds(folder, ending(rounds=5))
    other = ending(rounds=5)
    other = replace(other, context=replace(other.context, model=ModelProfile.even(2, 7)))
    with pytest.raises(JournalError, match="the model's layers or their costs are others here"):
        folder.open(other, resume=True, overwrite=False)


def test_a_policy_that_plans_with_its_budget_cannot_be_given_more_of_it(folder):
    write_rounds(folder, ending("adel", budget={"time_s": 50.0}))
    longer = ending("adel", budget={"time_s": 90.0})
    with pytest.raises(
        JournalError, match=r"budget.time_s is 90.0 here but 50.0 .* adel plans with it"
    ):
        folder.open(longer, resume=True, overwrite=False, fixed=BUDGET_ENDS)
    assert folder.open(longer, resume=True, overwrite=False)


@pytest.mark.parametrize("complete", [True, False])
def test_a_served_run_can_be_extended_only_while_it_is_not_over(folder, complete):
    write_rounds(folder, ending(rounds=5, clock="real"), complete=complete)
    longer = ending(rounds=9, clock="real")
    if not complete:
        assert folder.open(longer, resume=True, overwrite=False)
        return
    with pytest.raises(JournalError, match="has let its clients go"):
        folder.open(longer, resume=True, overwrite=False)


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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_damaged_name_of_the_run_is_made_anew_with_a_word(folder, content, caplog):
    write(folder, complete=False)
    folder.run_id.write_bytes(content)
    name = folder.name_run()
    assert "run.json is damaged" in caplog.text
    assert "clients that took part join anew" in caplog.text
    assert len(name) == 32
    assert folder.name_run() == name


def modes(path):
    found = {one.name: one.stat().st_mode & 0o777 for one in (path, *path.rglob("*"))}
    folders = {one.name for one in (path, *path.rglob("*")) if one.is_dir()}
    return {name: mode for name, mode in found.items() if mode != (0o700 if name in folders else 0o600)}


def test_only_its_owner_may_read_a_run_also_one_of_an_earlier_version(folder):
    assert folder.open(HEADER, resume=False, overwrite=False)
    write(folder, complete=False)
    assert modes(folder.path) == {"snapshot.pt": 0o644}  # made by the test
    folder.spool.mkdir()
    (folder.spool / "1.json").touch()
    for path in (folder.path, *folder.path.rglob("*")):
        path.chmod(0o755)
    folder.release()
    assert folder.open(HEADER, resume=True, overwrite=False)
    assert modes(folder.path) == {".lock": 0o755} or not modes(folder.path)


def test_a_folder_of_something_else_keeps_its_permissions(folder):
    folder.path.mkdir(mode=0o755)
    (folder.path / "notes.txt").touch(0o644)
    assert folder.open(HEADER, resume=False, overwrite=False)
    write(folder, complete=False)
    assert folder.path.stat().st_mode & 0o777 == 0o755
    assert modes(folder.path) == {"run": 0o755, "notes.txt": 0o644, "snapshot.pt": 0o644}
