"""Blame in words: "42 s, because of client 23's upload (31 s); 61% of all client time waited"."""

from fedpace.report.timeline.columns import RoundColumns
from fedpace.report.timeline.phases import Cause, Phase

_OF_TASK = {
    Cause.DOWNLOAD: "download",
    Cause.COMPUTE: "compute",
    Cause.UPLOAD: "upload",
    Cause.PLAN: "wait for its work",
}


def seconds_text(seconds: float) -> str:
    """Seconds in a few digits and the unit that suits them: 0.25 s, 42 s, 3.5 min, 12 h."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{_digits(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def explain_round(rounds: RoundColumns, index: int) -> str:
    """How long a round took, why, and who waited. index: of its row, from 0."""
    length_s = float(rounds.end[index] - rounds.start[index])
    parts = [f"{seconds_text(length_s)}, {_reason(rounds, index)}"]
    cause, late = rounds.cause[index], int(rounds.late[index])
    if cause == Cause.DEADLINE and late == 1:
        parts.append(f"client {int(rounds.client[index])} was late")
    elif cause in (Cause.DEADLINE, Cause.PACE) and late:
        parts.append("1 client was late" if late == 1 else f"{late} clients were late")
    if not rounds.updates[index]:
        parts.append("no update was used")
    parts.append(f"{rounds.waited[index]:.0%} of all client time waited")
    return "; ".join(parts)


def _reason(rounds: RoundColumns, index: int) -> str:
    cause, client = Cause(rounds.cause[index]), int(rounds.client[index])
    seconds = seconds_text(float(rounds.cause_s[index]))
    match cause:
        case Cause.DOWNLOAD | Cause.COMPUTE | Cause.UPLOAD | Cause.PLAN:
            return f"because of client {client}'s {_OF_TASK[cause]} ({seconds})"
        case Cause.OFFLINE:
            return f"because client {client} was or went offline ({seconds})"
        case Cause.FAILED:
            return f"because of client {client}'s task, which failed ({seconds})"
        case Cause.DEADLINE:
            return f"because of a time that the policy set ({seconds})"
        case Cause.PACE:
            phase = Phase(rounds.phase[index]).text
            return f"as long as client {client} needs, most of it for {phase}"
        case Cause.BUFFER:
            updates = f"to fill the buffer with {int(rounds.updates[index])} updates"
            phase = Phase(rounds.phase[index]).text
            return f"{updates}, the last from client {int(rounds.last[index])} ({phase})"
        case Cause.OTHER:
            return "held up by nobody"
