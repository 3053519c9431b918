"""Python objects as they were: what somebody's code keeps from call to call is found and put back.

A model may keep tensors between calls of it, such as a mask that its first call makes. Calls that
only describe tensors would leave descriptions where the model expects values.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain
from operator import is_
from threading import Lock, RLock
from types import FunctionType, UnionType
from typing import Any

from .object_forms import Forms
from .object_parts import ATTRIBUTES, CLASS, PLAIN, WHOLE, Facet, path_in
from .reached_code import ReachedCode, is_foreign_file, is_installed, is_of, is_of_toolchain

_ROOM = 1 << 28
"""The bytes of all arrays together that are copied, to see whether elements change."""

_LOCKS = (type(Lock()), type(RLock()))
"""Of such there are others all the time where threads wait for each other."""


@dataclass(frozen=True)
class Standing:
    """Whose something is, and how it hangs together with a module.

    `owned` says that it is put back as it was: what a module has, and what code of the user's own
    names. `direct` that only dicts and lists are between the module and it, `near` that it is of
    the user's own code, not of a package that is installed.
    """

    owned: bool
    direct: bool
    near: bool


_OF_MODULE = Standing(owned=True, direct=True, near=True)


@dataclass(frozen=True)
class Container:
    """A collection, the attributes of something, or a state: what it held, and what it is called.

    The path of global variables is empty.
    """

    path: str
    part: Facet
    before: Mapping[Any, object]
    standing: Standing


@dataclass(frozen=True)
class Change:
    """A value that is not what it was `before`. None is no value too.

    Of an object that another one of its class replaces, changes are those inside.
    """

    path: str
    before: object
    value: object
    standing: Standing


class ObjectSnapshot:
    """What the objects that `modules` can reach hold now, to find out later what changed.

    Looked into are the attributes of `modules`, and what the code of their classes and hooks gets
    to: functions with what they enclose, classes, and the global variables of their files;
    collections, arrays and other objects in them. `is_tensor` says what is a tensor.
    """

    def __init__(self, modules: Iterable[object], is_tensor: Callable[[object], bool]) -> None:
        self._is_tensor = is_tensor
        forms = Forms()
        self._parts_of, self._place_of = forms.parts_of, forms.place_of
        self._containers: list[Container] = []
        self._held: dict[tuple[int, int], Mapping[Any, object]] = {}
        self._pending: deque[tuple[str, object, Standing]] = deque()
        self._room = _ROOM
        self._met: list[object] = []
        self._followed: dict[int, set[str]] = {}
        self.tensors: list[tuple[str, object]] = []
        """Where tensors were, and these, but for parameters and buffers."""
        self.unseen: list[str] = []
        """Where arrays are of the user's own whose elements are not looked at, as too large."""
        modules = [*modules]
        self._roots = _roots_of(modules)
        for module in modules:
            self._add_place(type(module).__name__, module, _OF_MODULE)
            self._add(type(module).__name__, Facet(vars(module), ATTRIBUTES), _OF_MODULE)
        self._follow_all()
        roots = [*map(type, modules), *chain.from_iterable(map(_attached, modules))]
        code, own = ReachedCode(), {base for module in modules for base in type(module).__mro__}
        self.names: Collection[str] = code.names
        """What the code says, but for that of packages whose objects are theirs."""
        found = [*roots, *self._met]
        while code.reach(found):  # what it names may lead to more code
            self._met = []
            self._add_code(code, own)
            found = self._met
        self._caches = [(cache, cache.cache_info().misses) for cache in code.caches]

    def again(self, modules: Iterable[object]) -> ObjectSnapshot:
        """Return what `modules`, mostly those of before, can reach now.

        Where nothing changed but values that lead nowhere, all else is what it was, and is not
        followed again.
        """
        modules, renewed = [*modules], dict[int, Container]()
        roots = _roots_of(modules)
        followed = len(roots) == len(self._roots) and all(map(is_, roots, self._roots))
        for number, container in enumerate(self._containers if followed else ()):
            changed = [*self._changed(container)]
            if changed:
                renewed[number] = replace(container, before=container.part.entries())
                values = self._replaced(changed, renewed[number].before)
                followed = all(map(_leads_nowhere, values))
            if not followed:
                break
        if not followed:
            return ObjectSnapshot(modules, self._is_tensor)
        found = copy(self)
        found._containers = [renewed.get(at, one) for at, one in enumerate(self._containers)]
        held = {_identity(one.part): one.before for one in renewed.values()}
        found._held = {**self._held, **held}
        found._caches = [(cache, cache.cache_info().misses) for cache, _ in self._caches]
        return found

    def _replaced(
        self, changed: Iterable[tuple[object, object, object]], asked: Mapping[Any, object]
    ) -> Iterator[object]:
        """Yield what was there and what is there now of what `changed`.

        Objects of C code may give out copies, others each time that they are `asked`: of these it
        is what differs inside.
        """
        for key, before, now in changed:
            if asked.get(key) is now:
                yield from (before, now)
            else:
                for _, *both in self._differences("", before, now):
                    yield from both

    def changes(self) -> list[Change]:
        """Return what changed, tensors of the same contents included."""
        return [*self._changes(self._containers)]

    def _changes(self, containers: Iterable[Container]) -> Iterator[Change]:
        for container in containers:
            for key, before, now in self._changed(container):
                if self._is_reached(container, key):
                    for path, old, new in self._differences(_path(container, key), before, now):
                        yield Change(path, old, new, container.standing)

    def _is_reached(self, container: Container, key: object) -> bool:
        """Tell of variables of files whether code names them, of what else there is that it may."""
        return bool(container.path) or key in self.names

    def _changed(self, container: Container) -> Iterator[tuple[object, object, object]]:
        """Yield the keys of what changed, what was there, and what is there now."""
        before, now = container.before, container.part.entries()
        if _are_identical(before, now):
            return  # as nearly always
        for key in {**before, **now}:
            if not _is_same(before.get(key, self), now.get(key, self)):
                yield key, before.get(key), now.get(key)
        orders = (*before,), (*now,)
        same = before.keys() == now.keys() and all(map(_is_same, *orders))
        if container.part.way.ordered and before.keys() == now.keys() and not same:
            yield WHOLE, *orders

    def _differences(
        self, path: str, before: object, now: object
    ) -> Iterator[tuple[str, object, object]]:
        """Yield what differs inside of `before`, as it was, and `now`; these, if nothing is alike.

        Both may be collections, objects of one class, or states of C code.
        """
        pending, seen = [(path, before, now)], dict[tuple[int, int], object]()
        while pending:
            at, old, new = pending.pop()
            if _is_same(old, new) or (id(old), id(new)) in seen:
                continue
            seen[id(old), id(new)] = old, new  # which stay alive, so that no other has their ids
            alike = type(old) is type(new) and not self._is_tensor(old)
            parts = [*zip(self._parts_of(old), self._parts_of(new), strict=False)] if alike else []
            if not parts:
                yield at, None if old is self else old, None if new is self else new
            for one, other in parts:
                held = self._held.get(_identity(one))
                held, holds = one.entries() if held is None else held, other.entries()
                for key in reversed({**held, **holds}):
                    inner = path_in(at, other, key)
                    pending.append((inner, held.get(key, self), holds.get(key, self)))

    def found(self, kinds: type | UnionType) -> list[object]:
        """Return what was there of such kinds, each of it once."""
        values = (value for one in self._containers for value in one.before.values())
        return [*{id(value): value for value in values if issubclass(type(value), kinds)}.values()]

    def restore(self, is_stale: Callable[[object], bool] = lambda _: True) -> list[str]:
        """Put back what is owned. Of other objects only entries with new tensors change.

        Not with all new ones, but with those that are `is_stale`. Returns where that is what cannot
        be put back, such as an iterator.
        """
        for container in self._containers:
            put_back, owned = container.part.way.put_back, container.standing.owned
            changed = [
                key
                for key, _, now in self._changed(container)
                if (owned and self._is_reached(container, key))
                or any(map(is_stale, self.new_tensors(now)))
            ]
            if changed and put_back is not None:
                put_back(container.part.content, container.before, changed)
        for cache, misses in self._caches:
            if cache.cache_info().misses != misses:
                cache.cache_clear()
        lasting = [one for one in self._containers if one.part.way.put_back is None]
        return [
            *dict.fromkeys(
                change.path for change in self._changes(lasting) if change.standing.owned
            )
        ]

    def new_tensors(self, value: object) -> list[object]:
        """Return the tensors in `value`, at any depth, that were not there before."""
        known = {id(tensor) for _, tensor in self.tensors}
        return [tensor for tensor in self.tensors_of(value) if id(tensor) not in known]

    def tensors_of(self, value: object) -> list[object]:
        """Return the tensors in `value`, at any depth."""
        found: list[object] = []
        pending, seen = [value], dict[int, object]()
        while pending:
            one = pending.pop()
            if self._is_tensor(one):
                found.append(one)
            elif type(one) not in PLAIN and id(one) not in seen:
                seen[id(one)] = one
                inside = [part.entries().values() for part in self._parts_of(one)]
                pending += [*chain.from_iterable(inside), *_held_by_function(one)]
        return found

    def _add_code(self, code: ReachedCode, own: set[type]) -> None:
        """Look into classes, functions and files; `own` are the classes of modules."""
        for kind in code.kinds:
            near = kind in own or not is_installed(vars(sys.modules.get(kind.__module__) or sys))
            self._add(kind.__name__, Facet(kind, CLASS), Standing(near, kind in own, near))
        for function in code.functions:
            self._add_function(function)
        for variables in code.files.values():
            self._add_file(variables)
        if "environ" in self.names:
            self._follow("os.environ", os.environ, replace(_OF_MODULE, direct=False))
        self._follow_all()

    def _add_function(self, function: FunctionType) -> None:
        """Look into what a function has: attributes, defaults, and variables that it encloses."""
        attributes = Facet(vars(function), ATTRIBUTES)
        if _identity(attributes) in self._held:
            return
        name, near = function.__name__, not is_installed(function.__globals__)
        standing = Standing(near, False, near)
        self._add(name, attributes, standing)
        for defaults in (function.__defaults__, function.__kwdefaults__):
            self._follow(name, defaults, standing)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for variable, cell in cells:
            self._follow(f"{name}.{variable}", cell, standing)

    def _add_file(self, variables: dict[str, object]) -> None:
        """Look into the global variables of a file that the code names.

        Of others, which may be a lot of data, only other values are seen.
        """
        if is_foreign_file(variables):
            return
        part, near = Facet(variables, ATTRIBUTES), not is_installed(variables)
        standing = Standing(near, False, near)
        if _identity(part) not in self._held:
            self._held[_identity(part)] = dict(variables)
            self._containers.append(Container("", part, self._held[_identity(part)], standing))
        followed = self._followed.setdefault(id(variables), set())
        for key, value in self._held[_identity(part)].items():
            if key in self.names and key not in followed and not key.startswith("__"):
                followed.add(key)
                self._pending.append((key, value, standing))

    def _add(self, path: str, part: Facet, standing: Standing) -> None:
        if _identity(part) in self._held:
            return
        if (size := part.way.size(part.content)) > self._room:
            self.unseen += [path] if standing.near else []
            return
        self._room -= size
        container = Container(path, part, part.entries(), standing)
        self._held[_identity(part)] = container.before
        self._containers.append(container)
        for key, value in container.before.items():
            if type(value) not in PLAIN:  # of which there may be many
                self._pending.append((_path(container, key), value, standing))

    def _add_place(self, path: str, value: object, standing: Standing) -> None:
        """Look at what class `value` is of, and at where its attributes are; these are others."""
        place = self._place_of(value)
        if place is not None and _identity(place) not in self._held:
            self._held[_identity(place)] = before = place.entries()
            self._containers.append(Container(path, place, before, standing))

    def _follow_all(self) -> None:
        """Follow what waits, and what it leads to, the shortest paths first."""
        while self._pending:
            self._follow(*self._pending.popleft())

    def _follow(self, path: str, value: object, standing: Standing) -> None:
        if self._is_tensor(value):
            self.tensors.append((path, value))
        elif is_of(value, FunctionType):
            self._met.append(value)
            if not is_foreign_file(value.__globals__):
                self._add_function(value)
        elif parts := self._parts_of(value):
            self._met.append(type(value))
            self._add_place(path, value, standing)
            for part in parts:
                indirect = standing.direct and part.way.kinds == ()
                self._add(path, part, replace(standing, direct=False) if indirect else standing)


