"""Names on the device: parameters, gradients and inputs of a model."""

from __future__ import annotations

from torch import nn

_SEPARATOR = "__"


def model_name(model: nn.Module) -> str:
    """Return the name of `model`: what it was named, else its class in small letters."""
    name = model.__dict__.get("name")
    return name if isinstance(name, str) and name else type(model).__name__.lower()


def prefixed(model: str, prefix: str | None) -> str:
    """Return the name `model` behind `prefix`, where it stands only once."""
    start = prefix + _SEPARATOR if prefix else ""
    return start + model.removeprefix(start)


def samba_name(model: str, path: str) -> str:
    """Return the name of the parameter or buffer `path` (`layer.0.weight`) of `model`."""
    return _SEPARATOR.join((model, *path.split(".")))
