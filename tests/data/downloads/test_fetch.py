import errno
import hashlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fedpace.data.downloads import fetch as fetching
from fedpace.data.downloads.catalogue import FileSet, KnownDataset, PublishedFile
from fedpace.data.downloads.fetch import FetchError, fetch
from tests.loopback import Site, serving

CONTENT = bytes(range(256)) * 40
SUM = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    with serving() as site:
        site.files["/good/file"] = CONTENT
        yield site


@pytest.fixture
def place(tmp_path):
    """Where the file is to lie; its folder is there already."""
    (tmp_path / "set").mkdir()
    return tmp_path / "set/file"


def dataset(*urls: str, name: str = "file") -> KnownDataset:
    return KnownDataset(
        "set",
        "",
        "",
        "",
        (FileSet("it", "set", (PublishedFile(name, len(CONTENT), SUM, tuple(urls)),)),),
    )


def part(place):
    return place.with_name("file.part")


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_a_file_is_fetched_whole_and_nothing_else_is_left(site, tmp_path):
    assert fetch(dataset(f"{site.url}/good/file"), tmp_path / "new/place") == (
        tmp_path / "new/place/set/file",
    )
    assert (tmp_path / "new/place/set/file").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "new/place/set") == ["file"]
    assert site.asked == [("/good/file", None)]


def test_what_is_there_and_right_is_not_fetched_again(site, tmp_path, place):
    place.write_bytes(CONTENT)
    assert fetch(dataset(f"{site.url}/good/file"), tmp_path) == ()
    assert site.asked == []


def test_a_file_that_is_there_but_broken_is_replaced(site, tmp_path, place):
    place.write_bytes(CONTENT[:-1] + b"x")
    assert fetch(dataset(f"{site.url}/good/file"), tmp_path) == (place,)
    assert place.read_bytes() == CONTENT


def test_only_the_rest_of_a_part_is_asked_for(site, tmp_path, place):
    part(place).write_bytes(CONTENT[:1000])
    seen = []
    fetch(
        dataset(f"{site.url}/good/file"), tmp_path, lambda name, done, total: seen.append((done, total))
    )
    assert site.asked == [("/good/file", "bytes=1000-")]
    assert place.read_bytes() == CONTENT
    assert not part(place).exists()
    assert seen[0][0] > 1000
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_part_that_is_whole_and_right_needs_no_network(site, tmp_path, place):
    part(place).write_bytes(CONTENT)
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert site.asked == []
    assert place.read_bytes() == CONTENT


def test_a_server_without_ranges_starts_again_from_the_beginning(site, tmp_path, place):
    site.ranges = False
    part(place).write_bytes(b"?" * 1000)
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert place.read_bytes() == CONTENT
    assert len(site.asked) == 1


@pytest.mark.parametrize("wrong", [b"?" * 1000, b"?" * len(CONTENT), b"?" * (len(CONTENT) + 1)])
def test_a_part_that_is_wrong_or_too_long_is_thrown_away_and_fetched_anew(site, tmp_path, place, wrong):
    part(place).write_bytes(wrong)
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert place.read_bytes() == CONTENT
    assert site.asked[-1] == ("/good/file", None)


@pytest.mark.parametrize("shift", [-1, 1, len(CONTENT)])
def test_a_range_other_than_the_one_asked_for_is_not_used(site, tmp_path, place, shift):
    site.shift = shift
    part(place).write_bytes(CONTENT[:1000])
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert place.read_bytes() == CONTENT
    assert site.asked == [("/good/file", "bytes=1000-"), ("/good/file", None)]


def test_a_connection_that_breaks_off_is_taken_up_again_where_it_broke(site, tmp_path, place):
    site.breaks = [3000, 2000]
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert place.read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [None, "bytes=3000-", "bytes=5000-"]


def test_a_server_that_always_breaks_off_is_given_up_and_what_came_is_kept(site, tmp_path, place):
    site.breaks = [10] * 1000
    with pytest.raises(FetchError, match=r"broke off after 50 of 10,240 bytes.* kept \(50 of 10,240"):
        fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert len(site.asked) == fetching.ATTEMPTS
    assert part(place).read_bytes() == CONTENT[:50]


def test_a_server_that_breaks_off_at_once_is_asked_once(site, tmp_path, place):
    site.breaks = [0] * 1000
    with pytest.raises(FetchError, match="broke off after 0 of 10,240 bytes"):
        fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert len(site.asked) == 1
    assert os.listdir(place.parent) == []


def test_a_file_with_another_sum_is_refused_and_leaves_nothing(site, tmp_path, place):
    site.files["/good/file"] = b"?" * len(CONTENT)
    with pytest.raises(FetchError, match="it sent a file with another sum"):
        fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert os.listdir(place.parent) == []
    assert len(site.asked) == 1


@pytest.mark.parametrize("size", [100, len(CONTENT) + 1])
def test_a_page_of_another_size_is_refused_and_the_part_is_kept(site, tmp_path, place, size):
    site.ranges = False
    site.files["/good/file"] = b"?" * size
    part(place).write_bytes(CONTENT[:1000])
    with pytest.raises(FetchError, match=f"it has a file of {size:,} bytes, not 10,240"):
        fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert part(place).read_bytes() == CONTENT[:1000]
    assert not place.exists()


