"""Which parts an object has, found out once of each class of objects.

Nothing of somebody's Python code runs here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
    Facet,
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

    def parts_of(self, value: object) -> list[Facet]:
        """Return what `value` holds: items, elements, attributes, and the state of C code."""
        kind = type(value)
        form = self._known.get(kind)
        if form is None:
            form = self._known[kind] = Form.of(kind)
        return form.parts(value)


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
    places = (vars(base)["__dict__"] for base in kind.__mro__ if "__dict__" in vars(base))
    place = next(places, None)
    of_c = (GetSetDescriptorType, MemberDescriptorType)  # the latter of SimpleNamespace
    return place.__get__ if isinstance(place, of_c) else None


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
