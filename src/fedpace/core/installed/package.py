"""Version and plugins of fedpace: of its installation, or of the checkout that it is imported from.

A checkout on `PYTHONPATH=src` has no metadata of a package; its pyproject.toml says the same.
"""

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from fedpace.core.errors import FedpaceError

_ROOT = Path(__file__).parents[4]
"""The folder that holds `src`, where this is a checkout."""


@cache
def package_version() -> str:
    """The version of fedpace."""
    try:
        return metadata.version("fedpace")
    except metadata.PackageNotFoundError:
        return str(_project(_ROOT)["version"])


def checkout_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points that pyproject.toml has for a group, where fedpace is not installed."""
    try:
        metadata.distribution("fedpace")
    except metadata.PackageNotFoundError:
        table = _project(_ROOT).get("entry-points", {}).get(group, {})
        return tuple(EntryPoint(name, value, group) for name, value in table.items())
    return ()


@cache
def _project(root: Path) -> dict[str, Any]:
    """The table [project] of the checkout."""
    import tomllib  # needed by those alone who have not installed it

    try:
        found = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    except (OSError, tomllib.TOMLDecodeError, KeyError):
        found = {}
    if not isinstance(found, dict) or found.get("name") != "fedpace":
        raise FedpaceError(
            f"fedpace is imported from {root}, which is neither an installation nor a checkout; "
            "install it (pip install PATH-TO-FEDPACE), or put src of a checkout on PYTHONPATH"
        )
    return found
