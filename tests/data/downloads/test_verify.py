import hashlib
from pathlib import Path

import pytest

from fedpace.data.downloads.catalogue import FileSet, KnownDataset, PublishedFile
from fedpace.data.downloads.verify import inspect_dataset, partial_path

CONTENTS = {"a": b"first", "b": b"second", "whole": b"both of them", "some": b"a few"}


def form(*names: str, folder: str = "set", whole: bool = True, urls: tuple[str, ...] = ()) -> FileSet:
    files = tuple(
        PublishedFile(
            name, len(CONTENTS[name]), f"sha256:{hashlib.sha256(CONTENTS[name]).hexdigest()}", urls
        )
        for name in names
    )
    return FileSet("it", folder, files, whole)


INNER = form("a", "b", folder="set/inner")
OUTER = form("a", "b")
OFFICIAL = form("whole", urls=("http://nowhere/whole",))
SOME = form("some", whole=False)
SET = KnownDataset("set", "", "", "", (INNER, OUTER, OFFICIAL, SOME))


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENTS[path.name])


@pytest.mark.parametrize(
    ("names", "first"),
    [
        (["some"], SOME),
        (["whole", "some"], OFFICIAL),
        (["a", "b", "whole"], OUTER),
        (["inner/a", "inner/b", "a", "b"], INNER),
    ],
)
def test_the_first_complete_form_is_the_one_that_counts(tmp_path, names, first):
    put(tmp_path, *names)
    found = inspect_dataset(SET, tmp_path)
    assert found.form is first
    assert found.state == "present"
    assert found.folder == tmp_path / first.folder


def test_where_nothing_is_the_official_form_is_what_lacks(tmp_path):
    found = inspect_dataset(SET, tmp_path)
    assert found.state == "missing"
    assert found.lacking == [tmp_path / "set/whole"]


def test_of_several_incomplete_forms_the_one_with_most_files_is_nearest(tmp_path):
    put(tmp_path, "a")
    found = inspect_dataset(SET, tmp_path)
    assert found.state == "partial"
    assert found.lacking == [tmp_path / "set/b"]


def test_files_of_two_folders_do_not_make_one_form(tmp_path):
    put(tmp_path, "inner/a", "b")
    assert inspect_dataset(SET, tmp_path).form is None


def test_a_wrong_size_and_a_wrong_sum_are_told_with_what_was_expected(tmp_path):
    put(tmp_path, "a", "b")
    (tmp_path / "set/a").write_bytes(b"fir")
    (tmp_path / "set/b").write_bytes(b"secind")
    found = inspect_dataset(SET, tmp_path)
    assert found.form is None
    assert found.state == "partial"
    assert found.broken[tmp_path / "set/a"] == "has 3 bytes, expected 5"
    sums = [hashlib.sha256(content).hexdigest() for content in (b"secind", b"second")]
    assert found.broken[tmp_path / "set/b"] == f"has the sha256 sum {sums[0]}, expected {sums[1]}"


def test_without_sums_only_the_size_counts(tmp_path):
    put(tmp_path, "a", "b")
    (tmp_path / "set/b").write_bytes(b"secind")
    assert inspect_dataset(SET, tmp_path, sums=False).form is OUTER
    (tmp_path / "set/b").write_bytes(b"sec")
    assert inspect_dataset(SET, tmp_path, sums=False).form is None


def test_a_download_that_broke_off_makes_a_dataset_partial_unless_it_is_empty(tmp_path):
    part = partial_path(tmp_path / "set/whole")
    part.parent.mkdir()
    part.touch()
    assert inspect_dataset(SET, tmp_path).state == "missing"
    part.write_bytes(b"both")
    found = inspect_dataset(SET, tmp_path)
    assert found.state == "partial"
    assert found.unfinished == (part,)


def test_progress_ends_with_all_bytes_of_each_file(tmp_path):
    put(tmp_path, "a", "b")
    seen = {}
    inspect_dataset(
        SET, tmp_path, progress=lambda name, done, total: seen.update({name: (done, total)})
    )
    assert seen == {"a": (5, 5), "b": (6, 6)}
