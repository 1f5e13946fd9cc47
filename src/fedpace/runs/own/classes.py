"""Policies that are given as classes: in a config they stand under their import path."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedpace.core.errors import ConfigError
from fedpace.runs import plugins

if TYPE_CHECKING:
    from fedpace.runs.config import Config

Table = dict[str, Any]


def classes_by_path(table: Table) -> tuple[Table, dict[str, type[Any]]]:
    """The table of a config with import paths in place of policy classes, and those classes by them."""
    kinds: dict[str, type[Any]] = {}

    def path(value: Any) -> Any:
        if not isinstance(value, type):
            return value
        name = f"{value.__module__}:{value.__qualname__}"
        kinds[name] = plugins.check_kind("policies", name, value)
        return name

    found = dict(table)
    if isinstance(found.get("policies"), Mapping):
        found["policies"] = {
            label: {**own, "use": path(own["use"])}
            if isinstance(own, Mapping) and "use" in own
            else own
            for label, own in found["policies"].items()
        }
    if isinstance(kind := found.get("policy"), type):
        label = kind.__name__
        own = found.get("policies", {}).get(label, {})
        found |= {
            "policy": label,
            "policies": {**found.get("policies", {}), label: {**own, "use": path(kind)}},
        }
    return found, kinds


def with_policies(config: "Config", tables: Mapping[str, Any]) -> "Config":
    """The config with more labels. tables: what is in [policies] under each, a class, or a name."""
    given = {
        label: dict(one)
        if isinstance(one, Mapping)
        else dict(config.policies.get(label, {})) | {"use": one}
        for label, one in tables.items()
    }
    found, kinds = classes_by_path({"policies": given})
    policies = {**config.policies, **found["policies"]}
    own = replace(config.own, kinds={**config.own.kinds, **kinds})
    return replace(config, policies=policies, own=own)


def with_policy(config: "Config", policy: Any) -> "tuple[Config, str]":
    """The config and the label of one policy: its own where `policy` is None, or that of a class."""
    if isinstance(policy, type):
        return with_policies(config, {policy.__name__: policy}), policy.__name__
    if policy is not None and not isinstance(policy, str):
        raise ConfigError(f"policy is {policy!r}; give a label, a name, or a class derived from Policy")
    return config, policy or config.policy