def test_more_bytes_than_expected_are_refused_where_no_length_was_given(site, tmp_path, place):
    site.sends_length = False
    site.files["/good/file"] = CONTENT + b"?"
    with pytest.raises(FetchError, match="it sent more than 10,240 bytes"):
        fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert os.listdir(place.parent) == []


def test_the_next_source_is_asked_when_the_first_fails(site, tmp_path, place):
    urls = f"http://127.0.0.1:{closed_port()}/file", f"{site.url}/gone", f"{site.url}/good/file"
    fetch(dataset(*urls), tmp_path)
    assert place.read_bytes() == CONTENT


def test_the_next_source_goes_on_where_the_first_broke_off(site, tmp_path, place):
    site.files["/other/file"] = CONTENT
    site.breaks = [4000, 0]
    fetch(dataset(f"{site.url}/good/file", f"{site.url}/other/file"), tmp_path)
    assert site.asked[-1] == ("/other/file", "bytes=4000-")
    assert place.read_bytes() == CONTENT


def test_without_a_connection_the_error_says_so_and_how_to_go_on(site, tmp_path, place):
    part(place).write_bytes(CONTENT[:1000])
    port = closed_port()
    with pytest.raises(FetchError) as caught:
        fetch(dataset(f"http://127.0.0.1:{port}/file"), tmp_path)
    for words in (
        f"file could not be fetched from 127.0.0.1:{port} (no connection: Connection refused)",
        "there seems to be no network",
        "what came is kept (1,000 of 10,240 bytes) and the same command resumes it",
        f"or put file into {place.parent} by hand",
    ):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert part(place).read_bytes() == CONTENT[:1000]


def test_a_host_without_an_address_is_no_network_either(site, tmp_path, monkeypatch):
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(FetchError, match=r"nowhere\.invalid \(no connection: .*seems to be no network"):
        fetch(dataset("http://nowhere.invalid/file"), tmp_path)


def test_a_page_that_does_not_exist_is_told_by_its_status_and_is_no_lack_of_network(site, tmp_path):
    with pytest.raises(FetchError, match=r"\(HTTP 404 Not Found\)") as caught:
        fetch(dataset(f"{site.url}/gone"), tmp_path)
    assert "no network" not in str(caught.value)


def test_all_files_that_are_still_missing_are_named(site, tmp_path):
    good = dataset(f"{site.url}/good/file").official
    more = [replace(good.files[0], name=name, urls=(f"{site.url}/gone",)) for name in ("x", "y")]
    several = KnownDataset("set", "", "", "", (replace(good, files=(*good.files, *more)),))
    with pytest.raises(FetchError, match=f"or put x, y into {tmp_path}/set by hand"):
        fetch(several, tmp_path)
    assert os.listdir(tmp_path / "set") == ["file"]


def test_of_several_files_only_those_that_are_missing_are_fetched(site, tmp_path, place):
    good = dataset(f"{site.url}/good/file").official
    more = replace(good.files[0], name="more")
    place.write_bytes(CONTENT)
    several = KnownDataset("set", "", "", "", (replace(good, files=(*good.files, more)),))
    assert fetch(several, tmp_path) == (place.with_name("more"),)
    assert len(site.asked) == 1


def test_a_part_of_the_samples_does_not_keep_the_whole_from_being_fetched(site, tmp_path, place):
    whole = dataset(f"{site.url}/good/file").official
    some = FileSet("some", "set", (replace(whole.files[0], name="some", urls=()),), whole=False)
    place.with_name("some").write_bytes(CONTENT)
    assert fetch(KnownDataset("set", "", "", "", (whole, some)), tmp_path) == (place,)


def test_the_whole_in_another_form_need_not_be_fetched(site, tmp_path, place):
    official = dataset(f"{site.url}/good/file").official
    other = FileSet("unpacked", "set", (replace(official.files[0], name="other", urls=()),))
    place.with_name("other").write_bytes(CONTENT)
    assert fetch(KnownDataset("set", "", "", "", (other, official)), tmp_path) == ()


def test_a_full_disk_is_an_error_of_the_part_which_is_kept(site, tmp_path, place):
    resource = pytest.importorskip("resource")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            fetch(dataset(f"{site.url}/good/file"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(part(place))
    assert part(place).read_bytes() == CONTENT[:2000]
    fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert site.asked[-1] == ("/good/file", "bytes=2000-")
    assert place.read_bytes() == CONTENT


def test_ctrl_c_keeps_what_came(site, tmp_path, place, monkeypatch):
    monkeypatch.setattr(fetching, "PIECE", 4096)

    def stop(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(dataset(f"{site.url}/good/file"), tmp_path, stop)
    assert part(place).read_bytes() == CONTENT[:4096]
    assert not place.exists()


def test_two_fetches_of_one_file_do_not_write_into_each_other(site, tmp_path, place):
    fcntl = pytest.importorskip("fcntl")
    with part(place).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(FetchError, match=r"file\.part is being written by another fetch"):
            fetch(dataset(f"{site.url}/good/file"), tmp_path)
    assert site.asked == []
