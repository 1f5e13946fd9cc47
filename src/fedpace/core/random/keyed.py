"""Random generators made from keys, so that no result depends on the order of drawing."""

import hashlib
from collections.abc import Iterable

import numpy as np


class Digests:
    """128 bits that are the same on every machine for the same (seed, purpose, keys)."""

    __slots__ = ("_begun",)

    def __init__(self, seed: int, purpose: str) -> None:
        self._begun = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=16)

    def of(self, *keys: int) -> bytes:
        digest = self._begun.copy()
        for key in keys:
            digest.update(f":{key}".encode())
        return digest.digest()

    def of_each(self, numbers: Iterable[int], *keys: int) -> bytes:
        """`of(number, *keys)` of each number, one after the other."""
        begun, rest = self._begun, "".join(f":{key}" for key in keys).encode()
        digests = []
        for number in numbers:
            digest = begun.copy()
            digest.update(b":%d%b" % (number, rest))
            digests.append(digest.digest())
        return b"".join(digests)


def keyed_entropy(seed: int, purpose: str, *keys: int) -> int:
    """The digest as a number."""
    return int.from_bytes(Digests(seed, purpose).of(*keys), "little")


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A generator of its own for `purpose` and `keys` (client, counter, ...)."""
    return np.random.Generator(np.random.PCG64DXSM(keyed_entropy(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """A seed that `torch.Generator.manual_seed` takes (63 bits, not negative)."""
    return keyed_entropy(seed, purpose, *keys) & (2**63 - 1)
