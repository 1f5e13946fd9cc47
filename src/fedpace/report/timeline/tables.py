"""Tables that grow record by record while a journal is read, and are numpy arrays afterwards.

A record is packed by `struct` into a bytearray: one call a message, and a tenth of the memory that
Python objects would take.
"""

import struct
from typing import Any

import numpy as np

_FORMATS = {"q": "<i8", "i": "<i4", "d": "<f8", "B": "u1"}


class RecordTable:
    """Records of one kind. fields: names with the struct format of each, such as {"at": "d"}."""

    def __init__(self, **fields: str) -> None:
        self._dtype = np.dtype([(name, _FORMATS[kind]) for name, kind in fields.items()])
        self._packer = struct.Struct("<" + "".join(fields.values()))
        self._data = bytearray()
        self.count = 0

    def add(self, *values: Any) -> int:
        """Append a record; its row."""
        self._data += self._packer.pack(*values)
        self.count += 1
        return self.count - 1

    def array(self) -> np.ndarray:
        """The records so far, by the names of their fields."""
        return np.frombuffer(bytes(self._data), dtype=self._dtype)
