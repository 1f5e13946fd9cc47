"""Libraries are compiled once, into a folder that nobody else can write to."""

import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from fedpace.learn.many.compiled.compiler import CannotCompile, compile_library

SMALL = "int fedpace_small(void) { return 4; }\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    path = tmp_path / "small.c"
    path.write_text(SMALL)
    return path


@pytest.fixture
def compiler(source):
    try:
        compile_library(source)
    except CannotCompile as reason:
        pytest.skip(str(reason))


@pytest.mark.usefixtures("compiler")
def test_a_library_is_made_once_and_anew_for_another_source(source, tmp_path):
    first = compile_library(source)
    made = first.stat().st_mtime_ns
    assert compile_library(source) == first
    assert first.stat().st_mtime_ns == made
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    source.write_text(SMALL.replace("4", "5"))
    assert compile_library(source) != first
    assert not list(first.parent.glob("making-*"))


@pytest.mark.usefixtures("compiler")
def test_several_may_make_it_at_the_same_time(source):
    source.write_text(SMALL.replace("4", "6"))
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(compile_library, [source] * 4))
    assert [path.exists() for path in paths] == [True]


@pytest.mark.parametrize("command", ["false", "no-such-compiler-here"])
def test_a_compiler_that_fails_or_is_not_there_is_told(source, monkeypatch, command):
    monkeypatch.setenv("CC", command)
    with pytest.raises(CannotCompile, match=r"failed: exit code 1|no C compiler \(no-such"):
        compile_library(source)


@pytest.mark.usefixtures("compiler")
def test_a_source_that_does_not_compile_is_told_by_its_first_line(source):
    source.write_text("int broken(void) { return nothing; }\n")
    with pytest.raises(CannotCompile, match=r"failed: .*small\.c"):
        compile_library(source)


@pytest.mark.usefixtures("compiler")
def test_a_folder_that_others_may_write_to_is_not_trusted(source):
    compile_library(source).parent.chmod(0o777)
    with pytest.raises(CannotCompile, match="others may write there"):
        compile_library(source)
