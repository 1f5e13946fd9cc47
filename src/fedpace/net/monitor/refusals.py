"""Kinds of refusals and of ends of tasks: few, so that they can be labels of metrics.

Reasons are sentences, for logs and journals; what they are about is told by words that they have. A
sentence with none of them is of kind "other".
"""

OUTCOMES = ("arrived", "refused", "overdue", "failed", "left", "unused", "cancelled", "closed")
"""Ends of a task: failed by its client's word, unused for no fault of its client's."""
_BEGINNINGS = (
    ("refused: ", "refused"),
    ("overdue: ", "overdue"),
    ("not used: ", "unused"),
    ("its update could not be read: ", "unused"),
    ("the client left", "left"),
)
"""How the reasons of failed tasks begin."""

REPORT_REFUSALS = (
    "not_finite",
    "norm",
    "shape",
    "rates",
    "result",
    "no_update",
    "unknown_task",
    "too_often",
    "unreadable",
    "other",
)
_WORDS = (
    ("not finite", "not_finite"),
    (" norm ", "norm"),
    ("impossible rates", "rates"),
    ("its update has not come", "no_update"),
    ("none of this client's", "unknown_task"),
    ("reported on too often", "too_often"),
    ("cannot be used", "unreadable"),
    (" shape ", "shape"),
    ("arrays of", "shape"),
    ("carries depth", "result"),
    ("has depth", "shape"),
    ("has width", "shape"),
    ("has effort", "shape"),
    ("is reported as done", "result"),
    ("was given", "result"),
    ("reports", "result"),
)
CALL_REFUSALS = (
    "credentials",
    "records",
    "calls",
    "hello",
    "name",
    "model",
    "too_often",
    "doubled",
    "place",
    "unreadable",
    "transfer",
    "certificate",
    "order",
)
"""Proof that does not hold; records that cannot be read here; too many calls at a time; no hello;
another name or role than proved; another model; too many connections; a second one of a name; no place,
or shut out; bytes that are no message; a transfer that cannot be taken; a certificate or an order
that the asker may not have."""


def outcome_of(reason: str) -> str:
    """How a failed task ended, by its reason."""
    return next((kind for words, kind in _BEGINNINGS if reason.startswith(words)), "failed")


def refusal_kind(reason: str) -> str | None:
    """What a refused report was about; None: nothing of it was refused, its task ended otherwise."""
    if outcome_of(reason) in ("overdue", "unused", "left"):
        return None
    return next((kind for words, kind in _WORDS if words in reason), "other")
