"""Tasks of a journal as columns: when each was downloaded, computed and uploaded, and its fate."""

from dataclasses import dataclass

import numpy as np

from fedpace.core.model import ModelProfile
from fedpace.report.timeline.columns import Numbers, TaskColumns, Times
from fedpace.report.timeline.phases import Fate
from fedpace.report.timeline.recorder import JournalTables

RATES = ("batch_s", "batches", "down_s", "up_s", "latency_s")


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """More about tasks than others need: lines of the journal, and waits inside a probed task.

    opened_line, closed_line, used_line: where it was given out, over and used up; used_line is past
    the end where it never was. probed, told: between these a client waited for the work of its probe.
    kind, trigger: of the event at which it was given out. given: when the work of a probe that waited
    for it came, -inf for others; given_kind, given_trigger: of the event that it came at.
    """

    columns: TaskColumns
    opened_line: Numbers
    closed_line: Numbers
    used_line: Numbers
    probed: Times
    told: Times
    kind: Numbers
    trigger: Numbers
    given: Times
    given_kind: Numbers
    given_trigger: Numbers


def task_times(tables: JournalTables, model: ModelProfile) -> TaskTimes:
    """The tasks of a journal; what was still open ends with it."""
    opened, arrived, ended = tables.opened.array(), tables.arrived.array(), tables.ended.array()
    count, past = len(opened), tables.line + 1
    closed = np.full(count, tables.length_s)
    closed_line = np.full(count, past)
    fate = np.full(count, Fate.OPEN, dtype=np.uint8)
    reason = np.zeros(count, dtype=np.int32)
    for table in (arrived, ended):
        closed[table["task"]] = table["at"]
        closed_line[table["task"]] = table["line"]
    fate[arrived["task"]] = Fate.WAITING
    fate[ended["task"]], reason[ended["task"]] = ended["fate"], ended["reason"]

    used = tables.used.array()
    round_, staleness = np.zeros(count, dtype=np.int32), np.full(count, -1, dtype=np.int32)
    used_line = np.full(count, past)
    dropped = used["round"] < 0
    fate[used["task"]] = np.where(dropped, Fate.DROPPED, Fate.USED)
    # An update that goes by way of a tier's model is here twice: used by the tier, then by a round.
    round_[used["task"]] = np.maximum(used["round"], 0)
    staleness[used["task"]] = np.where(dropped, -1, used["staleness"])
    used_line[used["task"][::-1]] = used["line"][::-1]
    for first, last in tables.undone:
        fate[(round_ >= first) & (round_ <= last) & (fate == Fate.USED)] = Fate.UNDONE

    rates = _rates(tables, opened["client"])
    work = _work(tables)
    computes, probed, told, uploads = _inside(tables, rates, work, closed, model)
    results = {}
    for name in ("steps", "samples", "trained", "depth"):
        results[name] = np.zeros(count, dtype=np.int64)
        results[name][arrived["task"]] = arrived[name]
    came = np.zeros(count, dtype=bool)
    came[arrived["task"]] = True
    held = _held(tables, opened["client"], rates["batches"], work["batch_size"])
    per_batch = np.minimum(work["batch_size"], held)
    with np.errstate(divide="ignore", invalid="ignore"):
        sample_s = np.where(rates["own"], rates["batch_s"] / per_batch, np.nan)
        epochs = np.where(came, results["trained"] / held, 0.0)
    columns = TaskColumns(
        number=opened["number"].astype(np.int64),
        client=opened["client"].astype(np.int32),
        opened=opened["at"].astype(np.float64),
        computes=computes,
        uploads=uploads,
        closed=closed,
        fate=fate,
        reason=reason,
        round=round_,
        staleness=staleness,
        batch_size=work["batch_size"],
        steps=results["steps"],
        trained=results["trained"],
        samples=results["samples"],
        depth=results["depth"].astype(np.int32),
        width=np.where(came, opened["width"], 0.0),
        epochs=epochs,
        sample_s=sample_s,
    )
    given = tables.given.array()
    waited = given[opened["go_on"][given["task"]] == 0]
    given_at = np.full(count, -np.inf)
    given_kind, given_trigger = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    given_at[waited["task"]] = waited["at"]
    given_kind[waited["task"]], given_trigger[waited["task"]] = waited["kind"], waited["trigger"]
    return TaskTimes(
        columns,
        opened["line"].astype(np.int64),
        closed_line,
        used_line,
        probed,
        told,
        opened["kind"].astype(np.int64),
        opened["trigger"].astype(np.int64),
        given_at,
        given_kind,
        given_trigger,
    )


