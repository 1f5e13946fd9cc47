"""A simulated world driven by hand: its books are kept here, as a session would."""

from fedpace.core.books import Bookkeeper
from fedpace.core.budget import Budget
from fedpace.core.run import Tick


class Driven:
    """A world whose events and commands are entered into books of its own."""

    def __init__(self, world):
        self.world, self.books = world, Bookkeeper(Budget())
        world.attach(self.books)

    def next(self):
        event = self.world.next()
        if event is not None and not isinstance(event, Tick):
            self.books.now = event.at
            self.books.note(event)
        return event

    def carry_out(self, command, at):
        self.books.now = max(self.books.now, at)
        self.books.note(command)
        self.world.carry_out(command, at)

    def __getattr__(self, name):
        return getattr(self.world, name)
