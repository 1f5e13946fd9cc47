"""A policy's handlers are checked when its class is defined."""

import pytest

from fedpace.core.errors import PolicyError
from fedpace.core.policy import Policy


def define(name, handler, *bases):
    return type("Own", (*bases, Policy), {name: handler})


def test_a_misspelt_handler_is_an_error_that_names_the_nearest_one():
    with pytest.raises(PolicyError, match=r"policy Own has 'on_arived', .*did you mean 'on_arrived'\?"):
        define("on_arived", lambda self, event: ())


def test_a_handler_that_is_near_none_is_told_which_there_are():
    with pytest.raises(PolicyError, match=r"handlers are on_started, on_joined, .*by another name"):
        define("on_midnight", lambda self, event: ())


def test_a_misspelt_handler_of_a_mixin_is_found_too():
    class Mixin:
        def on_finished(self, event):
            return ()

    with pytest.raises(PolicyError, match="on_finished"):
        type("Own", (Mixin, Policy), {})


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        (lambda self: (), r"takes \(self\)"),
        (lambda self, event, more: (), r"takes \(self, event, more\)"),
        (staticmethod(lambda self, event: ()), r"write \(event\)"),
    ],
)
def test_a_handler_takes_one_event(handler, found):
    with pytest.raises(PolicyError, match=rf"Own.on_timer .*{found}"):
        define("on_timer", handler)


async def hastens(self, event):
    return ()


def test_a_handler_is_not_async():
    with pytest.raises(PolicyError, match="on_left is async"):
        define("on_left", hastens)


@pytest.mark.parametrize(
    "handler",
    [
        lambda self, event: (),
        lambda self, event, more=1: (),
        lambda self, *events: (),
        staticmethod(lambda event: ()),
        classmethod(lambda cls, event: ()),
    ],
)
def test_handlers_that_can_be_called_are_fine(handler):
    define("on_timer", handler)
