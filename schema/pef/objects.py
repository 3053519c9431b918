"""Python objects as they were: what somebody's code keeps from call to call is found and put back.

A model may keep tensors between calls of it, such as a mask that its first call makes. Calls that
only describe tensors would leave descriptions where the model expects values.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from threading import local
from types import CellType, FunctionType, ModuleType, SimpleNamespace, UnionType
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from .reached_code import ReachedCode, is_foreign, is_foreign_file, is_installed

_OPEN = (
    *(Namespace, SimpleNamespace, UserDict, UserList, local),
    *(WeakKeyDictionary, WeakValueDictionary),
)
"""Classes of the standard library whose objects are looked into."""

_LARGE = 1 << 20
"""Bytes from which on the elements of an array are not looked at."""

_COLLECTIONS = (dict, list, tuple, deque, set, frozenset)

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
"""Types of keys whose text is known to be short, and to be made without side effects."""

_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes of modules that tracers of torch replace and put back themselves."""


@dataclass(frozen=True)
class Container:
    """A collection, or an object or a class with attributes: what it held, and what it is called.

    `owned` says that it belongs to a module, not to the file that the module's code is in.
    `direct` that only dicts and lists are between the module and it, `near` that it is of the
    user's own code, not of a package that is installed.
    """

    path: str
    content: object
    before: Mapping[Any, object]
    owned: bool
    direct: bool
    near: bool


@dataclass(frozen=True)
class Change:
    """An entry of a container whose value is not what it was `before`. None is no value too."""

    path: str
    before: object
    value: object
    direct: bool
    near: bool


class ObjectSnapshot:
    """What the objects that `modules` can reach hold now, to find out later what changed.

    Looked into are the attributes of `modules`, and what the code of their classes and hooks gets
    to: functions with what they enclose, classes, and the global variables of their files;
    collections, small arrays and objects of the user's classes in them. `is_tensor` says what is a
    tensor.
    """

    def __init__(self, modules: Iterable[object], is_tensor: Callable[[object], bool]) -> None:
        self._is_tensor = is_tensor
        self._containers: list[Container] = []
        self._seen: set[int] = set()
        self.tensors: list[object] = []
        """The tensors that were there, but for parameters and buffers."""
        modules = list(modules)
        for module in modules:
            self._add(type(module).__name__, vars(module), owned=True, direct=True, near=True)
        code = ReachedCode.of([*map(type, modules), *chain.from_iterable(map(_attached, modules))])
        self._caches = [(cache, cache.cache_info().misses) for cache in code.caches]
        own = {base for module in modules for base in type(module).__mro__}
        for kind in code.kinds:
            near = kind in own or not is_installed(vars(sys.modules.get(kind.__module__, sys)))
            self._add(kind.__name__, kind, owned=False, direct=kind in own, near=near)
        for function in code.functions:
            self._add_function(function)
        for variables in code.files:
            self._add_file(variables)

    def changes(self) -> list[Change]:
        """Return what changed, tensors of the same contents included."""
        return [
            Change(_path(container, key), before, now, container.direct, container.near)
            for container in self._containers
            for key, before, now in self._changed(container)
        ]

    def _changed(self, container: Container) -> Iterator[tuple[object, object, object]]:
        """Yield the keys of what changed, what was there, and what is there now."""
        before, now = container.before, dict(_entries(container.content))
        for key in {**before, **now}:
            if not _is_same(before.get(key, self), now.get(key, self)):
                yield key, before.get(key), now.get(key)

    def found(self, kinds: type | UnionType) -> list[object]:
        """Return what was there of such kinds, each of it once."""
        values = (value for one in self._containers for value in one.before.values())
        return [*{id(value): value for value in values if isinstance(value, kinds)}.values()]

    def restore(self, is_stale: Callable[[object], bool] = lambda _: True) -> None:
        """Put back what modules held. Of other objects only entries with new tensors change.

        Not with all new ones, but with those that are `is_stale`.
        """
        for container in self._containers:
            changed = [
                key
                for key, _, now in self._changed(container)
                if container.owned or any(map(is_stale, self.new_tensors(now)))
            ]
            if changed:
                _put_back(container, changed)
        for cache, misses in self._caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()

    def new_tensors(self, value: object) -> list[object]:
        """Return the tensors in `value`, at any depth, that were not there before."""
        known = {id(tensor) for tensor in self.tensors}
        return [tensor for tensor in self.tensors_of(value) if id(tensor) not in known]

    def tensors_of(self, value: object) -> list[object]:
        """Return the tensors in `value`, at any depth."""
        found: list[object] = []
        self._collect(value, found, set())
        return found

    def _collect(self, value: object, found: list[object], seen: set[int]) -> None:
        if self._is_tensor(value):
            found.append(value)
        elif id(value) not in seen:
            seen.add(id(value))
            for _, item in _entries(_opened(value)):
                self._collect(item, found, seen)

    def _add_function(self, function: FunctionType) -> None:
        """Look into what a function has: attributes, defaults, and variables that it encloses."""
        name, near = function.__name__, not is_installed(function.__globals__)
        self._add(name, vars(function), owned=False, direct=False, near=near)
        for defaults in (function.__defaults__, function.__kwdefaults__):
            self._follow(name, defaults, owned=False, direct=False, near=near)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for variable, cell in cells:
            self._add(f"{name}.{variable}", cell, owned=False, direct=False, near=near)

    def _add_file(self, variables: dict[str, object]) -> None:
        """Look into the global variables of a file."""
        if id(variables) in self._seen or is_foreign_file(variables):
            return
        self._seen.add(id(variables))
        before, near = dict(variables), not is_installed(variables)
        self._containers.append(Container("", variables, before, False, False, near))
        for key, value in before.items():
            if not key.startswith("__"):
                self._follow(key, value, owned=False, direct=False, near=near)

    def _add(self, path: str, content: object, *, owned: bool, direct: bool, near: bool) -> None:
        if id(content) in self._seen:
            return
        self._seen.add(id(content))
        before = dict(_entries(content))
        container = Container(path, content, before, owned, direct, near)
        if not isinstance(content, (tuple, frozenset)):
            self._containers.append(container)
        for key, value in before.items():
            self._follow(_path(container, key), value, owned=owned, direct=direct, near=near)

    def _follow(self, path: str, value: object, *, owned: bool, direct: bool, near: bool) -> None:
        if self._is_tensor(value):
            self.tensors.append(value)
            return
        inside = _opened(value)
        if inside is not None:
            direct = direct and inside is value
            self._add(path, inside, owned=owned, direct=direct, near=near)


