"""The ServerApp and the ClientApp of a Flower project."""

import inspect
import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.errors import ConfigError, needs_extra
from fedpace.flower.client import Worker, node_name
from fedpace.flower.messages import NodeMessage
from fedpace.flower.server import serve
from fedpace.flower.settings import FlowerSettings
from fedpace.learn.tasks.task import Task
from fedpace.runs import config as configs
from fedpace.runs.config import Config
from fedpace.runs.logs import set_up_logs

if TYPE_CHECKING:
    from flwr.app import Context, Message  # type: ignore[import-not-found, unused-ignore]
    from flwr.clientapp import ClientApp  # type: ignore[import-not-found, unused-ignore]
    from flwr.serverapp import Grid, ServerApp  # type: ignore[import-not-found, unused-ignore]

Factory = Callable[..., Task]
"""Gives a task; one that must have an argument gets Flower's context, which knows the node's config."""
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_FLOWER = "flower."


def server_app(
    config: Mapping[str, Any] | str | Path, task: Factory | None = None, device: str = "cpu"
) -> "ServerApp":
    """A ServerApp that runs the config's policy.

    task: the model and the test data; None: the config's own task. Flower's run config can override
    every key of the config, such as `policy` or `stop.rounds`; its keys `flower.*` are those of
    FlowerSettings.
    """
    with needs_extra("flower"):
        from flwr.serverapp import ServerApp

    app = ServerApp()

    def main(grid: "Grid", context: "Context") -> None:
        from fedpace.flower.grid import FlowerGrid

        _say()
        settings, flower = read_run_config(config, context.run_config)
        made = None if task is None else _made(task, context)
        serve(FlowerGrid(grid), settings, flower, task=made, device=device)

    app.main()(main)
    return app


def client_app(factory: Factory, device: str = "cpu", threads: int | None = 1) -> "ClientApp":
    """A ClientApp that trains for `server_app`. factory: gives the task with this node's data.

    The node config can set `name`, which a SuperNode that is started anew is known again by,
    `device`, and `slower`, to act as a slower machine.
    """
    with needs_extra("flower"):
        from flwr.app import Message
        from flwr.clientapp import ClientApp

        from fedpace.flower.grid import from_records, to_records

    app = ClientApp()

    def worker(context: "Context") -> Worker:
        own = context.node_config
        slower = float(own.get("slower", 1.0))
        if not slower >= 1:
            raise ConfigError(f"slower is {slower}; a machine can only be made slower, set 1 or more")
        device_here = str(own.get("device", device))
        return Worker(lambda: _made(factory, context), device_here, slower, threads)

    def answer(reply: NodeMessage, message: "Message") -> "Message":
        return Message(to_records(reply), reply_to=message)

    def hello(message: "Message", context: "Context") -> "Message":
        name = node_name(context.node_id, context.node_config)
        return answer(worker(context).introduce(name), message)

    def carry_out(message: "Message", context: "Context") -> "Message":
        return answer(worker(context).carry_out(from_records(message.content)), message)

    app.query("hello")(hello)
    app.query("probe")(carry_out)
    app.train()(carry_out)
    return app


def read_run_config(
    config: Mapping[str, Any] | str | Path, run_config: Mapping[str, Any]
) -> tuple[Config, FlowerSettings]:
    """A config with what Flower's run config overrides, and the settings for Flower."""
    own = {key.removeprefix(_FLOWER): run_config[key] for key in run_config if key.startswith(_FLOWER)}
    overrides = [
        f"{key}={json.dumps(value)}" for key, value in run_config.items() if not key.startswith(_FLOWER)
    ]
    return configs.load(config, overrides), configs.build(FlowerSettings, own, "flower")


def _made(factory: Factory, context: "Context") -> Task:
    given = inspect.signature(factory).parameters.values()
    wants_context = any(one.default is one.empty and one.kind in _PLACED for one in given)
    task = factory(context) if wants_context else factory()
    if not isinstance(task, Task):
        raise ConfigError(f"{factory} gave {task!r}; it must return a fedpace Task")
    return task


def _say() -> None:
    """Logs on stdout, which Flower streams to whoever has started the run."""
    if not logging.getLogger("fedpace").handlers:
        set_up_logs(stream=sys.stdout)
