"""Who is there, and who of them is free."""

import bisect

import numpy as np


class Roster:
    """Clients that are online. A draw depends on who is free, never on the order of events."""

    def __init__(self) -> None:
        self._online: set[int] = set()
        self._samples: dict[int, int] = {}
        """Client -> the samples it has got, as last known; of those who have left, too."""
        self._most: dict[int, int] = {}
        """Client -> the samples that it can hold, where data arrives over time."""
        self._samples_online = 0
        self._idle: set[int] = set()
        self._known: list[int] = []
        """Everybody who ever joined, sorted."""

    @property
    def idle(self) -> int:
        """How many online clients are free."""
        return len(self._idle)

    @property
    def online(self) -> list[int]:
        """Everybody who is there, in order."""
        return sorted(self._online)

    def __contains__(self, client: int) -> bool:
        """Whether the client is online."""
        return client in self._online

    def share(self, client: int) -> float:
        """The client's part of the samples that all online clients have got together."""
        return self._samples[client] / self._samples_online

    def samples(self, client: int) -> int:
        """What the client has got, as last known; it may have left since."""
        return self._samples[client]

    def held(self, client: int) -> int:
        """What it has of them: less, where more has arrived over time than it can hold."""
        return min(self._samples[client], self._most.get(client, self._samples[client]))

    def join(self, client: int, samples: int = 1, most: int | None = None) -> None:
        """A client is there. samples, most: as in core's Joined."""
        if most is not None:
            # What it holds tells less than what it has told of all that it had got.
            samples = max(samples, self._samples.get(client, 0))
            self._most[client] = most
        place = bisect.bisect_left(self._known, client)
        if place == len(self._known) or self._known[place] != client:
            self._known.insert(place, client)
        self._online.add(client)
        self._samples[client] = samples
        self._samples_online += samples
        self._idle.add(client)

    def hear(self, client: int, seen: int | None) -> None:
        """Take note of the samples that have come to a client; None: its data does not change."""
        if seen is not None:
            if client in self._online:
                self._samples_online += seen - self._samples[client]
            self._samples[client] = seen

    def leave(self, client: int) -> None:
        self._idle.discard(client)
        if client in self._online:
            self._online.remove(client)
            self._samples_online -= self._samples[client]

    def release(self, client: int) -> None:
        """Put a client back into the draw; one that is offline or free already is fine."""
        if client in self._online:
            self._idle.add(client)

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Occupy and return up to `count` free clients, drawn uniformly without replacement."""
        idle, known = len(self._idle), len(self._known)
        count = min(count, idle)
        if 2 * count <= idle and count * known < idle * idle:
            chosen = self._draw_by_trial(count, rng)  # sorting all of a large fleet costs more
        else:
            free = sorted(self._idle)
            chosen = [free[i] for i in rng.choice(idle, count, replace=False)] if count else []
        self._idle.difference_update(chosen)
        return chosen

    def _draw_by_trial(self, count: int, rng: np.random.Generator) -> list[int]:
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            for i in rng.integers(len(self._known), size=2 * count).tolist():
                client = self._known[i]
                if len(chosen) < count and client in self._idle:
                    chosen.setdefault(client)
        return list(chosen)
