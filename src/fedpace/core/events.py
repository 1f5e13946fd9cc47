"""What happens: messages from a runtime to a policy. Times are seconds since the run began."""

from dataclasses import dataclass

from fedpace.core.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds of one client as measured, always for the full model.

    batch_s: seconds for one batch; batches: batches in one epoch of its data;
    down_s, up_s: seconds to receive and to send the whole model, latency included;
    latency_s: the part of them that a smaller message takes too.
    """

    batch_s: float
    batches: int
    down_s: float
    up_s: float
    latency_s: float = 0.0

    @property
    def compute_s(self) -> float:
        """Unit compute time: one full-model epoch, t_cmp / beta with beta = 1 / batches."""
        return self.batch_s * self.batches


@quick
@dataclass(frozen=True, slots=True)
class Started:
    """The run begins; clients present at that time have joined already."""

    at: float


@quick
@dataclass(frozen=True, slots=True)
class Joined:
    """A client came online with `samples` training samples.

    most: the samples that it will hold at most, where data arrives while the run goes on.
    """

    at: float
    client: int
    samples: int
    most: int | None = None


@quick
@dataclass(frozen=True, slots=True)
class Left:
    """A client went offline; its open tasks are reported as Failed right after this."""

    at: float
    client: int


@quick
@dataclass(frozen=True, slots=True)
class Profiled:
    """The answer to a Probe; the client goes on as the Probe told it to."""

    at: float
    client: int
    task: int
    rates: Rates


@quick
@dataclass(frozen=True, slots=True)
class Arrived:
    """A client's update is with the server. The task is over; the update waits for its use.

    version: of the model the client downloaded; depth: layers the update carries (from the output);
    steps: batches done, of which the first `full_steps` trained the full model;
    samples: distinct samples used; cut: stopped by its stop time before the work was done;
    last_depth: layers that the last batch's backward pass got through, where it was stopped in one;
    width: share of the channels that the update carries, None for all;
    trained: samples gone through, one that came again counted again;
    seen: samples that the client has received so far, where its data arrives over time.
    """

    at: float
    client: int
    task: int
    version: int
    depth: int
    steps: int
    full_steps: int
    samples: int
    up_bytes: int
    cut: bool
    rates: Rates
    last_depth: int | None = None
    width: float | None = None
    trained: int | None = None
    seen: int | None = None


@quick
@dataclass(frozen=True, slots=True)
class Failed:
    """A task ended without an update."""

    at: float
    client: int
    task: int
    reason: str


@quick
@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that the policy set has run out."""

    at: float
    name: str


@quick
@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to a Measure or Evaluate, in the order of its request; None: not a finite number."""

    at: float
    request: int
    values: tuple[float | None, ...]


Event = Started | Joined | Left | Profiled | Arrived | Failed | Timer | Measured
