"""Prints every public name of the packages with its signature: `python public_api.py`.

A test compares the output with `public_api.txt` beside this file, so that a change of what users
can rely on is seen in review.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

_PACKAGES = ("sambac", "sambarun", "pef")


def describe(package: str) -> Iterator[str]:
    """One line for each name in the package's `__all__`."""
    module = importlib.import_module(package)
    for name in sorted(module.__all__):
        yield f"{package}.{name}{_signature(getattr(module, name))}"


def _signature(value: object) -> str:
    if isinstance(value, type) and issubclass(value, Exception):
        return " (exception)"
    if isinstance(value, ModuleType):
        return " (module)"
    if callable(value):
        return str(inspect.signature(value))
    return f" = {value!r}"


if __name__ == "__main__":
    for package in _PACKAGES:
        print(*describe(package), sep="\n")
