"""Work that fills beats: on which one a client can be back, and with how much."""

import math
from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.model import ModelProfile
from fedpace.planning.cuts import PartialWork, fit_partial_work, progress_since_probe

MOST_TRIED = 64
"""Lengths of a beat that are tried: of more clients every second, third and so on."""


@dataclass(frozen=True, slots=True)
class BeatWork:
    """Work that arrives on the beat at `due`: batches of `size` samples (None: whole ones)."""

    due: float
    batches: int
    depth: int
    size: int | None = None


@dataclass(frozen=True, slots=True)
class BeatClients:
    """Clients that are given work, an entry each.

    batch_s, down_s, up_s, latency_s: as in Rates, for whole batches; epoch: batches of all of its data
    that are wanted; limits: most batches; goals: batches of a usual update; kept: those that a smaller
    update still has, with fewer samples in each; whole: samples of a whole batch; fixed: the share of
    its time that a smaller one takes, too; began: when it got its model; going_on: it has trained whole
    batches since then.
    """

    batch_s: np.ndarray
    down_s: np.ndarray
    up_s: np.ndarray
    latency_s: np.ndarray
    epoch: np.ndarray
    limits: np.ndarray
    goals: np.ndarray
    kept: np.ndarray
    whole: np.ndarray
    fixed: np.ndarray
    began: np.ndarray
    going_on: np.ndarray


@dataclass(frozen=True, slots=True)
class BeatSpeeds:
    """Clients by whose speeds the length of a beat is chosen, an entry each.

    transfer_s: seconds to get the model and to send it; the others are as in BeatClients.
    """

    batch_s: np.ndarray
    transfer_s: np.ndarray
    goals: np.ndarray
    kept: np.ndarray
    whole: np.ndarray
    fixed: np.ndarray


def fit_to_beats(
    model: ModelProfile,
    clients: BeatClients,
    at: float,
    due: np.ndarray,
    halvings: int,
    fewer_batches: bool,
    patient: bool = False,
) -> list[BeatWork | None]:
    """The work of each client: on the first beat with time for enough of it, as much as fits.

    patient: on that one of the beats with time for enough at which most is done for the time, where
    work counts by its root, and what goes beyond an epoch does not. Who transfers for long then trains
    for about as long, rather than to send a part of a batch.

    Enough is the goal, halved `halvings` times: the batches that are `kept`, with half the samples
    each, a quarter, and so on. Fewer whole ones it is where these are there sooner, since a step has a
    fixed cost or a batch no samples to spare, and where the client has begun with whole ones. Who
    cannot be back with enough on the last beat of `due` does fewer batches until then, if so wanted and
    one fits, or its last layers. None: nothing that it can train and send fits.
    """
    told_s = at + clients.latency_s - clients.began
    done, begun, ready_s = progress_since_probe(
        told_s, clients.down_s, clients.batch_s, clients.limits, clients.going_on
    )
    wait_s, send_s = np.maximum(ready_s - told_s, 0.0), clients.up_s - clients.latency_s
    left_s = due[None, :] - (at + clients.latency_s)[:, None]
    rounding = TOLERANCE + 4 * np.spacing(due[-1]) / clients.batch_s
    room = (left_s - (wait_s + send_s)[:, None]) / clients.batch_s[:, None] + rounding[:, None]
    amount = (done + begun)[:, None] + room
    goals = np.minimum(clients.goals, clients.limits)
    kept = np.minimum(clients.kept, goals)
    fixed = np.minimum(clients.fixed, 0.99)[:, None]
    part = (amount / kept[:, None] - fixed) / (1 - fixed)  # of the samples of each batch
    part = np.where(clients.going_on[:, None], 0.0, part)
    least = goals * 0.5**halvings
    smaller = part >= np.maximum(least / kept, 1 / clients.whole)[:, None]
    fewer = amount >= np.maximum(least, 1.0)[:, None]
    enough = (room >= 0) & (smaller | fewer)
    fits = enough.any(1)
    smaller &= amount < kept[:, None]
    worth = np.where(enough, 1.0, 0.0)
    if patient:
        work = np.where(smaller, kept[:, None] * _halves(part), np.floor(amount))
        work = np.minimum(work, np.minimum(clients.epoch, clients.limits)[:, None])
        worth *= np.sqrt(np.maximum(work, 0.0))
        worth /= np.maximum(due[None, :] - clients.began[:, None], TOLERANCE)
    beat = np.where(fits, worth.argmax(1), len(due) - 1)
    each = np.arange(len(beat))
    amount, part, room = amount[each, beat], part[each, beat], room[each, beat]
    smaller = smaller[each, beat]
    batches = np.where(room >= 0, np.minimum(np.floor(amount), clients.limits), 0)
    cuts = fit_partial_work(
        model,
        np.minimum(clients.epoch, clients.limits),
        done,
        begun,
        wait_s=wait_s,
        batch_s=clients.batch_s,
        send_s=send_s,
        left_s=left_s[:, -1],
    )
    found: list[BeatWork | None] = []
    for i in each.tolist():
        arrival = float(due[beat[i]])
        if fits[i] and smaller[i]:
            size = part_of_batch(int(clients.whole[i]), float(part[i]))
            found.append(BeatWork(arrival, int(kept[i]), model.depth, size))
        elif batches[i] >= 1 and (fits[i] or fewer_batches):
            found.append(BeatWork(arrival, int(batches[i]), model.depth))
        else:
            found.append(_cut(cuts[i], float(due[-1]), int(clients.epoch[i])))
    return found


