"""A tape of the functions of torch that a call of a module runs, and what of them depends on what.

Tensors are told apart by their memory, so that views are what they view.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .errors import OTHERS


@dataclass(frozen=True)
class Fixed:
    """What depends on no source; equal computations of constants have equal fingerprints."""

    fingerprint: int


Label: TypeAlias = str | int | Fixed
"""What memory holds: the name of a source, the number of the step that computed it, a constant."""

_OF_SHAPES: Mapping[str, int] = {
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"), 0
    ),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"), 0),
    **dict.fromkeys(("type_as", "expand_as", "view_as", "reshape_as", "to"), 1),
}
"""Functions that take the shape or the type alone of an argument, and which one it is."""

_INSIDE = ("torch._export", "torch._subclasses", "torch.fx")
"""Modules of torch that run functions of their own while they record."""

_SETTINGS = (Number, str, torch.dtype)

_OF_VALUES = frozenset({"__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist"})
"""Functions that compute Python's numbers from tensors."""


@dataclass(frozen=True)
class Entry:
    """One function: the memory that it reads, that of its results, and what of both it changes.

    `settings` spell the others of its arguments that count; `place` is the user's line.
    """

    function: Callable[..., object]
    reads: tuple[int, ...]
    results: tuple[int, ...]
    changed: tuple[int, ...]
    settings: tuple[str, ...]
    place: str

    @property
    def name(self) -> str:
        """How messages call the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(frozen=True)
class Step:
    """An entry that depends on a source, and what the memory that it reads held then."""

    entry: Entry
    reads: tuple[Label | None, ...]

    def is_like(self, other: Step) -> bool:
        """Tell whether `other` is the same function of the same things; settings may differ."""
        return self.entry.function == other.entry.function and self.reads == other.reads


@dataclass(frozen=True)
class Dependences:
    """The steps of a call, and what the memory that they or others computed holds after it."""

    steps: Sequence[Step]
    computed: Mapping[int, Label]
    constants: Mapping[int, Fixed]


def memory_of(tensor: torch.Tensor) -> int:
    """Return a number that tensors have in common if one is a view of the other."""
    storage = _storage(tensor)
    return id(storage) if storage is tensor else int(storage._cdata)


def _storage(tensor: torch.Tensor) -> Any:
    """Return the storage of `tensor`, or itself if it has none, as sparse tensors."""
    with torch._C.DisableTorchFunction():
        return tensor.untyped_storage() if torch._C._has_storage(tensor) else tensor


def tensors_in(value: object) -> list[torch.Tensor]:
    """Return the tensors in collections, at any depth."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def dependences(
    entries: Iterable[Entry], sources: Mapping[int, str], constants: Mapping[int, Fixed]
) -> Dependences:
    """Return what of `entries` depends on memory that `sources` name, and what does not.

    `constants` are known before. What an entry computes is the memory of its results, but for views
    of other memory, and of arguments that it changes.
    """
    labels: dict[int, Label] = {**constants, **sources}
    steps: list[Step] = []
    computed: dict[int, Label] = {}
    fixed = dict(constants)
    for entry in entries:
        reads = tuple(map(labels.get, entry.reads))
        made = {*entry.results}.difference(entry.reads, labels).union(entry.changed)
        if all(label is None or isinstance(label, Fixed) for label in reads):
            constant = Fixed(hash((entry.function, reads, entry.settings)))
            fixed.update(dict.fromkeys(made, constant))
            labels.update(dict.fromkeys(made, constant))
        else:
            steps.append(Step(entry, reads))
            computed.update(dict.fromkeys(made, len(steps)))
            labels.update(dict.fromkeys(made, len(steps)))
    return Dependences(steps, computed, fixed)


class Tape(TorchFunctionMode):
    """Writes down what runs while it is entered, but for what only asks for shapes and types."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Entry] = []
        self._alive: list[object] = []

    def taken(self) -> Sequence[Entry]:
        """Return what ran since this was called before.

        All memory stays alive, so that none is taken for other memory. Tensors do not: the exporter
        asks which of those that it recorded are still there.
        """
        entries, self._entries = self._entries, []
        return entries

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and write down what it did."""
        if torch.compiler.is_dynamo_compiling():  # a branch, which will run as one function
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "__get__":  # which changes nothing, and mostly asks for a shape or a type
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self._write(func, args, [result], [])
            return result
        ignored = _OF_SHAPES.get(name, len(args))
        leaves = pytree.tree_leaves((args[:ignored], args[ignored + 1 :], kwargs))
        given = [(leaf, _version(leaf)) for leaf in leaves if isinstance(leaf, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        made = tensors_in(result)
        changed = [tensor for tensor, version in given if version != _version(tensor)]
        if made or changed or name in _OF_VALUES:
            self._write(func, leaves, made, changed)
        return result

    def _write(
        self,
        func: Callable[..., object],
        leaves: Sequence[object],
        made: Sequence[torch.Tensor],
        changed: Sequence[torch.Tensor],
    ) -> None:
        """Write down what `func` made and changed of those `leaves`, unless torch itself ran it."""
        frame = _caller(sys._getframe(2))
        if frame.f_globals.get("__name__", "").startswith(_INSIDE):
            return
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._alive += map(_storage, (*given, *made))
        entry = Entry(
            func,
            tuple(map(memory_of, given)),
            tuple(map(memory_of, made)),
            tuple(map(memory_of, changed)),
            tuple(repr(leaf) for leaf in leaves if isinstance(leaf, _SETTINGS)),
            _place(frame),
        )
        self._entries.append(entry)


def _version(tensor: torch.Tensor) -> int:
    """Return how often `tensor` was changed; those of inference_mode do not count."""
    with torch._C.DisableTorchFunction():
        return 0 if tensor.is_inference() else tensor._version


def _caller(frame: FrameType) -> FrameType:
    """Return what called a function that got to the tape by way of other modes."""
    while frame.f_back is not None and (
        frame.f_code.co_name == "__torch_function__"
        or frame.f_globals.get("__name__", "").startswith(("sambac.", "torch._ops"))
    ):
        frame = frame.f_back
    return frame


def _place(frame: FrameType | None) -> str:
    """Return the user's line that called."""
    while frame is not None and frame.f_code.co_filename.startswith(OTHERS):
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
