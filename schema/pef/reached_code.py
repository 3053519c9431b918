"""Python code that other code gets to: the functions, classes and files that it names.

Only what a function names is followed: not all that its file imports, and of classes the methods of
which some function says the name. Nor is what functions of installed packages name that have
nothing of PyTorch, such as one for requests or for symbols: what they keep was given to them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeGuard, TypeVar

_Kind = TypeVar("_Kind")

_TOOLCHAIN = ("pef", "pybuda", "sambac", "sambaflow", "sambahost", "sambarun")
# What runs programs: code of tests gets to all tests of the session by the hooks of asserts.
_RUNNERS = ("_pytest", "pytest", "pluggy", "IPython", "ipykernel")
_FOREIGN = frozenset({*sys.stdlib_module_names, "numpy", "torch", *_TOOLCHAIN, *_RUNNERS})
"""Packages whose code and objects are not looked into: what they hold is theirs."""

_HOLDERS = {
    staticmethod: "__func__",
    classmethod: "__func__",
    MethodType: "__func__",
    property: "fget",
    functools.partial: "func",
    functools.partialmethod: "func",
    functools.cached_property: "func",
}
"""What stands for a function, and where it has that."""


@dataclass
class ReachedCode:
    """What was found: each function, class, dict of global variables and cache of a function once.

    `functions` and `kinds`, which are classes with their bases, are those that `reach` found last;
    packages that are foreign (see `is_foreign`) have no part. `names` are all that functions say,
    `files` all global variables by their identity.
    """

    functions: list[FunctionType] = field(default_factory=list)
    kinds: list[type] = field(default_factory=list)
    files: dict[int, dict[str, Any]] = field(default_factory=dict)
    caches: list[_lru_cache_wrapper[object]] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: {"forward"})
    _packages: _Packages = field(default_factory=lambda: _Packages())
    _unnamed: dict[str, list[object]] = field(default_factory=dict)
    _seen: dict[int, object] = field(default_factory=dict)

    def reach(self, found: Iterable[object]) -> bool:
        """Add what can be reached from functions, classes and objects; tell whether any is new."""
        pending, seen = [*found], len(self._seen)
        self.functions, self.kinds = [], []
        while pending:
            value = pending.pop()
            if id(value) not in self._seen:
                self._seen[id(value)] = value  # which stays alive, so that no other has its id
                pending += self._take(value)
        self.files |= {id(one.__globals__): one.__globals__ for one in self.functions}
        return len(self._seen) > seen

    def _take(self, value: object) -> Iterator[object]:
        """Note `value`, and yield what it gets to."""
        if is_of(value, FunctionType):
            yield from _enclosed(value)  # a decorator's function has another one there
            if not is_foreign_file(value.__globals__):
                self.functions.append(value)
                if self._packages.lead_on(value.__globals__) or _imports_torch(value):
                    yield from self._named(value)
        elif is_of(value, type):
            if not is_foreign(value):
                self.kinds.append(value)
                yield from value.__bases__
                yield from self._methods(value)
        elif is_of(value, _lru_cache_wrapper):
            if not _is_of_others(value.__module__):
                self.caches.append(value)
                yield value.__wrapped__
        elif is_of(value, ModuleType):
            self.files[id(vars(value))] = vars(value)
        elif type(value) in _HOLDERS:
            yield getattr(value, _HOLDERS[type(value)])
        else:
            yield type(value)

    def _methods(self, kind: type) -> Iterator[object]:
        """Yield what of a class is named so far, and what nobody needs to name."""
        for name, value in list(vars(kind).items()):
            if name in self.names or name.startswith("__"):
                yield value
            else:
                self._unnamed.setdefault(name, []).append(value)

    def _named(self, function: FunctionType) -> Iterator[object]:
        """Yield what a function names: global variables, what modules have, methods."""
        names, variables = set(_names(function.__code__)), function.__globals__
        for name in names & variables.keys():
            value = variables[name]
            if not is_of(value, ModuleType):
                yield value
            elif not _is_of_others(value.__name__):
                yield value
                yield from [vars(value)[inner] for inner in names & vars(value).keys()]
        for name in names - self.names:
            yield from self._unnamed.pop(name, ())
        self.names |= names


@dataclass(frozen=True)
class _Packages:
    """Which packages lead on to more code: the user's own, and those that have to do with PyTorch.

    `known` says so of installed ones by name. Of an installed one without PyTorch, which may have
    thousands of functions, tensors are where it was given them: enclosed by its functions, as by
    those of caches, or in its objects.
    """

    known: dict[str, bool] = field(default_factory=dict)
    files: dict[str, list[ModuleType]] = field(default_factory=lambda: _files_by_package())

    def lead_on(self, variables: Mapping[str, Any]) -> bool:
        """Tell whether what functions of a file name, which has these variables, is followed."""
        name = _package_of(variables)
        if name not in self.known:
            self.known[name] = not is_installed(variables) or self._has_torch(name)
        return self.known[name]

    def _has_torch(self, package: str) -> bool:
        """Tell whether a file of a package, of those loaded, has anything of PyTorch."""
        files = self.files.get(package, [])
        return any(_is_torch(one) for file in files for one in list(vars(file).values()))


def _files_by_package() -> dict[str, list[ModuleType]]:
    """Return the files that are loaded, by their packages; some put other objects there."""
    files: dict[str, list[ModuleType]] = {}
    for name, file in list(sys.modules.items()):
        if is_of(file, ModuleType):
            files.setdefault(name.partition(".")[0], []).append(file)
    return files


def _imports_torch(function: FunctionType) -> bool:
    """Tell whether a function imports PyTorch itself, as packages do that may run without it."""
    return "torch" in function.__code__.co_names


def _is_torch(value: object) -> bool:
    name = value.__name__ if is_of(value, ModuleType) else None
    if is_of(value, (type, FunctionType)):
        name = value.__module__
    return str(name).partition(".")[0] == "torch"


def is_of(value: object, kinds: type[_Kind] | tuple[type[_Kind], ...]) -> TypeGuard[_Kind]:
    """Tell whether `value` is of one of `kinds`, by its type alone.

    `isinstance` asks `__class__` too, which may be somebody's code: of what stands for another
    object, and may not have it yet, or no longer.
    """
    return issubclass(type(value), kinds)


def are_closed(kind: type) -> bool:
    """Tell whether objects of a class are the business of PyTorch, or of this toolchain."""
    return str(kind.__module__).partition(".")[0] in {"torch", *_TOOLCHAIN}


def is_hand_made(module: ModuleType) -> bool:
    """Tell whether a module is not an imported one."""
    return sys.modules.get(module.__name__) is not module


def is_foreign(kind: type) -> bool:
    """Tell whether a class is one of the packages whose objects are theirs."""
    return _is_of_others(kind.__module__)


def is_foreign_file(variables: Mapping[str, Any]) -> bool:
    """Tell the same of the file with these global variables."""
    return _package_of(variables) in _FOREIGN


def _package_of(variables: Mapping[str, Any]) -> str:
    """Return the package of the file with these global variables."""
    return str(variables.get("__name__", "")).partition(".")[0]


def is_of_toolchain(value: object) -> bool:
    """Tell whether `value` is a function of this toolchain."""
    return is_of(value, FunctionType) and _package_of(value.__globals__) in _TOOLCHAIN


def is_installed(variables: Mapping[str, Any]) -> bool:
    """Tell whether the file with these global variables is of an installed package."""
    parts = str(variables.get("__file__", "")).replace("\\", "/").split("/")
    return not {"site-packages", "dist-packages"}.isdisjoint(parts)


def _is_of_others(module: object) -> bool:
    return str(module).partition(".")[0] in _FOREIGN


def _enclosed(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it may be empty
            yield cell.cell_contents


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in `code`, and in functions inside of it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
