"""Errors of a policy name it, the event, its time, and the line in the policy's own file."""

import inspect

import pytest

from fedpace.core.commands import Train, Work
from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import PolicyError
from fedpace.core.events import Joined, Started
from fedpace.core.journal import Memory
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, NoSettings, Policy
from fedpace.core.session import Session

CONTEXT = Context(0, 3, ModelProfile.even(4, 400), 20)


def line_of(function, text):
    """`file:line` of the line with a text, as errors have it."""
    lines, first = inspect.getsourcelines(function)
    place = next(number for number, line in enumerate(lines) if text in line)
    return rf"test_faults.py:{first + place}, in "


def complaint(kind, event):
    with pytest.raises(PolicyError) as caught:
        Session(kind(NoSettings(), CONTEXT), Memory()).handle(event)
    return str(caught.value)


class Dividing(Policy):
    def on_joined(self, event):
        yield from self.share(event.samples)

    def share(self, samples):
        return [sum(map(int, str(samples))) / 0]


class Deep(Policy):
    def on_started(self, event):
        return int("seven", base=event.at)  # fails below this line


class Wrong(Policy):
    def on_started(self, event):
        yield from self.give()

    def give(self):
        work = Work(20, epochs=1)
        yield Train(5, self.new_task(), 0, work)


class Listed(Policy):
    def on_started(self, event):
        return [Train(5, self.new_task(), 0, Work(20, epochs=1))]


class Single(Policy):
    def on_started(self, event):
        return Train(5, self.new_task(), 0, Work(20, epochs=1))


def test_an_exception_is_told_with_policy_event_time_file_and_line():
    found = complaint(Dividing, Joined(12.5, 2, 200))
    assert found.startswith(
        "policy Dividing failed at Joined (client 2, 12.5 s): ZeroDivisionError: division by zero ("
    )
    assert line_of(Dividing.share, "/ 0") in found
    assert found.endswith("in share)")


def test_the_line_is_the_policys_where_it_calls_others():
    assert line_of(Deep.on_started, "fails below") in complaint(Deep, Started(0.0))


def test_a_command_that_breaks_a_rule_is_told_with_the_line_that_gave_it():
    found = complaint(Wrong, Started(3.0))
    assert found.startswith(
        "task 1 is for client 5, which is not online (policy Wrong at Started (3 s); "
    )
    assert line_of(Wrong.give, "yield Train") in found


def test_of_commands_in_a_list_the_handler_is_named():
    assert line_of(Listed.on_started, "def on_started") in complaint(Listed, Started(0.0))


def test_an_answer_that_is_no_list_says_what_to_do():
    found = complaint(Single, Started(0.0))
    assert "with 'Train'; yield commands, or return a list of them" in found
    assert line_of(Single.on_started, "def on_started") in found


class Unmade(Policy):
    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.share = settings.share


def test_a_policy_that_cannot_be_made_is_named_with_its_line():
    with pytest.raises(PolicyError, match=r"policy Unmade cannot be made: AttributeError") as caught:
        make_policy(Unmade, NoSettings(), CONTEXT)
    assert line_of(Unmade.__init__, "settings.share") in str(caught.value)
