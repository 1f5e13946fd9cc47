"""The Ray cluster that runs and workers use: that of RAY_ADDRESS, or one of this machine."""

import os
from importlib import import_module
from typing import Any

from fedpace.core.errors import ConfigError, needs_extra


def open_cluster(cores: int) -> tuple[Any, bool]:
    """Ray, and whether a cluster was joined or started here, to be left by `ray.shutdown`.

    cores: of a cluster that is started on this machine.
    """
    with needs_extra("ray"):
        ray = import_module("ray")
    if ray.is_initialized():
        return ray, False
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(
            include_dashboard=False, log_to_driver=False, **({} if address else {"num_cpus": cores})
        )
    except (ConnectionError, RuntimeError) as error:
        if not address:
            raise
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"RAY_ADDRESS is {address}, but no cluster can be joined there: {reason}; start one there "
            "(ray start --head), with the same token where it wants one, or unset RAY_ADDRESS"
        ) from error
    return ray, True
