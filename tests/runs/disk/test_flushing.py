"""Whoever reads a journal along sees lines within a second or so."""

from fedpace.core.events import Joined
from fedpace.core.journal import JOURNAL, Journal, part_path
from fedpace.core.run import Standing
from fedpace.runs.disk.flushing import JournalFlusher
from tests.core.test_journal import HEADER


def test_lines_do_not_wait_for_more_than_a_second(tmp_path):
    now = [0.0]
    with Journal(tmp_path / JOURNAL, HEADER) as journal:
        watch, file = JournalFlusher(journal, lambda: now[0]), part_path(tmp_path / JOURNAL)
        journal.write(Joined(0.0, 0, samples=10))
        watch(Standing(0.0, 0, None))
        assert len(file.read_bytes().splitlines()) == 1
        now[0] = 1.0
        watch(Standing(0.0, 0, None))
        assert len(file.read_bytes().splitlines()) == 2
