"""What arguments and results hold, at any depth: a walk that meets each object once.

Attributes are those of the dict of an object and of its slots. What properties compute is none, and
no code of an object's class runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace

import torch
from torch.utils import _pytree as pytree

from pef.object_forms import attributes_of
from pef.object_parts import PLAIN, slots_of
from pef.reached_code import is_of

from .tape import SYMBOLIC

_CLOSED = (torch.nn.Module, Enum, *SYMBOLIC)
"""What is not looked into beside what `bare` refuses."""


def bare(kind: type) -> object:
    """Return an object of the class `kind` without attributes, and without calling its code.

    Raises `TypeError` for classes of C code that has a state of its own, such as exceptions and
    subclasses of dict: attributes are not all that their objects hold.
    """
    maker = SimpleNamespace if issubclass(kind, SimpleNamespace) else object
    made: object = maker.__new__(kind)
    return made


def attributes_in(value: object) -> dict[str, object]:
    """Return the attributes of an object, by name; none for what is not looked into."""
    kind = type(value)
    if kind in PLAIN or is_of(value, (torch.Tensor, *_CLOSED)):
        return {}
    found = _in_slots(value)
    found.update(attributes_of(value) or {})
    try:
        return found if found and bare(kind) is not None else {}
    except TypeError:
        return {}


def put_in(value: object, attributes: dict[str, object]) -> None:
    """Let the `bare` object `value` have `attributes`."""
    places = slots_of(type(value))
    for name in attributes.keys() & places.keys():
        places[name].__set__(value, attributes[name])
    others = {name: part for name, part in attributes.items() if name not in places}
    if others:
        vars(value).update(others)


def _in_slots(value: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, place in slots_of(type(value)).items():
        with suppress(AttributeError):  # it may be empty
            found[name] = place.__get__(value)
    return found


@dataclass(frozen=True)
class Met:
    """Something that was met, at the `path` that was found first, and what it holds by name."""

    value: object
    path: tuple[str, ...]
    parts: tuple[tuple[str, object], ...]
    is_collection: bool


class Held:
    """What `value` holds, and what of that holds tensors, itself or further down.

    `is_collection` tells what PyTorch takes apart in its own way.
    """

    def __init__(self, value: object, is_collection: Callable[[object], bool]) -> None:
        self._is_collection = is_collection
        self.met: dict[int, Met] = {}
        """By identity, in the order in which they were met."""
        self._walk(value)
        self._holding = self._found_holding()

    def holds_tensors(self, value: object) -> bool:
        """Tell whether something that was met is a tensor, or holds one."""
        return is_of(value, torch.Tensor) or id(value) in self._holding

    def objects(self) -> Iterator[Met]:
        """Yield what holds tensors and is no collection."""
        return (self.met[at] for at in self.met if self._is_holder(at))

    def in_objects(self) -> list[Met]:
        """Return the objects that hold tensors, and those without in collections that they hold."""
        found = {id(one.value): one for one in self.objects()}
        pending = [part for one in found.values() for _, part in one.parts]
        seen: set[int] = set()
        while pending:
            one = self.met.get(id(pending.pop()))
            if one is None or id(one.value) in seen or id(one.value) not in self._holding:
                continue
            seen.add(id(one.value))
            for _, part in one.parts if one.is_collection else ():
                pending.append(part)
                inside = self.met.get(id(part))
                if inside is not None and not inside.is_collection and inside.parts:
                    found[id(part)] = inside
        return [*found.values()]

    def circular(self) -> Met | None:
        """Return an object that holds tensors and itself."""
        counts = self._times_held()
        free = [at for at in self._holding if not counts[at]]
        left = set(self._holding)
        while free:
            at = free.pop()
            left.discard(at)
            for inner in self._holding_parts(at):
                counts[inner] -= 1
                if not counts[inner]:
                    free.append(inner)
        return next((self.met[at] for at in self.met if at in left and self._is_holder(at)), None)

    def in_two_places(self) -> tuple[Met, tuple[str, ...]] | None:
        """Return an object that holds tensors and is at two places, with the other path to it."""
        seen: set[int] = set()
        for one in self.met.values():
            for name, part in one.parts:
                if self._is_holder(id(part)):
                    if id(part) in seen:
                        return self.met[id(part)], (*one.path, name)
                    seen.add(id(part))
        return None

    def plain_values(self) -> dict[str, object]:
        """Return the numbers, texts and flags that were met, by their paths."""
        return {
            ".".join((*one.path, name)): part
            for one in self.met.values()
            for name, part in one.parts
            if type(part) in PLAIN or is_of(part, SYMBOLIC)
        }

    def _walk(self, value: object) -> None:
        pending: list[tuple[object, tuple[str, ...]]] = [(value, ())]
        while pending:
            one, path = pending.pop()
            if type(one) in PLAIN or id(one) in self.met or is_of(one, torch.Tensor):
                continue
            known = self._is_collection(one)
            parts = tuple(_parts(one) if known else attributes_in(one).items())
            self.met[id(one)] = Met(one, path, parts, known)
            pending += [(part, (*path, name)) for name, part in reversed(parts)]

    def _found_holding(self) -> set[int]:
        above: dict[int, list[int]] = {}
        found: set[int] = set()
        for at, one in self.met.items():
            for _, part in one.parts:
                if is_of(part, torch.Tensor):
                    found.add(at)
                elif id(part) in self.met:
                    above.setdefault(id(part), []).append(at)
        pending = [*found]
        while pending:
            fresh = [at for at in above.get(pending.pop(), ()) if at not in found]
            found.update(fresh)
            pending += fresh
        return found

    def _is_holder(self, at: int) -> bool:
        return at in self._holding and not self.met[at].is_collection

    def _holding_parts(self, at: int) -> list[int]:
        return [id(part) for _, part in self.met[at].parts if id(part) in self._holding]

    def _times_held(self) -> Counter[int]:
        return Counter(inner for at in self._holding for inner in self._holding_parts(at))


def _parts(value: object) -> Iterable[tuple[str, object]]:
    """Return what is in a collection that PyTorch knows."""
    if type(value) is dict:
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, tuple) and pytree.is_namedtuple_instance(value):
        return [(str(at), part) for at, part in enumerate(value)]
    children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
    return [(str(at), part) for at, part in enumerate(children)]
