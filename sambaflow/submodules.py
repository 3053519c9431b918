"""Modules that are imported when somebody asks a package for them by attribute.

Applications write `samba.utils.common.common_app_driver` after `import sambaflow.samba`. To import
all modules with the package would make every start wait for what few of them use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType


def on_demand(package: str, *modules: str) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for `package`, which imports one of its `modules` by name."""

    def find(name: str) -> ModuleType:
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
