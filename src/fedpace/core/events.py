"""Events: messages from a runtime to a policy. Times are seconds since the run began."""

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a message: plain values only. Fields that are None are left out of its JSON."""


def always(default: Any) -> Any:
    """A default that is written out all the same.

    msgspec leaves out a value that is the very object of the default, so that a line would depend on
    where an equal string or float came from. None, True and False are one object each.
    """
    return msgspec.field(default_factory=lambda: default)


class Rates(Record, frozen=True):
    """Speeds of one client as measured, always for the full model.

    batch_s: seconds for one batch; batches: batches in one epoch of its data;
    down_s, up_s: seconds to receive and to send the whole model, latency included;
    latency_s: the part of them that a smaller message takes too.
    """

    batch_s: float
    batches: int
    down_s: float
    up_s: float
    latency_s: float = always(0.0)

    @property
    def compute_s(self) -> float:
        """Unit compute time: one full-model epoch, t_cmp / beta with beta = 1 / batches."""
        return self.batch_s * self.batches


class TaskResult(Record, frozen=True):
    """The result of a task: made once, by the simulated timeline or by the client that trained.

    depth: layers that the update carries (from the output);
    steps: batches done, of which the first `full_steps` trained the full model;
    samples: distinct samples used; trained: samples gone through, one that came again counted again;
    cut: stopped by its stop time before the work was done;
    last_depth: layers that the last batch's backward pass got through, where it was stopped in one;
    width: share of the channels that the update carries, None for all;
    seen: samples that the client has received so far, where its data arrives over time;
    first_s: seconds of the first batch, which takes longer than others, as of a whole batch of the full
    model, where a client has measured it.
    """

    depth: int
    steps: int
    full_steps: int
    samples: int
    trained: int | None = None
    cut: bool = always(False)
    last_depth: int | None = None
    width: float | None = None
    seen: int | None = None
    first_s: float | None = None


class _Event(Record, frozen=True, tag_field="event", tag=str.lower):
    """Base of all events; its lines begin with `{"event":"..."`."""


class Started(_Event, frozen=True):
    """The run begins; clients present at that time have joined already."""

    at: float


class Joined(_Event, frozen=True):
    """A client came online with `samples` training samples.

    most: the samples that it will hold at most, where data arrives while the run goes on.
    """

    at: float
    client: int
    samples: int
    most: int | None = None


class Left(_Event, frozen=True):
    """A client went offline; its open tasks are reported as Failed right after this."""

    at: float
    client: int


class Profiled(_Event, frozen=True):
    """The answer to a Probe; the client goes on as the Probe told it to."""

    at: float
    client: int
    task: int
    rates: Rates


class Arrived(_Event, frozen=True, kw_only=True):
    """A client's update is with the server. The task is over; the update waits for its use.

    version: of the model the client downloaded; result: what the task came to.
    """

    at: float
    client: int
    task: int
    version: int
    result: TaskResult
    up_bytes: int
    rates: Rates


class Failed(_Event, frozen=True):
    """A task ended without an update."""

    at: float
    client: int
    task: int
    reason: str


class Timer(_Event, frozen=True):
    """A timer that the policy set has run out."""

    at: float
    name: str


class Measured(_Event, frozen=True):
    """The answer to a Measure or Evaluate, in the order of its request; None: not a finite number."""

    at: float
    request: int
    values: tuple[float | None, ...]


Event = Started | Joined | Left | Profiled | Arrived | Failed | Timer | Measured
