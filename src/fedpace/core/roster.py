"""Who is there, and who of them is free."""

import bisect
from array import array

import numpy as np

from fedpace.core.random.series import Series

AWAY, BUSY, FREE = 0, 1, 2
FEW = 100
"""So many are found one by one sooner than by looking at all."""


class Roster:
    """Clients that are online. A draw depends on who is free, never on the order of events.

    Clients are numbered from 0 without large gaps; each takes 17 bytes.
    """

    def __init__(self) -> None:
        self._states = bytearray()
        """Of each client, by its number."""
        self._samples = array("q")
        """Of each client what it has got, as last known; of those who have left, too."""
        self._known = array("q")
        """Everybody who ever joined, sorted."""
        self._most: dict[int, int] = {}
        """Client -> the samples that it can hold, where data arrives over time."""
        self._samples_online = self._idle = 0

    @property
    def idle(self) -> int:
        """How many online clients are free."""
        return self._idle

    @property
    def online(self) -> list[int]:
        """Everybody who is there, in order."""
        clients: list[int] = np.flatnonzero(np.frombuffer(self._states, dtype=np.uint8)).tolist()
        return clients

    def __contains__(self, client: int) -> bool:
        """Whether the client is online."""
        return 0 <= client < len(self._states) and self._states[client] != AWAY

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
        missing = client + 1 - len(self._states)
        if missing > 0:
            self._states.extend(bytes(missing))
            self._samples.extend([0] * missing)
        if most is not None:
            # What it holds tells less than what it has told of all that it had got.
            samples = max(samples, self._samples[client])
            self._most[client] = most
        if not self._known or client > self._known[-1]:
            self._known.append(client)
        elif self._known[place := bisect.bisect_left(self._known, client)] != client:
            self._known.insert(place, client)
        self._samples[client] = samples
        self._samples_online += samples
        self._idle += self._states[client] != FREE
        self._states[client] = FREE

    def hear(self, client: int, seen: int | None) -> None:
        """Take note of the samples that have come to a client; None: its data does not change."""
        if seen is not None:
            if client in self:
                self._samples_online += seen - self._samples[client]
            self._samples[client] = seen

    def leave(self, client: int) -> None:
        if client in self:
            self._idle -= self._states[client] == FREE
            self._states[client] = AWAY
            self._samples_online -= self._samples[client]

    def release(self, client: int) -> None:
        """Put a client back into the draw; one that is offline or free already is fine."""
        if client < len(self._states) and self._states[client] == BUSY:
            self._states[client] = FREE
            self._idle += 1

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Occupy and return up to `count` free clients, drawn uniformly without replacement."""
        count = min(count, self._idle)
        if self._by_trial(count):
            chosen = self._draw_by_trial(count, rng)
        else:
            free = self._free()
            chosen = [free[i] for i in rng.choice(len(free), count, replace=False)] if count else []
        for client in chosen:
            self._states[client] = BUSY
        self._idle -= len(chosen)
        return chosen

    def draw_nth(self, count: int, series: Series, number: int) -> list[int]:
        """What draw(count, series.at(number)) does; for one client at a fraction of the cost."""
        if count == 1 and self._by_trial(1):
            known, states = self._known, self._states
            for i in series.two_below(number, len(known)):
                client = known[i]
                if states[client] == FREE:
                    states[client] = BUSY
                    self._idle -= 1
                    return [client]
        return self.draw(count, series.at(number))

    def _by_trial(self, count: int) -> bool:
        """Whether to draw from everybody until enough are free: looking for who is free costs more."""
        return 2 * count <= self._idle and count * len(self._known) < self._idle**2

    def _draw_by_trial(self, count: int, rng: np.random.Generator) -> list[int]:
        known, states = self._known, self._states
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            for i in rng.integers(len(known), size=2 * count).tolist():
                client = known[i]
                if len(chosen) < count and states[client] == FREE:
                    chosen.setdefault(client)
        return list(chosen)

    def _free(self) -> list[int]:
        """Who is free, in order."""
        if self._idle > FEW:
            states = np.frombuffer(self._states, dtype=np.uint8)
            clients: list[int] = np.flatnonzero(states == FREE).tolist()
            return clients
        found, place = [], -1
        for _ in range(self._idle):
            place = self._states.find(FREE, place + 1)
            found.append(place)
        return found
