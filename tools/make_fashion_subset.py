"""Make the Fashion-MNIST subset that the package ships.

    python tools/make_fashion_subset.py SOURCE_FOLDER [--out FOLDER]

SOURCE_FOLDER holds the four official IDX files, with or without .gz. The draw uses no random
generator, so that no version of any library can change it: see `draw`.
"""

import argparse
import hashlib
import lzma
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedpace.core.host import write_whole
from fedpace.data.idx import load_idx

CLASSES = 10
SHIPPED = Path(__file__).resolve().parents[1] / "src" / "fedpace" / "data" / "files"


def rank(part: str, row: int) -> bytes:
    """The place of a source row in the draw: rows of lower rank are taken first."""
    return hashlib.sha256(f"fedpace fashion-mnist {part} {row}".encode()).digest()


def draw(part: str, labels: npt.NDArray[np.int64], per_class: int) -> list[int]:
    """Source rows in shipped order: `per_class` of lowest rank a class, in blocks of one a class.

    Block j holds the j-th ranked row of every class, ordered by the digest read backwards: by rank
    itself the order of the classes would hardly change from one block to the next.
    """
    columns = []
    for label in range(CLASSES):
        rows = sorted(np.flatnonzero(labels == label).tolist(), key=lambda row: rank(part, row))
        if len(rows) < per_class:
            raise SystemExit(f"class {label} of {part} has {len(rows)} images, {per_class} are needed")
        columns.append(rows[:per_class])
    blocks = zip(*columns, strict=True)
    return [row for block in blocks for row in sorted(block, key=lambda row: rank(part, row)[::-1])]


def idx(array: npt.NDArray[np.uint8]) -> bytes:
    """An IDX file of bytes."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 0x08, array.ndim, *array.shape) + array.tobytes()


def packed(content: bytes) -> bytes:
    """Compressed by xz."""
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def build(source: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the shipped files, before they are compressed."""
    full = load_idx(source)
    parts = (("train", full.train_x, full.train_y, 1200), ("test", full.test_x, full.test_y, 200))
    for part, x, y, per_class in parts:
        rows = draw(part, y, per_class)
        yield f"fashion-{part}-images.idx.xz", idx(x[rows, 0])
        yield f"fashion-{part}-labels.idx.xz", idx(y[rows].astype(np.uint8))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Make the Fashion-MNIST subset that is shipped.")
    parser.add_argument("source", type=Path, help="folder with the four official IDX files")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="where the files go")
    options = parser.parse_args(arguments)
    for name, plain in build(options.source):
        content = packed(plain)
        write_whole(options.out / name, content)
        sys.stdout.write(f"{name} {len(content)} {hashlib.sha256(content).hexdigest()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
