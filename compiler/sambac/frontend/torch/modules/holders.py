"""Objects of other classes that hold tensors are collections of what their attributes hold.

    Cache(layers=[Layer(keys=k, values=v, size=8)])  ->  [[k, v]]     size stays what it is

PyTorch knows tuples, lists, dicts and what libraries have made known to it. What else arguments
and results have tensors in, such as the caches of keys and values of transformers, is made known
to it for as long as a module is recorded and exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from types import FunctionType, MethodType, ModuleType

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pef.object_parts import PLAIN
from pef.wording import listed
from sambac.errors import CompileError

_CLOSED = (
    *(torch.Tensor, torch.nn.Module, torch.Generator, np.ndarray, np.generic),
    *(type, ModuleType, FunctionType, MethodType, Enum),
    *(list, tuple, dict, set, frozenset),  # those of other classes, which hold more than attributes
)
"""What is not looked into, once it is no collection that PyTorch knows."""


_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


@dataclass(frozen=True)
class _Attributes:
    """What an object has: attributes that hold tensors, by name, and `others` with their values."""

    _fields: tuple[str, ...]
    others: Mapping[str, object] = field(compare=False)

    def __deepcopy__(self, _memo: object) -> _Attributes:
        return self  # nothing writes to it, and not everything can be copied


@contextmanager
def forgotten_holders() -> Iterator[None]:
    """Let PyTorch know afterwards what collections it knew before, and no others."""
    before = _known()
    try:
        yield
    finally:
        for kind in _known() - before:
            pytree._deregister_pytree_node(kind)


def _known() -> set[type]:
    nodes = pytree.SUPPORTED_NODES.items()
    return {kind for kind, node in nodes if node.flatten_fn is _flattened}


def make_known(value: object) -> None:
    """Let PyTorch take objects at any depth of `value` that hold tensors for collections of them.

    Raises `CompileError` for an object that holds tensors and itself.
    """
    for kind in _searched(value).kinds:
        pytree._private_register_pytree_node(
            kind,
            _flattened,
            _Unflattening(kind),
            serialized_type_name=f"sambac.{kind.__module__}.{kind.__qualname__}.{id(kind)}",
            flatten_with_keys_fn=_flattened_with_keys,
        )


def taking_apart(call: Callable[..., object], told: list[str]) -> Callable[..., object]:
    """Return `call` with objects in its results made known to PyTorch.

    `told` gets a sentence of numbers in its inputs that it changes.
    """

    @wraps(call)
    def known(*args: object, **kwargs: object) -> object:
        given = {**{f"input {at}": one for at, one in enumerate(args)}, **kwargs}
        before = _searched(given).numbers
        result = call(*args, **kwargs)
        after = _searched(given).numbers
        make_known(result)
        told.extend(_told_of_numbers(before, after))
        return result

    return known


def _told_of_numbers(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """Return a sentence of numbers that have changed; those of open sizes are not compared."""
    changed = [
        f"{path} = {number}"
        for path, number in before.items()
        if path in after and (type(after[path]) is not type(number) or after[path] != number)
    ]
    sentence = (
        f"forward changes numbers in its inputs: {listed(changed, separator=', ')}; every run of "
        "the program finds them so; what is to change from run to run is a tensor"
    )
    return [sentence] if changed else []


def _searched(value: object) -> _Search:
    search = _Search()
    search.enter(value, ())
    return search


@dataclass
class _Search:
    """A walk through objects: the `kinds` that hold tensors, and `numbers` beside these.

    Numbers are of Python, by the path to them.
    """

    kinds: dict[type, None] = field(default_factory=dict)
    numbers: dict[str, object] = field(default_factory=dict)
    _above: list[int] = field(default_factory=list)
    _rounds: set[int] = field(default_factory=set)

    def enter(self, value: object, path: tuple[str, ...]) -> bool:
        """Tell whether `value`, which is at `path`, holds tensors, itself or further down."""
        if isinstance(value, torch.Tensor):
            return True
        if id(value) in self._above:
            self._rounds.add(id(value))
            return False
        self._above.append(id(value))
        holding = [self.enter(part, (*path, name)) for name, part in _parts(value)]
        self._above.pop()
        if any(holding) and not _is_collection(value):
            self._note(value, path)
        return any(holding)

    def _note(self, value: object, path: tuple[str, ...]) -> None:
        if id(value) in self._rounds:
            raise CompileError(
                f"an object of the class {type(value).__name__} holds tensors and itself; give or "
                "return the tensors in a dict"
            )
        if type(value) not in pytree.SUPPORTED_NODES:
            self.kinds[type(value)] = None
        for name, part in vars(value).items():
            if type(part) in _NUMBERS:
                self.numbers[".".join((*path, name))] = part


def _parts(value: object) -> Iterable[tuple[str, object]]:
    """Return what is in a collection or an object, by name; nothing for what is not looked into."""
    if type(value) in PLAIN:
        return ()
    if type(value) is dict and isinstance(value, dict):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, tuple) and pytree.is_namedtuple_instance(value):
        return [(str(at), part) for at, part in enumerate(value)]
    if _is_collection(value):
        children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
        return [(str(at), part) for at, part in enumerate(children)]
    closed = isinstance(value, _CLOSED) or not hasattr(value, "__dict__")
    return () if closed else [*vars(value).items()]


def _is_collection(value: object) -> bool:
    """Tell whether PyTorch knew what `value` holds before objects were made known to it."""
    node = pytree.SUPPORTED_NODES.get(type(value))
    known = node is not None and node.flatten_fn is not _flattened
    return known or pytree.is_namedtuple_instance(value)


def _flattened(value: object) -> tuple[list[object], _Attributes]:
    held = {name: part for name, part in vars(value).items() if _has_tensors(part)}
    others = {name: part for name, part in vars(value).items() if name not in held}
    return [*held.values()], _Attributes(tuple(held), others)


def _flattened_with_keys(value: object) -> tuple[list[tuple[pytree.KeyEntry, object]], _Attributes]:
    parts, attributes = _flattened(value)
    keys = map(pytree.GetAttrKey, attributes._fields)
    return list(zip(keys, parts, strict=True)), attributes


def _has_tensors(value: object) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


@dataclass(frozen=True)
class _Unflattening:
    """What makes objects of the class `kind` of their parts, without calling its code."""

    kind: type

    def __call__(self, parts: Iterable[object], attributes: _Attributes) -> object:
        """Return an object that holds `parts`; collections beside them are copied."""
        made: object = object.__new__(self.kind)
        others = pytree.tree_map(lambda item: item, dict(attributes.others))
        vars(made).update(others)
        vars(made).update(zip(attributes._fields, parts, strict=True))
        return made
