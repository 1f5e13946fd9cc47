"""Metrics of a served run, as Prometheus reads them. docs/operations.md says what to alert on.

Label values are of fixed sets, or bounded by settings; clients are labels only where that is asked for.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from fedpace.net.monitor.counters import DIRECTIONS, PHASES, Counts
from fedpace.net.monitor.refusals import CALL_REFUSALS, OUTCOMES, REPORT_REFUSALS
from fedpace.net.monitor.snapshot import CLIENT_STATES, RUN_STATES, RunSnapshot

Family = Any
"""One of prometheus_client's."""
MOST_METRICS = 32
"""Metrics of a task that are shown."""


class RunMetrics:
    """A registry of one run's metrics. latest: gives the snapshot to read, None: there is none yet."""

    def __init__(
        self, latest: Callable[[], RunSnapshot | None], version: str, name: str, policy: str
    ) -> None:
        self._latest = latest
        self._labels = {"version": version, "name": name, "policy": policy}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """All of them, as /metrics answers."""
        page: bytes = generate_latest(self.registry)
        return page

    def collect(self) -> Iterator[Family]:
        """Families for prometheus_client."""
        info = GaugeMetricFamily("fedpace_info", "Version, run and policy.", labels=list(self._labels))
        info.add_metric(list(self._labels.values()), 1)
        yield info
        now = self._latest()
        if now is None:
            return
        yield from _run(now)
        yield from _clients(now)
        yield from _tasks(now, now.counts)
        yield from _traffic(now.counts)
        yield from _machine(now)
        if now.rows:
            yield from _by_client(now)


def _run(now: RunSnapshot) -> Iterator[Family]:
    state = GaugeMetricFamily(
        "fedpace_run_state", "1 for the state that the run is in.", labels=["state"]
    )
    for one in RUN_STATES:
        state.add_metric([one], float(now.state == one))
    yield state
    yield _gauge("fedpace_run_seconds", "Seconds of the run's clock.", now.run_s)
    rounds = now.versions.get("global", 0)
    yield CounterMetricFamily("fedpace_rounds", "New versions of the global model.", value=rounds)
    versions = GaugeMetricFamily("fedpace_model_version", "Version of a model slot.", labels=["slot"])
    for slot, version in now.versions.items():
        versions.add_metric([slot], version)
    yield versions
    tested = GaugeMetricFamily(
        "fedpace_tested", "Value of a metric in the last test.", labels=["metric"]
    )
    for metric, value in list(now.counts.tested.items())[:MOST_METRICS]:
        tested.add_metric([metric], value)
    yield tested
    yield _counter(
        "fedpace_facts",
        "Lines of the journal that are no event and no command.",
        "fact",
        now.counts.facts,
    )


def _clients(now: RunSnapshot) -> Iterator[Family]:
    found = GaugeMetricFamily("fedpace_clients", "Clients by state.", labels=["state"])
    for state in CLIENT_STATES:
        found.add_metric([state], now.clients.get(state, 0))
    yield found
    yield _gauge("fedpace_places", "Clients that there can be.", now.places)
    yield _gauge("fedpace_wait_for_clients", "Clients that the run begins with.", now.wait_for)
    yield CounterMetricFamily(
        "fedpace_shut_out", "Times that a client was shut out for a while.", value=now.counts.shut_out
    )
    yield CounterMetricFamily(
        "fedpace_flagged_speeds", "Speeds reported other than seen.", value=now.flagged_speeds
    )
    yield _gauge("fedpace_connections", "Connections, of whomever.", now.connections)
    yield CounterMetricFamily(
        "fedpace_connections_cut", "Connections shut down by limits.", value=now.connections_cut
    )
    yield _gauge("fedpace_addresses_blocked", "Addresses kept out.", now.addresses_blocked)
    ends = GaugeMetricFamily(
        "fedpace_keys_end_timestamp_seconds",
        "End of keys: the server's, the authority's, the first of the clients'.",
        labels=["of"],
    )
    for whose, end in now.key_ends.items():
        ends.add_metric([whose], end)
    yield ends


