"""Modules that are imported when somebody asks a package for them by attribute.

Applications write `samba.utils.common.common_app_driver` after `import sambaflow.samba`. To import
all modules with the package would make every start wait for what few of them use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import NoReturn

from pef.wording import did_you_mean


def on_demand(package: str, *modules: str, **absent: str) -> Callable[[str], ModuleType]:
    """Return a `__getattr__` for `package`, which imports one of its `modules` by name.

    `absent` are names of other versions, and what there is instead.
    """

    def find(name: str) -> ModuleType:
        if name in modules:
            return import_module(f"{package}.{name}")
        refuse(f"module {package!r}", name, absent, (*modules, *vars(sys.modules[package])))

    return find


def refuse(owner: str, name: str, absent: Mapping[str, str], known: Iterable[str]) -> NoReturn:
    """Raise `AttributeError` for `name`, with what there is instead, or may be meant."""
    hint = f": {absent[name]}" if name in absent else ""
    if not hint and not name.startswith("_"):  # Python asks for those all the time
        hint = did_you_mean(name, [each for each in known if not each.startswith("_")])
    raise AttributeError(f"{owner} has no attribute {name!r}{hint}", name=name)
