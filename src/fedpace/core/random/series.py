"""Generators of many keys, one after the other: those of `seeds.generator`, at a fraction of the cost.

numpy takes 10 us to make a generator, nearly all of it to spread the seed over the state. Here states
are computed for a block of keys at once. The arithmetic is numpy's, promised never to change:
SeedSequence (after O'Neill's seed_seq_fe), and how PCG64DXSM starts and gives its first number.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fedpace.core.random.keyed import Digests

BLOCK = 1024
"""Keys whose states are computed at once, at most: more would gain little. At first they are few, since
short runs need few."""

_Words = npt.NDArray[np.uint32]
"""One 32-bit word of every key."""
_Wide = npt.NDArray[np.uint64]
_Pair = tuple[_Wide, _Wide]
"""One 128-bit number of every key: its upper and its lower half."""
_Constants = Iterator[tuple[np.uint32, np.uint32]]
_LOW_32, _LOW_64 = (1 << 32) - 1, (1 << 64) - 1
_PCG_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_DXSM_MULTIPLIER = 0xDA942042E4DD58B5


class Series:
    """The generators of (seed, purpose, n, *keys) for an n that goes up by one.

    Any other n is right as well, but costs more than `seeds.generator`.
    """

    def __init__(self, seed: int, purpose: str, *keys: int) -> None:
        self._digests = Digests(seed, purpose)
        self._keys = keys
        self._begin = self._size = 0
        """Of the block: its first n, and how many there are."""
        self._states: tuple[_Pair, _Pair]
        """Of the block: state and increment."""
        self._firsts: _Wide | None = None
        """Of the block: the first 64 bits, once they are needed."""
        self._bound = 0
        self._pairs: list[tuple[int, ...]]
        """Of the block: two numbers below the bound."""
        self._rng = np.random.Generator(np.random.PCG64DXSM(0))
        self._fresh = dict(self._rng.bit_generator.state)

    def at(self, n: int) -> np.random.Generator:
        """The n-th, good until the next is asked for."""
        place = n - self._begin
        if not 0 <= place < self._size:
            place = self._look_ahead(n)
        state, increment = (int(high[place]) << 64 | int(low[place]) for high, low in self._states)
        self._fresh["state"] = {"state": state, "inc": increment}
        self._rng.bit_generator.state = self._fresh
        return self._rng

    def two_below(self, n: int, bound: int) -> tuple[int, ...]:
        """The numbers at(n).integers(bound, size=2), or none; bound: at most 2^32.

        A whole block has the bound that it is first asked for, since bounds hardly ever change.
        """
        place = n - self._begin
        if not 0 <= place < self._size:
            place = self._look_ahead(n)
        if self._firsts is None:
            self._firsts = _first_numbers(self._states[0])
            self._bound, self._pairs = bound, _all_two_below(self._firsts, bound)
        if bound == self._bound:
            return self._pairs[place]
        return _two_below(self._firsts.item(place), bound)

    def _look_ahead(self, n: int) -> int:
        """Make the block that begins with the n-th, whose place in it is 0."""
        size = 2 * self._size if n == self._begin + self._size else 0
        self._begin, self._size, self._firsts = n, min(max(size, 16), BLOCK), None
        self._states = _states(self._digests.of_each(range(n, n + self._size), *self._keys))
        return 0


def _states(entropy: bytes) -> tuple[_Pair, _Pair]:
    """State and increment that PCG64DXSM begins with for each 16 bytes of entropy."""
    words = _words(_pool(np.frombuffer(entropy, dtype="<u4").reshape(-1, 4).T), 8)
    a, b, c, d = (
        low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        for low, high in zip(words[::2], words[1::2], strict=True)
    )
    increment = c << np.uint64(1) | d >> np.uint64(63), d << np.uint64(1) | np.uint64(1)
    return _sum(_product(_sum(increment, (a, b)), _PCG_MULTIPLIER), increment), increment


def _first_numbers(state: _Pair) -> _Wide:
    """The first 64 bits that PCG64DXSM gives, "double xorshift multiply" of its state."""
    high, low = state
    high = (high ^ high >> np.uint64(32)) * np.uint64(_DXSM_MULTIPLIER)
    numbers: _Wide = (high ^ high >> np.uint64(48)) * (low | np.uint64(1))
    return numbers


def _two_below(number: int, bound: int) -> tuple[int, ...]:
    """Make two numbers below the bound of 64 random bits, or none.

    After Lemire (2019): the upper half of a 32-bit number times the bound. Where the lower half is
    below the bound numpy may draw again, and then nothing is told here.
    """
    one, other = (number & _LOW_32) * bound, (number >> 32) * bound
    if one & _LOW_32 < bound or other & _LOW_32 < bound:
        return ()
    return one >> 32, other >> 32


def _all_two_below(numbers: _Wide, bound: int) -> list[tuple[int, ...]]:
    """Do the same for each number."""
    low, half, times = np.uint64(_LOW_32), np.uint64(32), np.uint64(bound)
    one, other = (numbers & low) * times, (numbers >> half) * times
    pairs: list[tuple[int, ...]] = list(
        zip((one >> half).tolist(), (other >> half).tolist(), strict=True)
    )
    for place in np.flatnonzero((one & low < times) | (other & low < times)).tolist():
        pairs[place] = ()
    return pairs


def _sum(one: _Pair, other: _Pair) -> _Pair:
    """Modulo 2^128, as all arithmetic here."""
    low = one[1] + other[1]
    return one[0] + other[0] + (low < one[1]), low


def _product(one: _Pair, factor: int) -> _Pair:
    high, low = one
    by_high, by_low = np.uint64(factor >> 64), np.uint64(factor & _LOW_64)
    # The upper half of low * by_low, from quarters.
    mask, half = np.uint64(_LOW_32), np.uint64(32)
    a, b, c, d = low >> half, low & mask, by_low >> half, by_low & mask
    middle = (b * d >> half) + (a * d & mask) + (b * c & mask)
    upper = a * c + (a * d >> half) + (b * c >> half) + (middle >> half)
    return high * by_low + low * by_high + upper, low * by_low


def _pool(entropy: npt.NDArray[np.uint32]) -> list[_Words]:
    """SeedSequence.mix_entropy: four words, each of which depends on all of the entropy."""
    constants = _constants(0x43B0D7E5, 0x931E8875)
    pool = [_hashed(word, constants) for word in entropy]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed = np.uint32(0xCA01F9DD) * pool[target]
                mixed -= np.uint32(0x4973F715) * _hashed(pool[source], constants)
                pool[target] = mixed ^ (mixed >> np.uint32(16))
    return pool


def _words(pool: list[_Words], number: int) -> list[_Words]:
    """SeedSequence.generate_state: as many words as are asked for."""
    constants = _constants(0x8B51F9DD, 0x58F38DED)
    return [_hashed(pool[i % 4], constants) for i in range(number)]


def _hashed(word: _Words, constants: _Constants) -> _Words:
    one, other = next(constants)
    mixed = (word ^ one) * other
    return mixed ^ (mixed >> np.uint32(16))


def _constants(first: int, factor: int) -> _Constants:
    """Neighbours in the sequence first, first * factor, first * factor^2 and so on."""
    while True:
        following = first * factor & _LOW_32
        yield np.uint32(first), np.uint32(following)
        first = following
