"""Files that may be compressed by gzip or xz; their first bytes tell which."""

import gzip
import zlib
from importlib.resources.abc import Traversable

from fedpace.core.errors import ConfigError
from fedpace.data.unpacked import find_copy, keep_copy

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


def read_plain(path: Traversable) -> bytes:
    """The contents of a file without their compression, if they have one."""
    raw = read_raw(path)
    try:
        if raw.startswith(_GZIP):
            return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path} is a broken gzip file ({error}); fetch it again") from error
    return _unxz(path, raw) if raw.startswith(_XZ) else raw


def read_raw(path: Traversable) -> bytes:
    """The contents of a file as they are on the disk."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Traversable, error: OSError) -> ConfigError:
    """The error for a file that the system does not let us read."""
    return ConfigError(
        f"{path} cannot be read: {error.strerror}; name a file that is there and may be read"
    )


def _unxz(path: Traversable, raw: bytes) -> bytes:
    # Imported here because a Python built without liblzma has no lzma, and gzip files need none.
    try:
        import lzma
    except ImportError as error:
        raise ConfigError(
            f"{path} is an xz file, but this Python was built without lzma; "
            "use a Python with it (build Python where liblzma's headers are installed)"
        ) from error
    content = find_copy(raw)
    if content is not None:
        return content
    try:
        content = lzma.decompress(raw)
    except lzma.LZMAError as error:
        raise ConfigError(f"{path} is a broken xz file ({error}); fetch it again") from error
    keep_copy(raw, content)
    return content
