"""CIFAR-10: the six binary files, their archive, or a part of the images as arrays.

A binary file is a row of records, each one byte of label and 3,072 bytes of pixels: red, green and blue
planes of 32x32.
"""

import gzip
import io
import tarfile
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_plain, read_raw, unreadable
from fedpace.data.dataset import Dataset, Images, Labels

CLASSES = 10
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
ARCHIVE = "cifar-10-binary.tar.gz"
TRAIN_ARRAY, TEST_ARRAY, LABEL_ARRAYS = (
    "cifar10-train20k.npy.xz",
    "cifar10-test4k.npy.xz",
    "cifar10-labels.npz",
)
_AGAIN = "fetch it again (fedpace data fetch cifar10)"


def load_cifar10(folder: Path, records: int = 10_000) -> Dataset:
    """The images of a folder, all of them if they are there, else the part in the array files.

    records: images in each of the six binary files.
    """
    for inner in (folder / "cifar-10-batches-bin", folder):
        if all((inner / name).is_file() for name in (*TRAIN, TEST)):
            return _from_records({n: read_raw(inner / n) for n in (*TRAIN, TEST)}, inner, records)
    if (folder / ARCHIVE).is_file():
        return _from_records(_unpacked(folder / ARCHIVE, records), folder / ARCHIVE, records)
    if all((folder / name).is_file() for name in (TRAIN_ARRAY, TEST_ARRAY, LABEL_ARRAYS)):
        return _from_arrays(folder)
    raise ConfigError(
        f"there is no CIFAR-10 in {folder}; expected {ARCHIVE}, the six files in it, or {TRAIN_ARRAY}, "
        f"{TEST_ARRAY} and {LABEL_ARRAYS}; run `fedpace data fetch cifar10`"
    )


def _from_records(raw: dict[str, bytes], where: Path, records: int) -> Dataset:
    parts = {name: _split(raw[name], where / name, records) for name in (*TRAIN, TEST)}
    return Dataset(
        train_x=np.concatenate([parts[name][0] for name in TRAIN]),
        train_y=np.concatenate([parts[name][1] for name in TRAIN]),
        test_x=parts[TEST][0].copy(),  # the bytes below it cannot be written to
        test_y=parts[TEST][1],
        classes=CLASSES,
    )


def _split(raw: bytes, path: Path, records: int) -> tuple[Images, Labels]:
    if len(raw) != records * RECORD:
        raise ConfigError(
            f"{path} holds {len(raw):,} bytes, expected {records * RECORD:,} "
            f"({records:,} records of {RECORD:,}); {_AGAIN}"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(records, RECORD)
    return rows[:, 1:].reshape(-1, *SHAPE), _labels(rows[:, 0], path)


def _unpacked(path: Path, records: int) -> dict[str, bytes]:
    """The six files of the archive; nothing is written to the disk."""
    found: dict[str, bytes] = {}
    try:
        stream = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        with stream, gzip.open(stream) as packed:
            with tarfile.open(fileobj=packed, mode="r|") as archive:
                for member in archive:
                    name = member.name.rpartition("/")[2]
                    # One of another size is left out, so that a forged one cannot fill the memory.
                    if name in (*TRAIN, TEST) and member.isfile() and member.size == records * RECORD:
                        content = archive.extractfile(member)
                        found[name] = b"" if content is None else content.read()
            while packed.read(1 << 20):  # gzip checks its own sum at the end
                pass
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise ConfigError(f"{path} is a broken or cut off .tar.gz ({error}); {_AGAIN}") from error
    missing = [name for name in (*TRAIN, TEST) if name not in found]
    if missing:
        raise ConfigError(
            f"{path} has no {', '.join(missing)} of {records * RECORD:,} bytes; expected the binary "
            f"version of CIFAR-10; {_AGAIN}"
        )
    return found


def _from_arrays(folder: Path) -> Dataset:
    labels = folder / LABEL_ARRAYS
    try:
        with np.load(io.BytesIO(read_raw(labels)), allow_pickle=False) as arrays:
            train_y, test_y = arrays["y_train"], arrays["y_test"]
    except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile, zlib.error) as error:
        raise ConfigError(
            f"{labels} is broken ({error}); expected the arrays y_train and y_test in a .npz; put it "
            "there again"
        ) from error
    return Dataset(
        train_x=_images(folder / TRAIN_ARRAY),
        train_y=_labels(train_y, labels),
        test_x=_images(folder / TEST_ARRAY),
        test_y=_labels(test_y, labels),
        classes=CLASSES,
    )


def _images(path: Path) -> Images:
    try:
        array = np.load(io.BytesIO(read_plain(path)), allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"{path} holds no whole array ({error}); put it there again") from error
    height, width = SHAPE[1:]
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[1:] != (height, width, 3):
        raise ConfigError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected uint8 of shape "
            f"(N, {height}, {width}, 3); put it there again"
        )
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2))


def _labels(values: npt.NDArray[np.generic], path: Path) -> Labels:
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise ConfigError(
            f"{path} has labels of {values.dtype} and shape {values.shape}; expected integers in a row"
        )
    labels = values.astype(np.int64)
    if labels.size and not 0 <= labels.min() <= labels.max() < CLASSES:
        raise ConfigError(
            f"{path} has labels from {labels.min()} to {labels.max()}, expected 0 to {CLASSES - 1}; "
            "the file is broken, put it there again"
        )
    return labels
