import random

import pytest

from fedpace.planning.fastest import FastestClients


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("seed", range(10))
def test_the_fastest_are_those_of_sorting_all_who_are_left(k, seed):
    draw, fastest, left = random.Random(seed), FastestClients(k), {}
    clients = list(range(40))
    draw.shuffle(clients)
    while clients:
        if draw.random() < 0.65:
            client, total_s, upload_s = clients.pop(), draw.randrange(1, 8), draw.random()
            left[client] = total_s, upload_s
            fastest.add(client, total_s, upload_s)
        else:
            client = draw.choice([*left, clients[0]])
            left.pop(client, None)
            clients = [one for one in clients if one != client]
            fastest.remove(client)
        expected = sorted(left, key=lambda one: (left[one][0], -one))[:k]
        assert {client for client in range(40) if client in fastest} == set(expected)
        assert len(fastest) == len(expected)
        if expected:
            assert fastest.slowest_s == max(left[client][0] for client in expected)
            uploads = max(left[client][1] for client in expected)
            assert fastest.spare_s == fastest.slowest_s - uploads
            assert fastest.longest_upload_s == max(left[client][1] for client in expected)
