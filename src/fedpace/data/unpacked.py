"""Unpacked copies of large compressed files in the user's cache: xz takes seconds for what reads in one
hundredth of that.
"""

import contextlib
import hashlib
import os
import zlib
from pathlib import Path

from fedpace.core.host import write_whole

VARIABLE = "FEDPACE_CACHE"
LEAST_BYTES = 4 << 20
"""Compressed bytes below which a copy is not worth its place."""


def cache_folder() -> Path | None:
    """The folder of copies: below $FEDPACE_CACHE, else the user's cache; None: there are to be none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given).expanduser() / "unpacked" if given else None
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification has relative paths ignored.
        base = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()
    except RuntimeError:  # nobody's home
        return None
    return base / "fedpace" / "unpacked"


def find_copy(packed: bytes) -> bytes | None:
    """The contents of a compressed file, if they were kept and are whole."""
    folder = _folder_for(packed)
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_name(packed)}-*"):
            content = path.read_bytes()
            if path.name.endswith(f"-{zlib.crc32(content):08x}"):
                return content
            path.unlink()  # damaged
    return None


def keep_copy(packed: bytes, content: bytes) -> None:
    """Keep the contents of a compressed file for the next time; without room nothing is kept."""
    folder = _folder_for(packed)
    if folder is not None:
        with contextlib.suppress(OSError):
            write_whole(folder / f"{_name(packed)}-{zlib.crc32(content):08x}", content)


def _folder_for(packed: bytes) -> Path | None:
    return cache_folder() if len(packed) >= LEAST_BYTES else None


def _name(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:32]
