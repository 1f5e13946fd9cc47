import numpy as np

from fedpace.core.random.keyed import generator
from fedpace.core.random.seeded import generators

KEYS = [(client, task, epoch) for client in (0, 7, 12345) for task in (0, 10**12) for epoch in range(3)]


def test_many_generators_are_those_that_numpy_makes_one_by_one():
    made = 0
    for key, found in zip(KEYS, generators(5, "batches", KEYS), strict=True):
        expected = generator(5, "batches", *key)
        assert found.bit_generator.state == expected.bit_generator.state
        assert (found.permutation(33) == expected.permutation(33)).all()
        assert found.random() == expected.random()
        # Half of a number of 64 bits is left for the next, and must not be found there.
        assert found.integers(9, dtype=np.uint32) == expected.integers(9, dtype=np.uint32)
        made += 1
    assert made == len(KEYS)


def test_entropy_with_leading_zeros_is_taken_as_numpy_does(monkeypatch):
    from fedpace.core.random import seeded

    numbers = [0, 1, 2**32 - 1, 2**64, 2**96 - 1, 2**128 - 1]
    monkeypatch.setattr(seeded, "keyed_entropy", lambda seed, purpose, number: number)
    for number, found in zip(numbers, generators(0, "", [(n,) for n in numbers]), strict=True):
        assert found.random() == np.random.Generator(np.random.PCG64DXSM(number)).random()


def test_no_keys_give_no_generators():
    assert list(generators(0, "batches", [])) == []
