import numpy as np

from fedpace.core.random.keyed import generator, keyed_entropy, torch_seed


def test_a_key_gives_the_same_numbers_every_time():
    assert generator(1, "jitter", 2, 3).random() == generator(1, "jitter", 2, 3).random()


def test_every_part_of_the_key_matters():
    keys = [
        (1, "a", 2, 3),
        (2, "a", 2, 3),
        (1, "b", 2, 3),
        (1, "a", 3, 3),
        (1, "a", 2, 4),
        (1, "a", 23),
    ]
    assert len({keyed_entropy(*key) for key in keys}) == len(keys)


def test_the_stream_of_a_key_never_changes_between_versions():
    assert keyed_entropy(0, "partition") == 135574061698524552427195809826668361669
    assert generator(0, "partition").integers(1_000_000, size=3).tolist() == [571025, 862470, 719284]


def test_streams_of_neighbouring_keys_are_not_related():
    draws = np.array([generator(0, "x", client).random(50) for client in range(400)])
    correlation = np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]
    assert abs(correlation) < 4 / np.sqrt(draws[1:].size)


def test_torch_seeds_fit_what_torch_takes():
    assert all(0 <= torch_seed(0, "train", client) < 2**63 for client in range(100))
