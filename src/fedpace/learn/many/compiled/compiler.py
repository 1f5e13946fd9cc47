"""Compiles a C file into a shared library, once for each source, compiler and processor."""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-std=gnu11")
"""No flag lets the compiler change the order of a sum."""

_MOST_S = 120.0
_OTHERS_MAY_WRITE = 0o022


class CannotCompile(Exception):
    """There is no library of the source on this machine; says why."""


def compile_library(source: Path) -> Path:
    """The library of a C file in the user's cache, made if it is not there; CannotCompile if it cannot.

    It is written under another name first, so that processes may do this at the same time.
    """
    command = [*_compiler(), *FLAGS, "-shared", "-fPIC"]
    folder = _cache()
    path = folder / f"{source.stem}-{_digest(source, command)}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as made:
            part = Path(made) / path.name
            _call([*command, "-o", str(part), str(source), "-lm"])
            part.replace(path)
    _check_ours(path)
    return path


def _compiler() -> list[str]:
    """The command of the variable CC, or the first compiler on the path."""
    asked = shlex.split(os.environ.get("CC", ""))
    names = [asked[0]] if asked else ["cc", "gcc", "clang"]
    found = next((path for path in map(shutil.which, names) if path), None)
    if os.name != "posix" or found is None:
        raise CannotCompile(f"there is no C compiler ({', '.join(names)})")
    return [found, *asked[1:]]


def _cache() -> Path:
    """The folder of libraries; nobody else may write there, since what lies there is run."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (
            (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "fedpace" / "compiled"
        )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # there may be no home
        raise CannotCompile(f"there is no cache folder: {error}") from error
    _check_ours(folder)
    return folder


def _check_ours(path: Path) -> None:
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & _OTHERS_MAY_WRITE:
        raise CannotCompile(f"{path} belongs to another user, or others may write there")


def _digest(source: Path, command: list[str]) -> str:
    """Digest of all that a library follows from: source, compiler, flags and processor."""
    compiler = Path(command[0]).resolve().stat()
    version = f"{compiler.st_size}:{compiler.st_mtime_ns}"
    parts = [source.read_text(), *command, version, platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _processor() -> str:
    """What the processor can do; a cache may lie in a home that several machines share."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    about = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(about)}))


def _call(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_MOST_S)
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines()
        said = words[0] if words else f"exit code {error.returncode}"
        raise CannotCompile(f"{command[0]} failed: {said}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"{command[0]} failed: {error}") from error
