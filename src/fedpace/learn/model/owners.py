"""Owners of parameters and buffers among modules, by the order in which these run."""

from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.model.calls import ModuleCalls


def check(model: nn.Module) -> None:
    """Refuse a model that cannot be cut into layers and flat vectors."""
    params = dict(model.named_parameters())
    for name, param in params.items():
        if nn.parameter.is_lazy(param):
            raise ConfigError(
                f"parameter {name!r} has no shape yet; use modules with explicit input sizes"
            )
        if param.requires_grad and not param.is_floating_point():
            raise ConfigError(f"parameter {name!r} is {param.dtype}; only real numbers can be trained")
    for name, buffer in model.named_buffers():
        if buffer.is_complex():
            raise ConfigError(f"buffer {name!r} is {buffer.dtype}; store real and imaginary part apart")
    if not any(param.requires_grad for param in params.values()):
        raise ConfigError(
            f"model {type(model).__name__} has no trainable parameters; there is nothing to train"
        )


def place_of(name: str, calls: dict[str, ModuleCalls]) -> int:
    """Tick of the module's last call, or of its nearest called ancestor's."""
    while name and name not in calls:
        name = name.rpartition(".")[0]
    return calls[name].last


def owned_params(model: nn.Module, place: dict[str, int]) -> dict[str, list[str]]:
    """Trainable parameters by the module that uses them last; names as in named_parameters()."""
    canonical = {id(param): name for name, param in model.named_parameters()}
    owner: dict[int, str] = {}
    for name, module in model.named_modules():
        for param in module.parameters(recurse=False):
            best = owner.setdefault(id(param), name)
            if param.requires_grad and place[name] > place[best]:
                owner[id(param)] = name
    owned: dict[str, list[str]] = {}
    for param in model.parameters():
        if param.requires_grad:
            owned.setdefault(owner[id(param)], []).append(canonical[id(param)])
    return owned


def frozen_modules(model: nn.Module) -> set[str]:
    """Modules that have parameters, own or of those inside them, none of which is trained."""
    found = set()
    for name, module in model.named_modules():
        trained = [param.requires_grad for param in module.parameters()]
        if trained and not any(trained):
            found.add(name)
    return found


def layer_of(module: str, order: list[str], place: dict[str, int]) -> str:
    """The layer that holds the buffers of `module`: itself, else the one called before it."""
    if module in order:
        return module
    before = [name for name in order if place[name] <= place[module]]
    return before[-1] if before else order[0]
