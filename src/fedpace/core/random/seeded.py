"""Generators for many keys at once: what numpy makes of a seed is computed for all of them together.

numpy takes 16 us to make a generator from a seed, nearly all of it in Python. Its recipe is public and
fixed for good, since results of seeds hang on it: SeedSequence mixes four words of 32 bits (O'Neill's
seed_seq_fe), and PCG64DXSM begins with the 256 bits that come of it. Here the mixing runs over arrays,
and one generator is moved from state to state. `tests` hold that numpy's own gives the same numbers.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fedpace.core.random.keyed import keyed_entropy

_Words = npt.NDArray[np.uint32]
_WORDS = 4
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)
_STEP = 0x2360ED051FC65DA44385DF649FCCF645
"""Multiplier of the generator that PCG64 and PCG64DXSM are seeded with."""
_BITS_128 = (1 << 128) - 1


def generators(seed: int, purpose: str, keys: Iterable[Sequence[int]]) -> Iterator[np.random.Generator]:
    """Generators for each of `keys`, as `generator` makes them; each is good until the next comes."""
    entropies = [keyed_entropy(seed, purpose, *one) for one in keys]
    if not entropies:
        return
    bits = np.random.PCG64DXSM(0)
    draw, state = np.random.Generator(bits), bits.state
    for number, odd in _states(entropies):
        state["state"] = {"state": number, "inc": odd}
        bits.state = state
        yield draw


def _states(entropies: Sequence[int]) -> Iterator[tuple[int, int]]:
    """States and increments with which PCG64DXSM begins from each of some numbers of 128 bits."""
    raw = b"".join(one.to_bytes(16, "little") for one in entropies)
    words = _mixed(np.frombuffer(raw, "<u4").reshape(-1, _WORDS).T.astype(np.uint32))
    pairs = words.T.astype("<u4", order="C").view("<u8").tolist()
    for high, low, inc_high, inc_low in pairs:
        odd = (((inc_high << 64 | inc_low) << 1) | 1) & _BITS_128
        yield ((odd + (high << 64 | low)) * _STEP + odd) & _BITS_128, odd


def _mixed(pool: _Words) -> _Words:
    """SeedSequence's 8 words for columns of 4: [8, columns]."""
    pool = _hashed(pool, _FIRST)
    for source, others in enumerate(_OTHERS):
        mixed: _Words = pool[others] * _LEFT - _hashed(pool[source], _BETWEEN[source]) * _RIGHT
        pool[others] = mixed ^ (mixed >> _HALF)
    return _hashed(np.concatenate([pool, pool]), _LAST)


def _hashed(words: _Words, consts: tuple[_Words, _Words]) -> _Words:
    """Words after a round of hashing, each by constants of its own."""
    mixed: _Words = (words ^ consts[0]) * consts[1]
    return mixed ^ (mixed >> _HALF)


def _constants(first: int, times: int, count: int) -> tuple[_Words, _Words]:
    """Constants of `count` rounds of hashing that follow each other, before and after each."""
    found = [first]
    for _ in range(count):
        found.append(found[-1] * times & 0xFFFFFFFF)
    column = np.array(found, dtype=np.uint32)[:, None]
    return column[:-1], column[1:]


_A, _LAST = _constants(0x43B0D7E5, 0x931E8875, 16), _constants(0x8B51F9DD, 0x58F38DED, 8)
_FIRST = _A[0][:_WORDS], _A[1][:_WORDS]
_BETWEEN = [(_A[0][at : at + 3], _A[1][at : at + 3]) for at in range(_WORDS, 16, 3)]
_OTHERS = [[at for at in range(_WORDS) if at != source] for source in range(_WORDS)]