def _inside(
    tables: JournalTables,
    rates: dict[str, np.ndarray],
    work: dict[str, np.ndarray],
    closed: Times,
    model: ModelProfile,
) -> tuple[Times, Times, Times, Times]:
    """Ends of the download, of a probe's batch, of the wait for its work, and of the compute."""
    opened, arrived = tables.opened.array(), tables.arrived.array()
    begun = opened["at"]
    shares = {one.share: (one.bytes / model.total_bytes, one.compute) for one in model.widths}
    bytes_share, compute_share = np.ones(len(opened)), np.ones(len(opened))
    for width in np.unique(opened["width"]).tolist():
        mine = opened["width"] == width
        bytes_share[mine], compute_share[mine] = shares.get(width, (1.0, 1.0))
    down_s = _scaled(rates["down_s"], rates["latency_s"], bytes_share)
    computes = np.minimum(begun + down_s, closed)

    probed, told = computes.copy(), computes.copy()
    profiled, given = tables.profiled.array(), tables.given.array()
    answered, given_at = np.full(len(opened), np.nan), np.full(len(opened), np.nan)
    answered[profiled["task"]] = profiled["at"] - profiled["latency_s"]
    given_at[given["task"]] = given["at"]
    stops = (opened["probe"] == 1) & (opened["go_on"] == 0) & ~np.isnan(answered)
    probed[stops] = np.clip(answered[stops], computes[stops], closed[stops])
    resumed = np.where(np.isnan(given_at), closed, given_at + rates["latency_s"])
    told[stops] = np.clip(resumed[stops], probed[stops], closed[stops])

    # What arrived has uploaded at last; of the rest that is known by what was to be done.
    whole = np.concatenate([[1.0], model.compute_share])  # depth 0 stands for all layers
    whole[0] = whole[-1]
    steps = np.where(work["steps"] > 0, work["steps"], work["epochs"] * rates["batches"])
    compute_s = steps * rates["batch_s"] * whole[work["depth"]] * compute_share
    ready = told + np.where(steps > 0, compute_s, np.inf)
    with np.errstate(invalid="ignore"):
        stop_at = np.where(np.isnan(work["stop_at"]), np.inf, np.maximum(work["stop_at"], told))
    uploads = np.minimum(np.minimum(ready, stop_at), closed)
    uploads = np.where(rates["known"], uploads, closed)
    tasks = arrived["task"]
    sent = arrived["up_bytes"] / model.total_bytes
    up_s = _scaled(arrived["up_s"], arrived["latency_s"], sent)
    uploads[tasks] = np.clip(arrived["at"] - up_s, told[tasks], closed[tasks])
    return computes, probed, told, uploads


def _scaled(seconds: Times, latency_s: Times, share: Times) -> Times:
    """Seconds to move a share of what takes `seconds`; the latency stays."""
    fixed = np.minimum(seconds, latency_s)
    moved: Times = fixed + (seconds - fixed) * share
    return moved


def _work(tables: JournalTables) -> dict[str, np.ndarray]:
    """What each task was to do: of a probed one that came later."""
    opened, given = tables.opened.array(), tables.given.array()
    work = {name: opened[name].copy() for name in ("batch_size", "epochs", "steps", "depth", "stop_at")}
    for name in ("epochs", "steps", "depth", "stop_at"):
        work[name][given["task"]] = given[name]
    return work


def _rates(tables: JournalTables, client: np.ndarray) -> dict[str, np.ndarray]:
    """Speeds of each task: its own, or else those of the client's task before, or else after it.

    own: the task has told them itself; known: it, or another one of its client. The time of a task of a
    client that never told any counts as compute.
    """
    count = len(client)
    rates = {name: np.zeros(count) for name in RATES}
    own = np.zeros(count, dtype=bool)
    for table in (tables.profiled.array(), tables.arrived.array()):
        own[table["task"]] = True
        for name in RATES:
            rates[name][table["task"]] = table[name]
    known = own.copy()
    if not own.all():
        order = np.argsort(client, kind="stable")
        source = _nearest_known(client[order], own[order])
        filled = np.where(source >= 0, order[np.maximum(source, 0)], -1)
        nearest = np.full(count, -1)
        nearest[order] = filled
        known = nearest >= 0
        for name in RATES:
            rates[name][known] = rates[name][nearest[known]]
    return {**rates, "own": own, "known": known}


def _nearest_known(client: np.ndarray, known: np.ndarray) -> np.ndarray:
    """For each place the last known one of the same client, else its next; -1: there is none."""
    count = len(client)
    places = np.arange(count)
    first = np.concatenate([[True], client[1:] != client[:-1]]) if count else np.zeros(0, dtype=bool)
    begins = np.maximum.accumulate(np.where(first, places, 0))
    last = np.concatenate([first[1:], [True]]) if count else first
    ends = np.minimum.accumulate(np.where(last, places, count)[::-1])[::-1]
    before = np.maximum.accumulate(np.where(known, places, -1))
    after = np.minimum.accumulate(np.where(known, places, count)[::-1])[::-1]
    found: np.ndarray = np.where(before >= begins, before, np.where(after <= ends, after, -1))
    return found


def _held(
    tables: JournalTables, client: np.ndarray, batches: np.ndarray, batch_size: np.ndarray
) -> np.ndarray:
    """Samples that each task's client held; by its batches where data arrives while the run goes on."""
    presence = tables.presence.array()
    joined = presence[presence["online"] == 1]
    samples = np.zeros(max(tables.clients, 1), dtype=np.int64)
    samples[joined["client"]] = joined["samples"]
    told = samples[client]
    grown = batches * batch_size
    # As many batches as cannot be of what it had when it joined: it has got more since.
    more = np.ceil(told / np.maximum(batch_size, 1)) < batches
    held: np.ndarray = np.maximum(np.where(more, grown, told), 1)
    return held
