"""Messages about policies that fail or break a rule: which one, at which event, when and where."""

from typing import Any

from fedpace.core.contract.places import files_of, place_of_error, place_of_function, place_of_yield
from fedpace.core.errors import FedpaceError, PolicyError
from fedpace.core.events import Event


def policy_failure(policy: Any, event: Event, error: Exception) -> PolicyError:
    """The code of a policy has failed, or has answered with what cannot be gone through."""
    name, at = _name(policy), describe_event(event)
    if error.__traceback__ is not None and error.__traceback__.tb_next is None:
        given = str(error).removesuffix(" object is not iterable").replace("'NoneType'", "None")
        where = _behind(place_of_function(_handler(policy, event)))
        return PolicyError(
            f"{name} answered {at} with {given}; yield commands, or return a list of them{where}"
        )
    where = _behind(place_of_error(error, files_of(type(policy).__mro__)))
    return PolicyError(f"{name} failed at {at}: {type(error).__name__}: {error}{where}")


def where_given(policy: Any, event: Event, answers: Any) -> str:
    """Where a policy gave a command that is wrong, to stand behind what is wrong with it."""
    place = place_of_yield(answers) or place_of_function(_handler(policy, event))
    return f" ({_name(policy)} at {describe_event(event)}{'' if place is None else '; ' + place})"


def describe_event(event: Event) -> str:
    """An event's kind, whom it is about, and its time."""
    names = [one for one in ("client", "task", "name", "request") if one in event.__struct_fields__]
    about = [*(f"{name} {getattr(event, name)!r}" for name in names), f"{event.at:g} s"]
    return f"{type(event).__name__} ({', '.join(about)})"


def make_policy(kind: type[Any], settings: Any, context: Any) -> Any:
    """A policy of a class; PolicyError names the line where its own code fails."""
    try:
        return kind(settings, context)
    except FedpaceError:
        raise
    except Exception as error:
        where = _behind(place_of_error(error, files_of(kind.__mro__)))
        raise PolicyError(
            f"policy {kind.__name__} cannot be made: {type(error).__name__}: {error}{where}"
        ) from error


def _name(policy: Any) -> str:
    return f"policy {type(policy).__name__}"


def _handler(policy: Any, event: Event) -> Any:
    return getattr(policy, f"on_{type(event).__name__.lower()}", None)


def _behind(place: str | None) -> str:
    return "" if place is None else f" ({place})"
