"""A policy of your own: every client trains all the time, and each update is used as it comes."""

from dataclasses import dataclass
from typing import Annotated

import fedpace
from fedpace.core.commands import Aggregate, Train
from fedpace.core.policy import Policy


@dataclass(frozen=True)
class EagerSettings:
    weight: Annotated[float, "how much one update counts"] = 0.1


class Eager(Policy[EagerSettings]):
    """No rounds, no buffer."""

    Settings = EagerSettings

    def give(self, client):
        return Train(client, self.new_task(), self.version, self.context.work())

    def on_joined(self, event):
        yield self.give(event.client)

    def on_arrived(self, event):
        yield Aggregate((event.task,), (self.settings.weight,), rule="sum")
        yield self.give(event.client)  # starts from the new version

    def on_failed(self, event):
        if self.books.clients.is_online(event.client):
            yield self.give(event.client)


if __name__ == "__main__":
    config = {
        "policy": "eager",
        "policies": {"eager": {"use": "own_policy:Eager", "weight": 0.2}},
        "clients": 16,
        "task": {"kind": "fashion-mnist", "model": "mlp"},
        "partition": {"alpha": 1.0},
        "stop": {"hours": 0.25},
        "evaluate": {"every_s": 60},
    }
    result = fedpace.simulate(config)
    print(f"accuracy {result.accuracy[-1][1]:.1%} after {result.summary.end_s:.0f} virtual seconds")
