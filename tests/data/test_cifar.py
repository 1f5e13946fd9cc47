import gzip
import io
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.cifar import (
    ARCHIVE,
    LABEL_ARRAYS,
    RECORD,
    TEST,
    TEST_ARRAY,
    TRAIN,
    TRAIN_ARRAY,
    load_cifar10,
)
from fedpace.data.dataset import Dataset
from tests.shared_data import real_data

BATCHES = (*TRAIN, TEST)
EACH = 2


def record(label: int, red: int, green: int, blue: int) -> bytes:
    """One image whose planes have one value each, but for its second pixel from the left on top."""
    planes = np.repeat(np.array([red, green, blue], np.uint8), 1024).reshape(3, 1024)
    planes[:, 1] = 255
    return bytes([label]) + planes.tobytes()


def batch(number: int) -> bytes:
    """Records of batch 0..5, all different."""
    return b"".join(record(number + one, 10 * number + one, 100, 200) for one in range(EACH))


def write_batches(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(BATCHES):
        (folder / name).write_bytes(batch(number))


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def official() -> dict[str, bytes]:
    """What is in the archive, in an order that is not that of the batches."""
    inside = {f"cifar-10-batches-bin/{name}": batch(n) for n, name in enumerate(BATCHES)}
    return {"cifar-10-batches-bin/readme.html": b"words"} | dict(reversed(inside.items()))


def xz_of(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return lzma.compress(buffer.getvalue())


def write_arrays(folder: Path, **changed: np.ndarray) -> None:
    """Three training images and one test image: red, green, blue and white."""
    pixels = np.zeros((4, 32, 32, 3), np.uint8)
    for one in range(3):
        pixels[one, ..., one] = 250
    pixels[3] = 255
    pixels[0, 0, 1] = (1, 2, 3)
    arrays = {"train": pixels[:3], "test": pixels[3:], "y_train": np.array([7, 0, 9], np.uint8)}
    arrays |= {"y_test": np.array([4], np.uint8)} | changed
    (folder / TRAIN_ARRAY).write_bytes(xz_of(arrays["train"]))
    (folder / TEST_ARRAY).write_bytes(xz_of(arrays["test"]))
    np.savez(folder / LABEL_ARRAYS, y_train=arrays["y_train"], y_test=arrays["y_test"])


def check_batches(data: Dataset) -> None:
    """All that `batch` wrote, in its order."""
    assert data.train_x.shape == (10, 3, 32, 32)
    assert data.test_x.shape == (2, 3, 32, 32)
    assert data.train_y.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert data.test_y.tolist() == [5, 6]
    assert data.train_x[:, :, 0, 0].tolist() == [
        [10 * number + one, 100, 200] for number in range(5) for one in range(EACH)
    ]
    assert data.test_x[:, :, 31, 31].tolist() == [[50, 100, 200], [51, 100, 200]]
    assert (data.train_x[:, :, 0, 1] == 255).all()
    assert (data.train_x[:, :, 1, 0] != 255).all()
    assert data.classes == 10


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_binary_files_are_read_with_red_green_and_blue_planes(tmp_path, inner):
    write_batches(tmp_path / inner)
    check_batches(load_cifar10(tmp_path, EACH))


def test_the_archive_is_read_without_being_unpacked(tmp_path):
    (tmp_path / ARCHIVE).write_bytes(gzip.compress(tar_of(official())))
    check_batches(load_cifar10(tmp_path, EACH))
    assert [path.name for path in tmp_path.iterdir()] == [ARCHIVE]


def test_arrays_are_turned_from_pixels_of_three_colours_to_three_planes(tmp_path):
    write_arrays(tmp_path)
    data = load_cifar10(tmp_path)
    assert data.train_x.shape == (3, 3, 32, 32)
    assert data.train_x[:, :, 5, 5].tolist() == [[250, 0, 0], [0, 250, 0], [0, 0, 250]]
    assert data.train_x[0, :, 0, 1].tolist() == [1, 2, 3]
    assert data.test_x.min() == 255
    assert data.train_y.tolist() == [7, 0, 9]
    assert data.test_y.tolist() == [4]


def test_what_is_read_can_be_written_to_because_torch_warns_of_read_only_arrays(tmp_path):
    write_batches(tmp_path)
    data = load_cifar10(tmp_path, EACH)
    assert data.train_x.flags.writeable
    assert data.test_x.flags.writeable


def test_all_images_are_preferred_to_a_part_of_them(tmp_path):
    write_arrays(tmp_path)
    assert len(load_cifar10(tmp_path, EACH).train_x) == 3
    (tmp_path / ARCHIVE).write_bytes(gzip.compress(tar_of(official())))
    check_batches(load_cifar10(tmp_path, EACH))
    (tmp_path / ARCHIVE).write_bytes(b"broken")
    write_batches(tmp_path)
    check_batches(load_cifar10(tmp_path, EACH))


def test_five_of_the_six_files_do_not_keep_the_archive_from_being_read(tmp_path):
    write_batches(tmp_path)
    (tmp_path / TEST).unlink()
    (tmp_path / ARCHIVE).write_bytes(gzip.compress(tar_of(official())))
    check_batches(load_cifar10(tmp_path, EACH))


def test_a_folder_without_cifar10_is_refused_with_what_was_looked_for(tmp_path):
    with pytest.raises(ConfigError, match=rf"no CIFAR-10 in {tmp_path}; expected {ARCHIVE}.*fetch"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("cut", [1, RECORD])
def test_a_binary_file_that_is_cut_off_is_named_even_at_the_end_of_a_record(tmp_path, cut):
    write_batches(tmp_path)
    (tmp_path / TRAIN[3]).write_bytes(batch(3)[:-cut])
    with pytest.raises(
        ConfigError, match=rf"data_batch_4\.bin holds {6146 - cut:,} bytes, expected 6,146 .*again"
    ):
        load_cifar10(tmp_path, EACH)


def test_a_label_that_is_no_class_is_refused_by_file(tmp_path):
    write_batches(tmp_path)
    (tmp_path / TEST).write_bytes(record(10, 0, 0, 0) * EACH)
    with pytest.raises(ConfigError, match=r"test_batch\.bin has labels from 10 to 10, expected 0 to 9"):
        load_cifar10(tmp_path, EACH)


PACKED = gzip.compress(tar_of(official()), mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>not here</html>",
        b"",
        gzip.compress(b"no tar"),
        PACKED[: len(PACKED) // 2],
        PACKED[:-4],
        PACKED[:-8] + b"\0\0\0\0" + PACKED[-4:],
    ],
    ids=["page", "empty", "no tar", "half", "no end", "wrong sum"],
)
def test_a_broken_archive_is_refused_by_name(tmp_path, content):
    (tmp_path / ARCHIVE).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{ARCHIVE} is a broken or cut off .*fetch it again"):
        load_cifar10(tmp_path, EACH)


@pytest.mark.parametrize("change", [{}, {f"cifar-10-batches-bin/{TRAIN[0]}": batch(0) * 2}])
def test_an_archive_of_something_else_is_refused_with_what_it_lacks(tmp_path, change):
    members = {n: c for n, c in official().items() if not n.endswith(TRAIN[0])} | change
    (tmp_path / ARCHIVE).write_bytes(gzip.compress(tar_of(members)))
    with pytest.raises(ConfigError, match=rf"{ARCHIVE} has no data_batch_1\.bin of 6,146 bytes"):
        load_cifar10(tmp_path, EACH)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"train": np.zeros((3, 32, 32), np.uint8)}, r"train20k.* of shape \(3, 32, 32\); expected"),
        ({"train": np.zeros((3, 3, 32, 32), np.uint8)}, r"shape \(3, 3, 32, 32\); expected"),
        ({"test": np.zeros((1, 32, 32, 3), np.float32)}, "test4k.* holds float32"),
        ({"y_train": np.array([7, 0], np.uint8)}, "train has 3 images but 2 labels"),
        ({"y_train": np.array([7.0, 0.0, 9.0])}, r"cifar10-labels\.npz has labels of float64"),
        ({"y_test": np.array([-1])}, r"cifar10-labels\.npz has labels from -1 to -1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, changed, complaint):
    write_arrays(tmp_path, **changed)
    with pytest.raises(ConfigError, match=complaint):
        load_cifar10(tmp_path)


def test_broken_array_files_are_refused_by_name(tmp_path):
    write_arrays(tmp_path)
    whole = (tmp_path / TRAIN_ARRAY).read_bytes()
    cut_inside = lzma.compress(lzma.decompress(whole)[:-1])
    for content in (whole[:-9], cut_inside, lzma.compress(b"no array"), b""):
        (tmp_path / TRAIN_ARRAY).write_bytes(content)
        with pytest.raises(ConfigError, match=rf"{TRAIN_ARRAY} (is a broken xz|holds no whole array)"):
            load_cifar10(tmp_path)
    for content in (b"", b"no zip", (tmp_path / LABEL_ARRAYS).read_bytes()[:-30]):
        (tmp_path / LABEL_ARRAYS).write_bytes(content)
        with pytest.raises(ConfigError, match=f"{LABEL_ARRAYS} is broken"):
            load_cifar10(tmp_path)
    np.savez(tmp_path / LABEL_ARRAYS, y_train=np.array([7, 0, 9]))
    with pytest.raises(ConfigError, match=f"{LABEL_ARRAYS} is broken .*y_test"):
        load_cifar10(tmp_path)
    with (tmp_path / LABEL_ARRAYS).open("wb") as file:
        np.save(file, np.array([7, 0, 9]))
    with pytest.raises(ConfigError, match=f"{LABEL_ARRAYS} is broken"):
        load_cifar10(tmp_path)


def test_pickled_objects_are_never_loaded(tmp_path):
    write_arrays(tmp_path, y_test=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ConfigError, match=f"{LABEL_ARRAYS} is broken .*allow_pickle=False"):
        load_cifar10(tmp_path)


def test_the_real_images_are_balanced_and_of_natural_colours():
    data = load_cifar10(real_data("cifar10"))
    train, test = len(data.train_y), len(data.test_y)
    assert (train, test) in {(20_000, 4_000), (50_000, 10_000)}
    assert np.bincount(data.train_y).tolist() == [train // 10] * 10
    assert np.bincount(data.test_y).tolist() == [test // 10] * 10
    # The published means of the training images are 0.491, 0.482 and 0.447.
    means = data.train_x.mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx([0.491, 0.482, 0.447], abs=0.005)
    # Neighbours along a row are alike only where planes, rows and columns are told apart rightly.
    steps = np.abs(np.diff(data.test_x.astype(np.int16), axis=3)).mean()
    assert steps < 15
