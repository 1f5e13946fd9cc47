import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.idx import load_idx, read_idx

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_set(folder: Path, suffix: str = "") -> None:
    pack = gzip.compress if suffix else bytes
    for part, count in (("train", 2), ("t10k", 1)):
        images, labels = IMAGES[:count], np.array([3, 1], dtype=np.uint8)[:count]
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(labels)))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_reads_plain_gzip_and_xz_files_alike(tmp_path: Path, pack) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(idx(IMAGES)))
    assert np.array_equal(read_idx(path), IMAGES)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(0x09, np.int8), (0x0B, np.int16), (0x0C, np.int32), (0x0D, np.float32), (0x0E, np.float64)],
)
def test_numbers_of_every_type_come_back_in_native_byte_order(tmp_path: Path, code: int, dtype) -> None:
    path = tmp_path / "numbers"
    numbers = np.array([-5, 0, 100], dtype=dtype)
    path.write_bytes(idx(numbers, code))
    read = read_idx(path)
    assert read.dtype == numbers.dtype
    assert read.dtype.isnative
    assert np.array_equal(read, numbers)


def test_what_is_read_can_be_written_to_because_torch_warns_of_read_only_arrays(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(idx(IMAGES))
    assert read_idx(path).flags.writeable


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "nothing, which is no IDX magic number"),
        (b"\0\0", "no IDX magic number"),
        (b"PNG!data", "50 4e 47 21, which is no IDX magic number"),
        (b"\0\0\x07\x01\0\0\0\0", "no IDX magic number"),
        (b"\0\0\x08\0", "no IDX magic number"),
        (b"\0\0\x08\x03\0\0", "ends within its header: 6 bytes, expected 16"),
        (idx(IMAGES)[:-1], r"23 bytes of data, but its header announces 24 \(shape \(2, 3, 4\)\)"),
        (idx(IMAGES) + b"x", "25 bytes of data, but its header announces 24"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-9], "broken gzip file"),
        (gzip.compress(idx(IMAGES), mtime=0)[:12] + b"\xff" * 20, "broken gzip file"),
        (lzma.compress(idx(IMAGES))[:-9], "broken xz file"),
    ],
)
def test_a_broken_file_is_refused_by_name_and_reason(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "broken-file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"broken-file .*{complaint}"):
        read_idx(path)


def test_a_missing_file_and_a_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone cannot be read"):
        read_idx(tmp_path / "gone")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_idx(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_folder_of_four_files_becomes_a_dataset(tmp_path: Path, suffix: str) -> None:
    write_set(tmp_path, suffix)
    data = load_idx(tmp_path)
    assert data.train_x.shape == (2, 1, 3, 4)
    assert data.test_x.shape == (1, 1, 3, 4)
    assert data.train_y.tolist() == [3, 1]
    assert data.train_y.dtype == np.int64
    assert data.classes == 4


def test_a_missing_member_of_the_four_is_named_with_its_folder(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(ConfigError, match=rf"t10k-images-idx3-ubyte .* is not in {tmp_path}"):
        load_idx(tmp_path)


def test_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    write_set(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES[0]))
    with pytest.raises(ConfigError, match=r"uint8 of shape \(3, 4\); images are"):
        load_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(2, np.float32), 0x0D))
    with pytest.raises(ConfigError, match=r"float32 of shape \(2,\); labels are"):
        load_idx(tmp_path)