def _attached(module: object) -> Iterator[object]:
    """Yield functions that are no part of the class of `module`, such as hooks."""
    for value in list(vars(module).values()):
        inside = list(value.values()) if isinstance(value, dict) else [value]
        yield from filter(callable, inside)


def _opened(value: object) -> object | None:
    """Return what to look into: collections themselves, attributes of the user's objects."""
    if isinstance(value, (*_COLLECTIONS, CellType)):
        return value
    if isinstance(value, np.ndarray):
        small = value.nbytes < _LARGE and not value.dtype.hasobject
        return value if small and value.flags.writeable else None
    if isinstance(value, (type, ModuleType, FunctionType)):
        return None
    if is_foreign(type(value)) and not isinstance(value, _OPEN):
        return None
    return getattr(value, "__dict__", value if _slots(type(value)) else None)


def _slots(kind: type) -> list[str]:
    """Return the names in `__slots__` of `kind`, or of classes that it is of."""
    named = (vars(base).get("__slots__", ()) for base in kind.__mro__)
    return [name for names in named for name in ([names] if isinstance(names, str) else names)]


def _is_same(before: object, now: object) -> bool:
    """Tell whether a value is what it was; other objects of plain types may have equal values."""
    if before is now:
        return True
    return type(before) is type(now) and _is_plain(before) and before == now


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _entries(content: object | None) -> Iterator[tuple[object, object]]:
    """Yield keys and values, without what belongs to torch's tracers.

    They are taken at once: other threads may write. What classes of the user's make of being asked
    for items, such as importing them, is not asked for.
    """
    if isinstance(content, dict):
        yield from [item for item in list(dict.items(content)) if item[0] not in _TABLES]
    elif isinstance(content, (set, frozenset)):
        yield from [(item, item) for item in list(content)]
    elif isinstance(content, _COLLECTIONS):
        yield from enumerate(list(content))
    elif isinstance(content, np.ndarray):
        yield "", content.tobytes()
    elif isinstance(content, CellType):
        with suppress(ValueError):  # it may be empty
            yield "", content.cell_contents
    elif isinstance(content, type):
        yield from [item for item in list(vars(content).items()) if item[0][:2] != "__"]
    elif content is not None:
        names = _slots(type(content))
        yield from [(name, getattr(content, name)) for name in names if hasattr(content, name)]


def _put_back_items(
    content: dict[object, object], before: Mapping[object, object], changed: Iterable[object]
) -> None:
    """Put back items of a dict. What a subclass of the user's does then is not asked for."""
    kind = OrderedDict if isinstance(content, OrderedDict) else dict  # they store items each so
    for key in changed:
        if key in before:
            kind.__setitem__(content, key, before[key])
        else:
            kind.pop(content, key, None)
    if isinstance(content, OrderedDict):
        for key in [key for key in before if key in content]:
            OrderedDict.move_to_end(content, key)


def _put_back(container: Container, changed: Iterable[object]) -> None:
    content, before = container.content, container.before
    if isinstance(content, dict):
        _put_back_items(content, before, changed)
    elif isinstance(content, set):
        content.clear()
        content.update(before)
    elif isinstance(content, (list, deque)):
        content.clear()
        content.extend(before.values())
    elif isinstance(content, np.ndarray):
        elements = np.frombuffer(cast(bytes, before[""]), content.dtype)
        content[...] = elements.reshape(content.shape)
    elif isinstance(content, CellType):
        content.cell_contents = before.get("")
    else:
        for name in map(str, changed):
            if name in before:
                setattr(content, name, before[name])
            else:
                delattr(content, name)


def _path(container: Container, key: object) -> str:
    if key == "":  # all that it holds
        return container.path
    numbered = isinstance(container.content, (list, set))
    if isinstance(key, str) and key.isidentifier() and not numbered:
        return f"{container.path}.{key}" if container.path else key
    return f"{container.path}[{_spelled(key)}]"


def _spelled(key: object) -> str:
    """Return what messages call a key. Others than texts and numbers are not asked.

    Their `__repr__` is somebody's code: that of a tensor computes, which would be recorded with the
    calls that are looked at.
    """
    return repr(key) if type(key) in _PLAIN else f"a {type(key).__name__}"
