"""Names of what clients do, of what becomes of their tasks, and of what holds rounds up.

Numbers stand in arrays and in pages that were written, so none is ever given another meaning.
"""

from enum import IntEnum


class Phase(IntEnum):
    """What a client does at a time; at every time of a run it is exactly one of these.

    NOT_SAMPLED: online without a task, and nothing of its own is waited for. WAITS_ROUND: its part of
    the round is over, or its probe is, and others are waited for. WAITS_GROUP: the same, for its group
    or tier alone.
    """

    OFFLINE = 0
    NOT_SAMPLED = 1
    DOWNLOAD = 2
    COMPUTE = 3
    UPLOAD = 4
    WAITS_ROUND = 5
    WAITS_GROUP = 6

    @property
    def text(self) -> str:
        """How people call it, also in report.json."""
        return _PHASES[self]


_PHASES = {
    Phase.OFFLINE: "offline",
    Phase.NOT_SAMPLED: "not sampled",
    Phase.DOWNLOAD: "download",
    Phase.COMPUTE: "compute",
    Phase.UPLOAD: "upload",
    Phase.WAITS_ROUND: "waits for the round",
    Phase.WAITS_GROUP: "waits for the group",
}
AT_WORK = (Phase.DOWNLOAD, Phase.COMPUTE, Phase.UPLOAD)
WAITS = (Phase.WAITS_ROUND, Phase.WAITS_GROUP)


class Fate(IntEnum):
    """What became of a task. All but USED, WAITING and OPEN are thrown away.

    NONE: there is no task. UNDONE: used for a model that was rolled back or kept out. WAITING: it
    arrived, and the journal ends before it is used. OPEN: the journal ends before it is over.
    """

    NONE = 0
    USED = 1
    DROPPED = 2
    CANCELLED = 3
    LATE = 4
    FAILED = 5
    LEFT = 6
    REFUSED = 7
    UNDONE = 8
    WAITING = 9
    OPEN = 10

    @property
    def text(self) -> str:
        """How people call it, also in report.json."""
        return _FATES[self]


_FATES = {
    Fate.NONE: "",
    Fate.USED: "used",
    Fate.DROPPED: "dropped",
    Fate.CANCELLED: "cancelled",
    Fate.LATE: "late",
    Fate.FAILED: "failed",
    Fate.LEFT: "left",
    Fate.REFUSED: "refused",
    Fate.UNDONE: "undone",
    Fate.WAITING: "waiting",
    Fate.OPEN: "unfinished",
}
THROWN_AWAY = (
    Fate.DROPPED,
    Fate.CANCELLED,
    Fate.LATE,
    Fate.FAILED,
    Fate.LEFT,
    Fate.REFUSED,
    Fate.UNDONE,
)


class Cause(IntEnum):
    """What held a round up most.

    DOWNLOAD, COMPUTE, UPLOAD, PLAN (a probed client waited for its work): of the blamed client's task.
    OFFLINE: a client that had left, dropped out or was still to come; FAILED: a task that failed
    otherwise; DEADLINE: a time that the policy had set; PACE: the same where it is just what the blamed
    client needs by its profile of this round; BUFFER: too few updates to fill it; OTHER: nothing of
    these, such as the start of the run.
    """

    OTHER = 0
    DOWNLOAD = 1
    COMPUTE = 2
    UPLOAD = 3
    PLAN = 4
    OFFLINE = 5
    FAILED = 6
    DEADLINE = 7
    BUFFER = 8
    PACE = 9

    @property
    def text(self) -> str:
        """How people call it, also in report.json."""
        return self.name.lower()


class Waits(IntEnum):
    """What clients wait for in a run: the round, their group, or nothing but being asked again."""

    ROUND = 0
    GROUP = 1
    NOTHING = 2
