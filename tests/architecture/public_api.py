"""Prints every public name of the packages with its signature: `python public_api.py`.

A test compares the output with `public_api.txt` beside this file, so that a change of what users
can rely on is seen in review.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ForwardRef

_PACKAGES = ("sambac", "sambarun", "pef", "sambaflow.samba", "pybuda")


def describe(package: str) -> Iterator[str]:
    """A line for each name in the package's `__all__`, and for each public member of a class."""
    module = importlib.import_module(package)
    for name in sorted(module.__all__):
        yield from _lines(f"{package}.{name}", getattr(module, name))


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"{name}: module"
    elif isinstance(value, enum.EnumType):
        yield f"{name}: {', '.join(f'{item.name}={item.value}' for item in value)}"
    elif isinstance(value, type) and issubclass(value, Exception):
        yield f"{name}: exception"
    elif callable(value):
        yield name + _signature(value)
        if isinstance(value, type):
            yield from _members(name, value)
    elif type(value).__repr__ is object.__repr__:
        yield f"{name}: {type(value).__qualname__}"
    else:
        yield f"{name} = {value!r}"


def _members(name: str, owner: type) -> Iterator[str]:
    """The public methods and properties of a class, those of bases in its package among them.

    Properties are all attributes for which there is code of Python's.
    """
    package = owner.__module__.partition(".")[0]
    own = (base for base in owner.__mro__ if base.__module__.partition(".")[0] == package)
    members = {member: value for base in reversed([*own]) for member, value in vars(base).items()}
    for member, value in sorted(members.items()):
        if member.startswith("_"):
            continue
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        setter = getattr(type(value), "__set__", None)
        if isinstance(value, property) or inspect.isfunction(setter):
            yield f"  {name}.{member}"
        elif inspect.isfunction(value):
            yield f"  {name}.{member}{_signature(value)}"


def _signature(function: Callable[..., Any]) -> str:
    """Parameters with annotations and defaults, spelt alike by all versions of Python."""
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        text = f"{parameter.name}: {_spelling(parameter.annotation)}"
        if default is not inspect.Parameter.empty:
            text += f" = {default.name if isinstance(default, enum.Enum) else repr(default)}"
        keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        parts.append(text.replace(": -", "") + (" (keyword)" if keyword_only else ""))
    returned = inspect.signature(function).return_annotation
    arrow = "" if returned in (inspect.Signature.empty, None) else f" -> {_spelling(returned)}"
    return f"({', '.join(parts)}){arrow}"


def _spelling(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return "-"
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)


if __name__ == "__main__":
    for package in _PACKAGES:
        print(*describe(package), sep="\n")
