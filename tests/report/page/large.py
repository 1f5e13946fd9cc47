"""A timeline of any size, made up of numbers: every client takes part in every round."""

import numpy as np

from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.core.journal import Header
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.report.page.details import RunDetails, details_of
from fedpace.report.timeline.columns import (
    ClientSpans,
    RoundColumns,
    ServerMarks,
    TaskColumns,
    Timeline,
)
from fedpace.report.timeline.phases import Cause, Fate, Phase, Waits
from tests.report.conftest import make_summary

OWN = (Phase.DOWNLOAD, Phase.COMPUTE, Phase.UPLOAD, Phase.WAITS_ROUND)


def large_details(clients: int, rounds: int, seed: int = 0) -> RunDetails:
    """The details of a synchronous run of that size."""
    timeline = large_timeline(clients, rounds, seed)
    track = [(float(at), i / rounds) for i, at in enumerate(timeline.rounds.end)]
    summary = make_summary(
        accuracy=track,
        seed=seed,
        clients_per_round=[clients] * rounds,
        round_times=timeline.rounds.end.tolist(),
        participation=dict.fromkeys(range(clients), 1.0),
        end_s=timeline.length_s,
    )
    context = Context(seed, clients, ModelProfile.even(4, 4000), 20, metrics=(ACCURACY, LOSS))
    header = Header("sync", {"n": clients}, context, {"name": "large", "label": "sync"}, "0.1.0")
    return details_of(header, summary, timeline, None)


def large_timeline(clients: int, rounds: int, seed: int = 0) -> Timeline:
    """Rounds that end with their slowest client; times have jitter, which compresses badly."""
    draw = np.random.default_rng(seed)
    sample_s = draw.lognormal(-3, 0.8, clients)
    own = np.stack([draw.uniform(0.2, 3, clients), 40 * sample_s, draw.uniform(0.5, 6, clients)])
    parts = own[:, :, None] * draw.uniform(0.9, 1.1, (3, clients, rounds))
    lasts = parts.sum(axis=0).max(axis=0)
    slowest = parts.sum(axis=0).argmax(axis=0)
    end = np.cumsum(lasts)
    start = end - lasts
    edges = np.empty((clients, rounds, 5))
    edges[:, :, 0], edges[:, :, 4] = start, end
    edges[:, :, 1:4] = start[None, :, None] + np.cumsum(parts, axis=0).transpose(1, 2, 0)
    edges = np.minimum(edges, end[None, :, None])
    count = clients * rounds
    rows = np.repeat(np.arange(count), 4)
    begin, over = edges[:, :, :4].ravel(), edges[:, :, 1:].ravel()
    kept = over > begin
    client = np.repeat(np.arange(clients, dtype=np.int32), rounds)
    number = np.tile(np.arange(1, rounds + 1, dtype=np.int32), clients)
    spans = ClientSpans(
        start=begin[kept],
        end=over[kept],
        client=client[rows][kept],
        phase=np.tile(np.array(OWN, dtype=np.uint8), count)[kept],
        round=number[rows][kept],
        task=rows[kept].astype(np.int32),
        used=np.full(int(kept.sum()), Fate.USED, dtype=np.uint8),
    )
    whole = np.full(count, 40)
    tasks = TaskColumns(
        number=np.arange(count), client=client,
        opened=edges[:, :, 0].ravel(), computes=edges[:, :, 1].ravel(),
        uploads=edges[:, :, 2].ravel(), closed=edges[:, :, 3].ravel(),
        fate=np.full(count, Fate.USED, dtype=np.uint8), reason=np.zeros(count, dtype=np.int32),
        round=number, staleness=np.zeros(count, dtype=np.int32), batch_size=whole // 2,
        steps=whole // 20, trained=whole, samples=whole, depth=np.full(count, 4, dtype=np.int32),
        width=np.ones(count), epochs=np.ones(count), sample_s=sample_s[client],
    )  # fmt: skip
    causes = np.array([Cause.DOWNLOAD, Cause.COMPUTE, Cause.UPLOAD], dtype=np.uint8)
    mine = parts[:, slowest, np.arange(rounds)]
    blamed = RoundColumns(
        start=start, end=end,
        updates=np.full(rounds, clients, dtype=np.int32), late=np.zeros(rounds, dtype=np.int32),
        cause=causes[mine.argmax(axis=0)], client=slowest.astype(np.int32), cause_s=mine.max(axis=0),
        last=slowest.astype(np.int32), phase=np.full(rounds, Phase.COMPUTE, dtype=np.uint8),
        waited=draw.uniform(0.3, 0.8, rounds),
    )  # fmt: skip
    none = np.zeros(0)
    marks = ServerMarks(end, np.zeros(rounds, dtype=np.int32), blamed.updates, none, none)
    return Timeline(
        float(end[-1]), clients, Waits.ROUND, spans, tasks, blamed, marks, ("",), ("global",)
    )
