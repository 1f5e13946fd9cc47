"""Rules for the handlers of a policy, checked when its class is defined."""

import inspect
from typing import Any

from fedpace.core.errors import PolicyError, nearest

PREFIX = "on_"


def check_handlers(kind: type[Any], base: type[Any]) -> None:
    """PolicyError for a handler that no event calls, or that cannot be called with one event.

    base: has all handlers that there are. Mixins that `kind` derives from are looked at, too.
    """
    known = [name for name in vars(base) if name.startswith(PREFIX)]
    for owner in kind.__mro__:
        if owner in base.__mro__:
            continue
        for name, value in vars(owner).items():
            if not name.startswith(PREFIX):
                continue
            if name not in known:
                raise PolicyError(
                    f"policy {kind.__name__} has {name!r}, which no event calls{nearest(name, known)}; "
                    f"handlers are {', '.join(known)}; call what is none of them by another name"
                )
            _check_call(f"{kind.__name__}.{name}", value)


def _check_call(name: str, handler: Any) -> None:
    """PolicyError unless a handler, as it stands in its class, takes itself and one event."""
    alone = isinstance(handler, staticmethod)
    function = handler.__func__ if isinstance(handler, staticmethod | classmethod) else handler
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PolicyError(f"{name} is async, but a policy waits for nothing; write it as a plain def")
    if not inspect.isfunction(function):
        return  # something callable, such as a partial, which says itself what it takes
    signature = inspect.signature(function)
    try:
        signature.bind(*([None] if alone else [None, None]))
    except TypeError:
        right = "(event)" if alone else "(self, event)"
        raise PolicyError(
            f"{name} takes {signature}, but is called with one event; write {right}"
        ) from None
