"""Random generators made from keys, so that no result depends on the order of drawing."""

import hashlib

import numpy as np


def keyed_entropy(seed: int, purpose: str, *keys: int) -> int:
    """128 bits that are the same on every machine for the same (seed, purpose, keys)."""
    text = ":".join([f"{seed}:{purpose}", *map(str, keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A generator of its own for `purpose` and `keys` (client, counter, ...)."""
    return np.random.Generator(np.random.PCG64DXSM(keyed_entropy(seed, purpose, *keys)))


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """A seed that `torch.Generator.manual_seed` takes (63 bits, not negative)."""
    return keyed_entropy(seed, purpose, *keys) & (2**63 - 1)
