"""What a Python object holds, and how that is put back: one table of the ways to hold something.

Objects of C code, such as iterators, show their state as `copy` and `pickle` see it, or else what
the garbage collector sees. Nothing of somebody's Python code runs here.
"""

from __future__ import annotations

import gc
import os
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain, count
from mmap import mmap
from queue import SimpleQueue
from types import (
    AsyncGeneratorType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    GeneratorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any, TypeAlias

import numpy as np

from .reached_code import is_of

Entries: TypeAlias = Iterable[tuple[object, object]]

PLAIN = frozenset({str, bytes, int, float, complex, bool, type(None)})
"""Types whose values are equal or not, and of whose texts it is known that they are short."""

_TABLES = frozenset({"_parameters", "_buffers", "_modules"})
"""Attributes of modules that tracers of torch replace and put back themselves."""

_COLLECTIONS = (list, deque, tuple, set, frozenset)

VIEWS: tuple[type[Any], ...] = (memoryview, mmap)
_MEMORY: tuple[type[Any], ...] = (array, bytearray, *VIEWS)

_SEEN_BY_COPY = ("__reduce_ex__", "__reduce__", "__getstate__")


@dataclass(frozen=True)
class Hidden:
    """The number of a part that has no name."""

    number: int


WHOLE = Hidden(-1)
"""The key of what is all that something holds."""

_FIRST = tuple(map(Hidden, range(64)))
"""The keys of the first parts that have no name, always the same objects."""


def _no_bytes(_content: object) -> int:
    return 0


@dataclass(frozen=True)
class Holding:
    """A way of objects of `kinds` to hold others: their entries, and how earlier ones come back.

    `put_back` is given an object, its entries before, and the keys of those that changed.
    `ordered` says that the order of keys belongs to it, `size` how many bytes entries are that are
    copies. Entries are taken at once: other threads may write.
    """

    kinds: tuple[type, ...]
    entries: Callable[[Any], Entries]
    put_back: Callable[[Any, Mapping[Any, Any], Iterable[Any]], None] | None = None
    ordered: bool = False
    size: Callable[[Any], int] = _no_bytes


@dataclass(frozen=True)
class Facet:
    """One of the ways in which an object holds something; `content` may be the object."""

    content: object
    way: Holding

    def entries(self) -> dict[object, object]:
        """Return what is held now."""
        return dict(self.way.entries(self.content))


def slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    """Return the places of `__slots__` of a class, and of those that it is of."""
    return {
        name: place
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, place in vars(base).items()
        if isinstance(place, MemberDescriptorType)
    }


def has_own_state(kind: type) -> bool:
    """Tell whether the C code of a class says what its state is, or that of a class it is of."""
    found = [getattr(kind, name) for name in _SEEN_BY_COPY]
    general = [getattr(object, name) for name in _SEEN_BY_COPY]
    return found != general and all(isinstance(one, MethodDescriptorType) for one in found)


def _state_of_c(value: object) -> Entries:
    """Yield what `copy` would be given, or else what the garbage collector sees.

    The lists of iterators may be their own, as that of `itertools.cycle` is: they are looked at,
    and not put back.
    """
    state: object = None
    with suppress(Exception):  # whatever C code says that cannot be copied
        state = type(value).__reduce_ex__(value, 4) if has_own_state(type(value)) else None
    others = (type, CodeType, FrameType, ModuleType)
    seen = gc.get_referents(value) if state is None else _flat(state)
    inside = [one for one in seen if not is_of(one, others)]
    if hasattr(type(value), "__next__"):
        inside = [tuple(one) if type(one) is list else one for one in inside]
    yield from zip(chain(_FIRST, map(Hidden, count(len(_FIRST)))), inside, strict=False)


def _flat(state: object) -> Iterable[object]:
    """Yield what is in tuples, at any depth: they are made anew each time that C code is asked."""
    if type(state) is tuple:
        for one in state:
            yield from _flat(one)
    else:
        yield state


def _state_of_frame(running: Any) -> Entries:
    """Yield where a generator or a coroutine is, and its variables."""
    frames = (getattr(running, name, None) for name in ("gi_frame", "cr_frame", "ag_frame"))
    frame = next((one for one in frames if one is not None), None)
    yield WHOLE, -1 if frame is None else frame.f_lasti
    yield from () if frame is None else dict(frame.f_locals).items()


def _stored(content: dict[Any, Any]) -> type[dict[Any, Any]]:
    """Return the class whose methods store and order the items of `content`.

    What a subclass of the user's makes of being asked for items is its own.
    """
    return OrderedDict if is_of(content, OrderedDict) else dict


def _items(content: dict[object, object]) -> Entries:
    return list(_stored(content).items(content))


def _attributes(content: dict[object, object]) -> Entries:
    """Yield attributes without what belongs to torch's tracers."""
    return [item for item in _items(content) if item[0] not in _TABLES]


def _put_back_attributes(
    content: dict[object, object], before: Mapping[object, object], changed: Iterable[object]
) -> None:
    kind = _stored(content)
    for key in changed:
        if key in before:
            kind.__setitem__(content, key, before[key])
        else:
            kind.pop(content, key, None)


def _put_back_items(
    content: dict[object, object], before: Mapping[object, object], changed: Iterable[object]
) -> None:
    """Put back items, and the order that they had."""
    _put_back_attributes(content, before, changed)
    kind = _stored(content)
    there = [key for key in kind.keys(content) if key in before]
    kept = [key for key in before if kind.__contains__(content, key)]
    if any(key is not again for key, again in zip(kept, there, strict=True)):
        for key in kept:
            kind.__setitem__(content, key, kind.pop(content, key))


def _put_back_elements(content: Any, before: Mapping[object, object], _changed: object) -> None:
    kind = _kind_of(content)
    kind.clear(content)
    (kind.update if kind is set else kind.extend)(content, before.values())


def _in_memory(content: Any) -> Entries:
    """Yield the bytes of an array that can be written, or its elements if these are objects."""
    if not is_of(content, np.ndarray):
        yield WHOLE, bytes(content)
    elif content.dtype.hasobject:
        yield from enumerate(content.ravel().tolist())
    else:
        yield WHOLE, content.tobytes()


def _bytes_of(content: Any) -> int:
    """Return how many bytes of an array can be written."""
    if is_of(content, np.ndarray):
        return content.nbytes if content.flags.writeable else 0
    return memoryview(content).nbytes


def _put_back_memory(content: Any, before: Mapping[Any, Any], changed: Iterable[Any]) -> None:
    if isinstance(content, np.ndarray):
        whole = before.get(WHOLE)
        if whole is not None:
            content[...] = np.frombuffer(whole, content.dtype).reshape(content.shape)
        for key in changed if whole is None else ():
            content.flat[key] = before[key]
    elif isinstance(content, array):
        content[:] = array(content.typecode, before[WHOLE])
    elif isinstance(content, memoryview):
        content.cast("B")[:] = before[WHOLE]
    else:
        content[:] = before[WHOLE]


def _put_back_cell(content: CellType, before: Mapping[object, object], _changed: object) -> None:
    if before:
        content.cell_contents = before[WHOLE]
    else:
        del content.cell_contents


def _put_back_variable(
    content: ContextVar[object], before: Mapping[object, object], _changed: object
) -> None:
    if before:  # a variable that had nothing can only be left with the context that it is of
        content.set(before[WHOLE])


def _put_back_slots(content: object, before: Mapping[str, object], changed: Iterable[str]) -> None:
    places = slots_of(type(content))
    for name in changed:
        if name in before:
            places[name].__set__(content, before[name])
        else:
            places[name].__delete__(content)


def _put_back_class(content: type, before: Mapping[str, object], changed: Iterable[str]) -> None:
    for name in changed:
        if name in before:
            setattr(content, name, before[name])
        else:
            delattr(content, name)


def _put_back_environment(content: Any, before: Mapping[str, str], changed: Iterable[str]) -> None:
    for name in changed:
        if name in before:
            content[name] = before[name]
        else:
            content.pop(name, None)


def _kind_of(content: object) -> Any:
    """Return the class whose methods store the elements of `content`; see `_stored`."""
    return next(kind for kind in _COLLECTIONS if is_of(content, kind))


def _elements(content: object) -> Entries:
    return enumerate([*_kind_of(content).__iter__(content)])


def _slots(content: object) -> Entries:
    for name, place in slots_of(type(content)).items():
        with suppress(AttributeError):  # it may be empty
            yield name, place.__get__(content)


def _held_by_cell(content: CellType) -> Entries:
    with suppress(ValueError):  # it may be empty
        yield WHOLE, content.cell_contents


def _held_by_variable(content: ContextVar[object]) -> Entries:
    with suppress(LookupError):
        yield WHOLE, content.get()


def _of_class(content: type) -> Entries:
    """Yield attributes without those of Python, and what abstract classes know of subclasses."""
    items = list(vars(content).items())
    return [item for item in items if item[0][:2] != "__" and item[0] != "_abc_impl"]


def _members(content: object) -> Entries:
    return [(item, item) for item in _kind_of(content).__iter__(content)]


ATTRIBUTES = Holding((), _attributes, _put_back_attributes)
CLASS = Holding((type,), _of_class, _put_back_class)
SLOTS = Holding((), _slots, _put_back_slots)
OF_C = Holding((), _state_of_c)

WAYS = (
    Holding((dict,), _items, _put_back_items, ordered=True),
    Holding((list, deque), _elements, _put_back_elements),
    Holding((tuple,), _elements),
    Holding((set,), _members, _put_back_elements),
    Holding((frozenset,), _members),
    Holding((np.ndarray, *_MEMORY), _in_memory, _put_back_memory, size=_bytes_of),
    Holding((CellType,), _held_by_cell, _put_back_cell),
    Holding((ContextVar,), _held_by_variable, _put_back_variable),
    Holding((GeneratorType, CoroutineType, AsyncGeneratorType), _state_of_frame),
    Holding((os._Environ,), lambda content: list(content.items()), _put_back_environment),
    Holding((SimpleQueue,), lambda content: [(WHOLE, content.qsize())]),
)
"""Of these an object has one at most, the first that fits; attributes may come on top."""


def path_in(path: str, part: Facet, key: object) -> str:
    """Return what messages call what `part` holds by `key`, if they call the whole `path`."""
    if isinstance(key, Hidden):
        return path
    numbered = is_of(part.content, (list, set))
    if isinstance(key, str) and key.isidentifier() and not numbered:
        return f"{path}.{key}" if path else key
    return f"{path}[{_spelled(key)}]"


def _spelled(key: object) -> str:
    """Return what messages call a key. Others than texts and numbers are not asked.

    Their `__repr__` is somebody's code: that of a tensor computes, which would be recorded with the
    calls that are looked at.
    """
    return repr(key) if type(key) in PLAIN else f"a {type(key).__name__}"
