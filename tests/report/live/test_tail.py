"""Lines of a growing journal are read once, and anew where it was replaced."""

import os

from fedpace.core.journal import JOURNAL
from fedpace.report.live.tail import JournalTail


def growing(journal):
    header = journal.index(b"\n")
    return [5, header, header + 1, len(journal) // 2, len(journal) // 2 + 1, len(journal)]


def test_only_whole_new_lines_come(tmp_path, journal, grow):
    tail, ends = JournalTail(tmp_path), growing(journal)
    assert tail.read() == ([], False)
    found, fresh = b"", []
    for end in ends:
        grow(end)
        lines, anew = tail.read()
        assert all(line.endswith(b"\n") for line in lines)
        found += b"".join(lines)
        fresh.append(anew)
        assert journal[:end].startswith(found)
        assert b"\n" not in journal[len(found) : end]
    assert found == journal
    assert fresh == [True, *[False] * 5]


def test_only_new_bytes_are_read(tmp_path, journal, grow, monkeypatch):
    grow(len(journal) - 400)
    tail = JournalTail(tmp_path)
    tail.read()
    grow(len(journal))
    read = []
    opened = type(tmp_path).open

    def counting(path, mode):
        file = opened(path, mode)

        class Counted:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def __getattr__(self, name):
                return getattr(file, name)

            def read(self, size):
                data = file.read(size)
                read.append(len(data))
                return data

        return Counted()

    monkeypatch.setattr(type(tmp_path), "open", counting)
    assert tail.read().lines
    assert sum(read) < 400 + 2 * 256 + max(map(len, journal.splitlines(keepends=True)))


def test_a_large_journal_comes_in_pieces_and_a_long_line_in_one(tmp_path, journal, grow):
    grow(len(journal))
    tail, found = JournalTail(tmp_path), b""
    while lines := tail.read(64).lines:
        found += b"".join(lines)
    assert found == journal


def test_the_journal_of_a_run_that_ends_is_the_same_file(tmp_path, journal, grow):
    tail, part = JournalTail(tmp_path), grow(len(journal) // 2)
    first = tail.read()
    grow(len(journal))
    os.replace(part, tmp_path / JOURNAL)
    rest = tail.read()
    assert not rest.anew
    assert b"".join(first.lines + rest.lines) == journal


def test_a_journal_that_a_resumed_run_cuts_is_read_anew(tmp_path, journal, grow):
    tail = JournalTail(tmp_path)
    grow(len(journal))
    tail.read()
    grow(len(journal) // 2, start=len(journal) // 3)  # shorter than what was read
    lines, anew = tail.read()
    assert anew
    assert journal.startswith(b"".join(lines))


def test_a_journal_that_was_cut_and_has_grown_past_is_read_anew(tmp_path, journal, grow):
    tail, part = JournalTail(tmp_path), grow(len(journal) // 2)
    assert tail.read().lines
    other = journal.replace(b'"at":0.0', b'"at":0.125')
    part.write_bytes(other)  # the same file, with other lines
    lines, anew = tail.read()
    assert anew
    assert b"".join(lines) == other


def test_a_run_that_is_extended_is_followed_in_its_new_file(tmp_path, journal, grow):
    (tmp_path / JOURNAL).write_bytes(journal)
    tail = JournalTail(tmp_path)
    assert b"".join(tail.read().lines) == journal
    grow(len(journal) // 2)
    assert tail.read().anew


def test_nothing_is_written_or_locked(tmp_path, journal, grow):
    part = grow(len(journal) // 2)
    before = {path: path.stat() for path in (tmp_path, part)}
    part.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert JournalTail(tmp_path).read().lines
    finally:
        tmp_path.chmod(0o700)
    assert [path.name for path in tmp_path.iterdir()] == [part.name]
    assert {path: path.stat().st_mtime_ns for path in before} == {
        path: stat.st_mtime_ns for path, stat in before.items()
    }