def _roots_of(modules: Iterable[object]) -> list[object]:
    """Return modules, each with its class and its attributes: both may be replaced as a whole."""
    return [part for one in modules for part in (one, type(one), vars(one))]


def _identity(part: Facet) -> tuple[int, int]:
    return id(part.content), id(part.way)


def _are_identical(before: Mapping[Any, object], now: Mapping[Any, object]) -> bool:
    """Tell whether all that was there still is, by the same keys in the same order."""
    values = before.values(), now.values()
    return len(before) == len(now) and all(map(is_, *values)) and all(map(is_, before, now))


def _held_by_function(value: object) -> Iterator[object]:
    if is_of(value, FunctionType) and not is_foreign_file(value.__globals__):
        yield from (vars(value), value.__defaults__, value.__kwdefaults__)
        yield from value.__closure__ or ()


def _attached(module: object) -> Iterator[object]:
    """Yield functions that are no part of the class of `module`, such as hooks."""
    for value in list(vars(module).values()):
        inside = list(value.values()) if is_of(value, dict) else [value]
        yield from filter(callable, inside)


def _is_same(before: object, now: object) -> bool:
    """Tell whether a value is what it was; other objects of plain types may have equal values."""
    if before is now:
        return True
    alike = type(before) is type(now) and _is_plain(before) and _is_plain(now)
    return alike and (before == now or (before != before and now != now))  # nan is nan


def _is_plain(value: object) -> bool:
    if is_of(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in PLAIN


def _leads_nowhere(value: object) -> bool:
    """Tell whether nothing is reached from `value` alone: functions of ours stand for others."""
    return type(value) in PLAIN or is_of(value, _LOCKS) or is_of_toolchain(value)


def _path(container: Container, key: object) -> str:
    return path_in(container.path, container.part, key)
