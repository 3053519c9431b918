"""Which parts an object has, found out once of each class of objects.

Nothing of somebody's Python code runs here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import _lru_cache_wrapper
from logging import Logger
from random import Random
from threading import local
from types import (
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any
from weakref import ref

import numpy as np

from .object_parts import (
    ATTRIBUTES,
    OF_C,
    PLAIN,
    SLOTS,
    VIEWS,
    WAYS,
    Entries,
    Facet,
    Hidden,
    Holding,
    has_own_state,
    slots_of,
)
from .reached_code import are_closed, is_hand_made, is_of

_CLOSED = (
    *(type, FunctionType, CodeType, FrameType, Enum, ref, _lru_cache_wrapper),
    *(Random, Logger, os._Environ),
)
"""What is not looked into as other objects are."""

_FIXED = (*_CLOSED, ModuleType, local)
"""What stays of its class, and has the dict of attributes that it was made with."""

_IN_PYTHON = 1 << 9
"""The flag of classes that are made while a program runs, as those in Python are."""

_KIND, _DICT = Hidden(-2), Hidden(-3)
"""The keys of the class of an object, and of the dict that has its attributes."""


@dataclass(frozen=True)
class Form:
    """How objects of one class hold something: in a way of its own, attributes, slots, C code.

    `more` says that besides the way there may be others, `asks` that not all objects of the class
    are looked into.
    """

    way: Holding | None
    more: bool
    attributes: Callable[[Any], object] | None
    has_slots: bool
    has_state: bool
    asks: bool

    @classmethod
    def of(cls, kind: type) -> Form:
        """Return the form of the objects of a class."""
        return cls(
            way=next((way for way in WAYS if issubclass(kind, way.kinds)), None),
            more=not (kind in PLAIN or issubclass(kind, _CLOSED) or are_closed(kind)),
            attributes=_attributes_of(kind),
            has_slots=bool(slots_of(kind)),
            has_state=has_own_state(kind),
            asks=issubclass(kind, (ModuleType, np.ndarray, *VIEWS)),
        )

    def parts(self, value: object) -> list[Facet]:
        """Return what `value`, which is of the class, holds."""
        if self.asks and not _is_open(value):
            return []
        found = [] if self.way is None else [Facet(value, self.way)]
        if not self.more:
            return found
        attributes = self.attributes(value) if self.attributes is not None else None
        if isinstance(attributes, dict):
            found.append(Facet(attributes, ATTRIBUTES))
        if self.has_slots:
            found.append(Facet(value, SLOTS))
        if self.way is None and (not found or self.has_state):
            found.append(Facet(value, OF_C))
        return found


class Forms:
    """The forms of the classes that were met, each found out once."""

    def __init__(self) -> None:
        self._known: dict[type, Form] = {}
        self._places: dict[type, Holding | None] = {}

    def parts_of(self, value: object) -> list[Facet]:
        """Return what `value` holds: items, elements, attributes, and the state of C code."""
        kind = type(value)
        form = self._known.get(kind)
        if form is None:
            form = self._known[kind] = Form.of(kind)
        return form.parts(value)

    def place_of(self, value: object) -> Facet | None:
        """Return where `value` says what class it is of and which dict has its attributes.

        None of what can have no other ones, as what is of classes of C code.
        """
        kind = type(value)
        if kind not in self._places:
            in_python = bool(kind.__flags__ & _IN_PYTHON)
            is_open = in_python and not issubclass(kind, _FIXED)
            self._places[kind] = _place_of(kind) if is_open else None
        way = self._places[kind]
        return None if way is None else Facet(value, way)


def _place_of(kind: type) -> Holding:
    """Return in which way objects of a class have it, and the dict of their attributes."""
    read = _attributes_of(kind)

    def entries(content: object) -> Entries:
        now = type(content)
        attributes = attributes_of(content) if now is not kind else read and read(content)
        return ((_KIND, now), (_DICT, attributes)) if attributes is not None else ((_KIND, now),)

    return Holding((), entries, _put_back_place)


def _put_back_place(content: object, before: Mapping[Any, Any], changed: Iterable[object]) -> None:
    """Let an object be of its class again, which says where its dict is, and have that dict."""
    keys = {*changed}
    if _KIND in keys:
        vars(object)["__class__"].__set__(content, before[_KIND])
    if _DICT in keys and _DICT in before:
        _place_of_attributes(type(content)).__set__(content, before[_DICT])


def attributes_of(value: object) -> dict[str, object] | None:
    """Return the dict of attributes, if there is one.

    Classes may make one when they are asked for it, as those do that stand for another object. Of
    `threading.local` it is that of this thread.
    """
    read = _attributes_of(type(value))
    found = read(value) if read is not None else None
    return found if isinstance(found, dict) else None


def _attributes_of(kind: type) -> Callable[[Any], object] | None:
    """Return what reads the attributes of objects of a class, if these have some."""
    if issubclass(kind, (local, ModuleType)):
        return vars
    place = _place_of_attributes(kind)
    of_c = (GetSetDescriptorType, MemberDescriptorType)  # the latter of SimpleNamespace
    return place.__get__ if isinstance(place, of_c) else None


def _place_of_attributes(kind: type) -> Any:
    """Return what a class says of where its objects have their attributes, if it says so."""
    places = (vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base))
    return next(places, None)


def _is_open(value: object) -> bool:
    """Tell whether a module is hand-made, memory can be written."""
    return is_hand_made(value) if is_of(value, ModuleType) else not is_fixed(value)


def is_fixed(value: object) -> bool:
    """Tell whether `value` is memory that cannot be written, or no longer."""
    if is_of(value, np.ndarray):
        return not value.flags.writeable and not value.dtype.hasobject
    if not is_of(value, VIEWS):
        return False
    try:
        return memoryview(value).readonly
    except ValueError:  # it is released, or closed
        return True
