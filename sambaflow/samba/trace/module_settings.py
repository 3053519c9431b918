"""What modules are and have, beside tensors, where `forward` reads it: it is compiled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import getattr_static
from typing import TypeAlias

from torch import nn

from sambahost.models import held

Settings: TypeAlias = "dict[str, dict[str, object]]"
"""Of modules by path: their attributes by name; the name of the class is `CLASS`."""

CLASS = "class"
"""What no attribute can be called."""
MODE = "training"
"""Whether a module trains: where its `forward` asks."""
_PLAIN = (bool, int, float, str, type(None))
_MOST = 100
_ABSENT = object()


@contextmanager
def noting(model: nn.Module) -> Iterator[Settings]:
    """Note the numbers and texts in attributes of modules of `model` that are read in the block.

    Those that the block itself has written, or filled, are left out when it is over: they are no
    settings. Neither are properties, whose getters read such attributes themselves. Attributes of
    other objects, such as configurations that a module has, are not looked at. A model that is to
    evaluate as a whole trains as a whole where it is compiled to train.
    """
    modules = {id(module): (path, module) for path, module in model.named_modules()}
    before = {number: _held(module) for number, (_, module) in modules.items()}
    read: dict[tuple[int, str], object] = {}
    plain = object.__getattribute__

    def look(module: nn.Module, name: str) -> object:
        value = plain(module, name)
        if id(module) in before and (name == MODE or (name not in _TORCHS and is_plain(value))):
            read.setdefault((id(module), name), value)
        return value

    found: Settings = {path: {CLASS: type(part).__qualname__} for path, part in modules.values()}
    # Modules have the method of `object`; no other place sees what is stored in them being read.
    nn.Module.__getattribute__ = look  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        del nn.Module.__getattribute__
    after = {number: _held(module) for number, (_, module) in modules.items()}
    for (number, name), value in read.items():
        path, module = modules[number]
        if name == MODE:
            found[path][name] = module.training or not model.training
            continue
        is_stored = getattr_static(module, name, _ABSENT) is value  # by itself, or by its class
        if is_stored and after[number].get(name) == before[number].get(name):
            found[path][name] = value


def _held(module: nn.Module) -> dict[str, object]:
    items = vars(module).items()
    return {name: held(value) for name, value in items if name not in _TORCHS and is_plain(value)}


_TORCHS = frozenset(dir(nn.Module())) | {"output_tensors"}
"""Attributes that every module has, and what tracing gives a model."""


def is_plain(value: object) -> bool:
    """Return whether `value` is a number, a text, or a short list or dictionary of such."""
    if isinstance(value, list | tuple):
        return len(value) <= _MOST and all(map(is_plain, value))
    if isinstance(value, Mapping):
        return len(value) <= _MOST and all(map(is_plain, (*value, *value.values())))
    return type(value) in _PLAIN