def _tasks(now: RunSnapshot, counts: Counts) -> Iterator[Family]:
    yield CounterMetricFamily("fedpace_tasks_given", "Tasks given out.", value=counts.given)
    yield _counter("fedpace_tasks", "Tasks that ended.", "outcome", counts.outcomes, OUTCOMES)
    yield _gauge("fedpace_tasks_open", "Tasks that clients have.", now.open_tasks)
    yield _gauge("fedpace_tasks_late", "Open tasks behind their clients' speeds.", now.late_tasks)
    yield _gauge("fedpace_oldest_task_seconds", "Age of the oldest open task.", now.oldest_task_s)
    yield _gauge("fedpace_most_late_seconds", "Lateness of the latest open task.", now.most_late_s)
    yield _gauge("fedpace_updates_waiting", "Updates that wait for their use.", now.updates_waiting)
    yield CounterMetricFamily("fedpace_updates_used", "Updates aggregated.", value=counts.used)
    yield CounterMetricFamily("fedpace_updates_dropped", "Updates not used.", value=counts.dropped)
    phases = HistogramMetricFamily(
        "fedpace_task_phase_seconds", "Seconds of tasks that arrived, by phase.", labels=["phase"]
    )
    for phase in PHASES:
        seen = counts.phases[phase]
        phases.add_metric([phase], seen.cumulative(), seen.total)
    yield phases


def _traffic(counts: Counts) -> Iterator[Family]:
    yield _counter(
        "fedpace_transfer_bytes",
        "Bytes of models and updates.",
        "direction",
        counts.moved_bytes,
        DIRECTIONS,
    )
    yield _counter(
        "fedpace_refused_reports",
        "Reports of clients that were refused.",
        "reason",
        counts.refused_reports,
        REPORT_REFUSALS,
    )
    yield _counter(
        "fedpace_refused_calls",
        "Calls, clients and transfers that were turned away.",
        "reason",
        counts.refused_calls,
        CALL_REFUSALS,
    )


def _machine(now: RunSnapshot) -> Iterator[Family]:
    disk = now.disk
    yield _gauge("fedpace_disk_free_bytes", "Free where the run's folder is.", disk.free_bytes)
    yield _gauge("fedpace_disk_total_bytes", "Size of the disk there.", disk.total_bytes)
    yield _gauge("fedpace_journal_bytes", "Size of the journal.", disk.journal_bytes)
    yield _gauge("fedpace_journal_blocked", "1: it cannot be written.", bool(now.journal_fault))
    yield _gauge("fedpace_snapshot_age_seconds", "Age of the models on disk.", disk.snapshot_age_s)
    yield _gauge("fedpace_spool_bytes", "Updates on disk, or offered.", now.spool_bytes)
    yield _gauge("fedpace_spool_limit_bytes", "Room for them.", now.spool_limit_bytes)
    queues = GaugeMetricFamily("fedpace_queue_length", "What waits.", labels=["queue"])
    for name, length in now.queues.items():
        queues.add_metric([name], length)
    yield queues
    yield _gauge("fedpace_event_loop_lag_seconds", "How late the event loop was.", now.lag_s)
    yield CounterMetricFamily(
        "fedpace_paused_seconds", "Seconds in which the process stood still.", value=now.paused_s
    )
    age_s = time.monotonic() - now.taken_at
    yield _gauge("fedpace_state_age_seconds", "Age of the state that is shown.", age_s)


def _by_client(now: RunSnapshot) -> Iterator[Family]:
    labels = ["client"]
    seen = GaugeMetricFamily("fedpace_client_seen_seconds", "Since it was heard.", labels=labels)
    state = GaugeMetricFamily("fedpace_client_state", "1 for its state.", labels=["client", "state"])
    age = GaugeMetricFamily("fedpace_client_task_seconds", "Age of its task.", labels=labels)
    late = GaugeMetricFamily("fedpace_client_late_seconds", "Lateness of its task.", labels=labels)
    updates = CounterMetricFamily("fedpace_client_updates", "Updates that were good.", labels=labels)
    refused = CounterMetricFamily("fedpace_client_refused", "Reports refused.", labels=labels)
    for row in now.rows:
        if row.seen_s is not None:
            seen.add_metric([row.name], row.seen_s)
        state.add_metric([row.name, row.state], 1)
        age.add_metric([row.name], row.task_age_s)
        late.add_metric([row.name], row.late_s)
        updates.add_metric([row.name], row.updates)
        refused.add_metric([row.name], row.refused)
    yield from (seen, state, age, late, updates, refused)


def _gauge(name: str, about: str, value: float) -> Family:
    return GaugeMetricFamily(name, about, value=value)


def _counter(
    name: str, about: str, label: str, values: dict[str, int], known: tuple[str, ...] = ()
) -> Family:
    """A counter by one label; known: values of it that are shown even if nothing has happened yet."""
    family = CounterMetricFamily(name, about, labels=[label])
    for value in dict.fromkeys((*known, *values)):
        family.add_metric([value], values.get(value, 0))
    return family
