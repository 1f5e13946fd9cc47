"""`fedpace data` as a user meets it."""

import hashlib
import os
import signal
import socket
import subprocess

import pytest
from typer.testing import CliRunner

from fedpace.cli import data
from fedpace.cli.main import app
from fedpace.data.downloads import catalogue
from fedpace.data.downloads.catalogue import FileSet, KnownDataset, PublishedFile
from tests.cli.command import COMMAND
from tests.cli.command import fedpace as run
from tests.loopback import serving
from tests.shared_data import real_data

NAMES = ("mnist", "fashion-mnist", "cifar10", "spoken-digits", "shakespeare")
CONTENT = b"seven and eight"


def fedpace(root, *arguments, **variables):
    proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
    environment = proxies | {"FEDPACE_DATA": str(root), "COLUMNS": "80"} | variables
    return run(".", "data", *arguments, environment=environment)


@pytest.fixture
def nobody():
    """The address of a proxy that does not answer: no network, wherever the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    return {"http_proxy": address, "https_proxy": address}


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with serving() as site:
        yield site


@pytest.fixture
def tiny(site, monkeypatch):
    """A dataset of two files instead of the real ones, and the commands in this process."""
    files = []
    for number, name in enumerate(("one", "two")):
        content = CONTENT * (number + 1)
        site.files[f"/{name}"] = content
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        files.append(PublishedFile(name, len(content), digest, (f"{site.url}/{name}",)))
    plain = FileSet(
        "all numbers, unpacked", "tiny/plain", (PublishedFile("all", 3, "md5:" + 32 * "0"),)
    )
    official = FileSet("all numbers", "tiny", tuple(files))
    tiny = KnownDataset("tiny", "numbers", "public domain", "Nobody: Numbers, 2000", (plain, official))
    monkeypatch.setattr(catalogue, "known_datasets", lambda: {"tiny": tiny})
    return lambda *arguments: CliRunner().invoke(app, ["data", *arguments])


def test_the_list_tells_of_every_dataset_where_it_is_looked_for_and_its_licence(tmp_path):
    done = fedpace(tmp_path, "list")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"data root: {tmp_path}\n")
    for name in NAMES:
        assert f"`fedpace data fetch {name}` gets" in done.stdout
    assert done.stdout.count("missing") == 5
    assert "MIT, Copyright 2017 Zalando SE" in done.stdout
    assert "who ask to be cited" in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 80
    assert list(tmp_path.iterdir()) == []


def test_the_option_beats_the_variable(tmp_path):
    done = fedpace("/elsewhere", "list", "--root", str(tmp_path))
    assert done.stdout.startswith(f"data root: {tmp_path}\n")


def test_the_list_tells_present_from_partial(tiny, site, tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "one").write_bytes(CONTENT)
    (folder / "two.part").write_bytes(b"sev")
    listed = " ".join(tiny("list", "--root", str(tmp_path)).stdout.split())
    assert "partial 1 of 2 files in" in listed
    assert "to be resumed: two.part" in listed
    (folder / "two").write_bytes(CONTENT * 2)
    listed = " ".join(tiny("list", "--root", str(tmp_path)).stdout.split())
    assert "present all numbers, 0.0 kB in" in listed


def test_fetch_brings_all_files_and_verify_finds_them_right(tiny, site, tmp_path):
    done = tiny("fetch", "tiny", "tiny", "--root", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "tiny/two").read_bytes() == CONTENT * 2
    assert "two" in done.stderr  # the bars
    assert len(done.stdout.splitlines()) == 1
    assert len(site.asked) == 2
    done = tiny("verify", "--root", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("tiny: verified, all numbers,")
    done = tiny("fetch", "tiny", "--root", str(tmp_path))
    assert "was there already" in done.stdout
    assert len(site.asked) == 2


def test_verify_tells_each_broken_file_in_a_line_of_its_own(tiny, tmp_path):
    tiny("fetch", "tiny", "--root", str(tmp_path))
    (tmp_path / "tiny/one").write_bytes(CONTENT[::-1])
    (tmp_path / "tiny/two").write_bytes(b"")
    done = tiny("verify", "--root", str(tmp_path))
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"fedpace: {tmp_path}/tiny/one has the sha256 sum ")
    assert second.startswith(f"fedpace: {tmp_path}/tiny/two has 0 bytes, expected 30; ")
    assert second.endswith("run `fedpace data fetch tiny`")
    done = tiny("fetch", "tiny", "--root", str(tmp_path))
    assert done.exit_code == 0
    assert tiny("verify", "--root", str(tmp_path)).exit_code == 0


def test_verify_tells_what_is_absent_of_an_incomplete_dataset(tiny, tmp_path):
    tiny("fetch", "tiny", "--root", str(tmp_path))
    (tmp_path / "tiny/two").unlink()
    done = tiny("verify", "--root", str(tmp_path))
    assert done.exit_code == 2
    assert f"tiny is partial: there is no two in {tmp_path}/tiny; run" in done.stderr


def test_a_broken_file_that_fetch_does_not_replace_is_to_be_deleted(tiny, tmp_path):
    (tmp_path / "tiny/plain").mkdir(parents=True)
    (tmp_path / "tiny/plain/all").write_bytes(b"bad")
    done = tiny("fetch", "tiny", "--root", str(tmp_path))
    assert (tmp_path / "tiny/two").exists()
    assert done.exit_code == 2
    assert f"{tmp_path}/tiny/plain/all has the md5 sum" in done.stderr
    assert "delete or replace it" in done.stderr


def test_verify_says_what_is_missing_and_minds_it_only_if_it_was_named(tmp_path):
    done = fedpace(tmp_path, "verify")
    assert done.returncode == 0
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == [f"{n}: missing" for n in NAMES]
    done = fedpace(tmp_path, "verify", "cifar10")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"cifar10 is missing: there is no cifar-10-binary.tar.gz in {tmp_path}/cifar10" in line


@pytest.mark.parametrize("command", ["verify", "fetch"])
def test_an_unknown_dataset_is_refused_with_the_nearest_one(tmp_path, command):
    done = fedpace(tmp_path, command, "mnist", "fashon-mnist")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "there is no dataset 'fashon-mnist' (did you mean 'fashion-mnist'?)" in line
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_fetch_says_so_in_one_line_a_dataset(tmp_path, nobody):
    done = fedpace(tmp_path, "fetch", "mnist", "cifar10", **nobody)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert "ossci-datasets.s3.amazonaws.com (no connection: " in first
    assert "storage.googleapis.com (no connection: " in first
    assert "there seems to be no network" in first
    assert f"t10k-labels-idx1-ubyte.gz into {tmp_path}/mnist by hand" in first
    assert f"or put cifar-10-binary.tar.gz into {tmp_path}/cifar10 by hand" in second
    assert list((tmp_path / "mnist").iterdir()) == []


def test_a_root_that_is_a_file_is_one_line(tmp_path, nobody):
    (tmp_path / "file").touch()
    done = fedpace(tmp_path / "file", "fetch", "mnist", **nobody)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"fedpace: {tmp_path}/file" in done.stderr


def test_help_names_the_commands_and_the_option(tmp_path):
    done = fedpace(tmp_path, "--help")
    for command in ("list", "verify", "fetch"):
        assert command in done.stdout
        assert "--root DIR" in fedpace(tmp_path, command, "--help").stdout


def test_the_real_files_are_verified():
    done = fedpace(real_data("mnist").parent, "verify", "mnist", "fashion-mnist")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified, all images") == 2
    assert done.stderr == ""


@pytest.fixture
def proxy(site):
    """A proxy that has the real Fashion-MNIST in the place of its first source."""
    source = real_data("fashion-mnist")
    for file in catalogue.find_dataset("fashion-mnist").official.files:
        site.files[file.urls[0]] = (source / file.name).read_bytes()
    return site


def test_the_real_files_are_fetched_and_resumed(proxy, tmp_path):
    content = next(iter(proxy.files.values()))
    (tmp_path / "fashion-mnist").mkdir()
    part = tmp_path / "fashion-mnist/train-images-idx3-ubyte.gz.part"
    part.write_bytes(content[:20_000_000])
    done = fedpace(tmp_path, "fetch", "fashion-mnist", http_proxy=proxy.url, no_proxy="")
    assert done.returncode == 0, done.stderr
    assert [wanted for _, wanted in proxy.asked] == ["bytes=20000000-", None, None, None]
    assert len(list((tmp_path / "fashion-mnist").iterdir())) == 4
    assert "verified, all images" in fedpace(tmp_path, "verify", "fashion-mnist").stdout


def test_ctrl_c_says_that_what_came_is_kept(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*COMMAND, "data", "fetch", "fashion-mnist", "--root", str(tmp_path)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"http_proxy": address, "no_proxy": ""},
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; what came is kept, and the same command resumes it" in errors
    assert "Traceback" not in errors


def test_a_dataset_of_many_files_is_one_bar(tiny, monkeypatch):
    seen = []
    monkeypatch.setattr(catalogue, "SHOWN_NAMES", 1)
    dataset = catalogue.known_datasets()["tiny"]
    update = data._one_bar(dataset, lambda *told: seen.append(told))
    update("one", 10, 15)
    update("two", 30, 30)
    update("one", 15, 15)
    assert seen == [("tiny", 10, 45), ("tiny", 40, 45), ("tiny", 45, 45)]
