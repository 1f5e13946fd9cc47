"""Which clients of a large run are shown, where there is not room for all of them."""

import numpy as np

from fedpace.report.timeline.columns import Numbers, RoundColumns, Times

FEWEST_LANES = 32
MOST_BLAMED = 8


def blamed_seconds(rounds: RoundColumns, clients: int) -> Times:
    """Seconds of rounds that each client is to blame for."""
    mine = rounds.client >= 0
    seconds = np.zeros(clients)
    np.add.at(seconds, rounds.client[mine], rounds.cause_s[mine])
    return seconds


def chosen_clients(
    counts: np.ndarray, speeds: Times, blamed_s: Times, most_spans: int, most_lanes: int
) -> Numbers:
    """Clients that can be shown in about `most_spans` spans, in order of their numbers.

    They are even over speeds, with those to blame for most among them. counts: spans of each client;
    speeds: seconds a sample, or nan.
    """
    everyone = len(counts)
    mean = max(float(counts.sum()) / max(everyone, 1), 1.0)
    room = min(most_lanes, max(FEWEST_LANES, int(most_spans / mean)))
    if everyone <= room:
        return np.arange(everyone)
    blamed = np.argsort(-blamed_s, kind="stable")[: min(MOST_BLAMED, room)]
    by_speed = np.argsort(np.nan_to_num(speeds, nan=np.inf), kind="stable")
    even = by_speed[np.linspace(0, everyone - 1, room - len(blamed)).round().astype(int)]
    return np.unique(np.concatenate([even, blamed]))