def part_of_batch(whole: int, amount: float) -> int:
    """Samples of the largest part of a batch, a half, a quarter and so on, that is at most `amount`."""
    return max(math.floor(whole * 2.0 ** math.floor(math.log2(amount))), 1)


def _halves(share: np.ndarray) -> np.ndarray:
    """The largest of 1, a half, a quarter and so on that are at most each share."""
    found: np.ndarray = np.exp2(np.floor(np.log2(np.maximum(share, TOLERANCE))))
    return found


def _cut(cut: PartialWork | None, due: float, epoch: int) -> BeatWork | None:
    return None if cut is None else BeatWork(due, cut.batches or epoch, cut.depth)


def beat_length(clients: BeatSpeeds, k: int, halvings: int, longest: float = 2.0) -> float:
    """Seconds from beat to beat: the k-th fastest client's time for its goal, or another one's.

    Who just misses a beat does half of what it could, and waits. So of the times of the k-th fastest
    and those behind it, up to `longest` times as long, the one is taken with which clients are at work
    the largest part of the time; a longer one counts less, by its root, since the model steps less
    often.
    """
    batch_s, transfer_s, kept = clients.batch_s, clients.transfer_s, clients.kept
    needed = np.sort(transfer_s + clients.goals * batch_s)[min(k, len(batch_s)) - 1 :]
    needed = needed[needed <= longest * needed[0]]
    tried = needed[np.linspace(0, len(needed) - 1, min(len(needed), MOST_TRIED)).astype(int)][:, None]
    fixed, part = np.minimum(clients.fixed, 0.99), _smallest_part(clients, halvings)
    filled_s = np.ceil(_least_time(clients, halvings) / tried * (1 - TOLERANCE)) * tried
    room = (filled_s - transfer_s) / batch_s + TOLERANCE
    share = (room / kept - fixed) / (1 - fixed)
    halved = kept * (fixed + (1 - fixed) * _halves(share))
    done = np.where((room < kept) & (share >= part * (1 - TOLERANCE)), halved, np.floor(room))
    at_work = ((transfer_s + done * batch_s) / filled_s).mean(1)
    return float(tried[np.argmax(at_work / np.sqrt(tried[:, 0])), 0])


def cut_beat(
    beat_s: float, clients: BeatSpeeds, halvings: int, updates: float, most_beats: int
) -> float:
    """Seconds of a beat that is cut down to the time for `updates` goals a client on average.

    It is not so short that a client which could send an update within one uncut beat, or within
    `most_beats` of them, no longer can.
    """
    goal_s = clients.goals * clients.batch_s
    shorter = _time_for(updates * len(goal_s), clients.transfer_s, goal_s)
    least_s = _least_time(clients, halvings)
    for beats in (1, most_beats):
        able = least_s <= beats * beat_s * (1 + TOLERANCE)
        shorter = max(shorter, float(np.max(least_s, initial=0.0, where=able)) / beats)
    return min(beat_s, shorter)


def _least_time(clients: BeatSpeeds, halvings: int) -> np.ndarray:
    """Seconds in which each client can get the model, do the least that is enough, and send it."""
    fixed = np.minimum(clients.fixed, 0.99)
    fewer = np.maximum(clients.goals * 0.5**halvings, 1.0)
    least = np.minimum(clients.kept * (fixed + (1 - fixed) * _smallest_part(clients, halvings)), fewer)
    found: np.ndarray = clients.transfer_s + least * clients.batch_s
    return found


def _smallest_part(clients: BeatSpeeds, halvings: int) -> np.ndarray:
    """The smallest part of each client's batches that is enough: a sample of each at least."""
    found: np.ndarray = np.maximum(clients.goals / clients.kept * 0.5**halvings, 1 / clients.whole)
    return found


def _time_for(work: float, transfer_s: np.ndarray, goal_s: np.ndarray) -> float:
    """Seconds in which clients do so many goals together; each begins when its transfers are over.

    What they have done by some time is the highest of these lines: what the first of them to begin has
    done, what the first two have, and so on, each also before it begins. So the time is the least of
    those at which one of the lines is there.
    """
    order = np.argsort(transfer_s)
    pace = 1 / goal_s[order]
    return float(np.min((work + np.cumsum(transfer_s[order] * pace)) / np.cumsum(pace)))
