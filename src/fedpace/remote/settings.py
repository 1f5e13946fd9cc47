"""Settings of a federation over a network."""

from dataclasses import dataclass
from typing import Annotated

from fedpace.core.errors import Checked, ConfigError, Count, Natural, NonNegative, OneOrMore, Positive


@dataclass(frozen=True, slots=True)
class ServeSettings(Checked):
    """The table [serve] of a config. Times are seconds."""

    wait_for: Annotated[
        Count | None, "clients that must be there before the run begins; default: all"
    ] = None
    slack: Annotated[NonNegative, "share by which policies stretch their deadlines"] = 0.05
    beat_s: Annotated[Positive, "clients say that they live at least this often"] = 2.0
    silent_s: Annotated[Positive, "a client that says nothing for so long has left"] = 8.0
    return_s: Annotated[Positive, "a client whose connection broke may come back within this"] = 5.0
    resume_s: Annotated[
        Positive, "after a restart of the server, clients may come back within this"
    ] = 60.0
    hold_s: Annotated[
        NonNegative, "and time stands still until they are back, but not longer than this"
    ] = 20.0
    linger_s: Annotated[
        NonNegative, "a server whose run is over tells so to clients that were away, for so long"
    ] = 20.0
    snapshot_every_s: Annotated[Positive, "the models are saved this often"] = 30.0
    norm_bound: Annotated[Positive | None, "an update whose L2 norm is larger is refused"] = None
    norm_factor: Annotated[
        NonNegative,
        "an update is refused whose norm, or whose change of buffers, is more than this many times the "
        "median over members; 0: none is",
    ] = 10.0
    loss_factor: Annotated[
        NonNegative,
        "a model whose tested loss is this many times that of the first is rolled back; 0: none is",
    ] = 10.0
    influence: Annotated[
        NonNegative | None,
        "no member has more than this many times an equal share of the updates; 0: no limit; default: "
        "3 for asynchronous policies, 0 for others",
    ] = None
    speed_tolerance: Annotated[
        OneOrMore, "reported speeds further than this from the times that are seen are replaced by them"
    ] = 3.0
    deadline_factor: Annotated[
        NonNegative, "a task fails after this many times what its client's own speeds say; 0: never"
    ] = 5.0
    deadline_floor_s: Annotated[Positive, "but not before this"] = 30.0
    first_deadline_s: Annotated[Positive, "where the client's speed is not known"] = 3600.0
    failures_in_a_row: Annotated[
        Natural,
        "failed tasks in a row after which a client is shut out; it has pauses before, from the second "
        "on; 0: neither",
    ] = 5
    quarantine_after: Annotated[Count, "refused updates after which a client is shut out"] = 3
    quarantine_s: Annotated[Positive, "for how long"] = 600.0
    hellos_per_minute: Annotated[Count, "more connections than this of one client are turned away"] = 30
    calls_at_once: Annotated[Count, "more calls than this of one client at a time are turned away"] = 16
    connections: Annotated[Count, "connections at a time, in all"] = 1000
    unproved_connections: Annotated[
        Count, "of one address at a time that have not proved who they are"
    ] = 128
    most_bytes: Annotated[Count | None, "largest update; default: what the model can need"] = None
    metrics: Annotated[
        str | None,
        "[HOST:]PORT for /healthz, /readyz and /metrics; default: none, and no host: loopback",
    ] = None
    page: Annotated[
        str | None, "[HOST:]PORT for the operators' page; default: none, and no host: loopback"
    ] = None
    metrics_clients: Annotated[bool, "metrics of each client by its name, too"] = False

    def _check_rest(self) -> None:
        if self.silent_s < 2 * self.beat_s:
            raise ConfigError(
                f"silent_s is {self.silent_s:g}, but clients beat every {self.beat_s:g} s; "
                f"set it to {2 * self.beat_s:g} or more"
            )
