"""A tape of the functions of torch that a call of a module runs, and what of them depends on what.

Tensors are told apart by their memory, so that views are what they view.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from types import FrameType
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pef.object_parts import PLAIN
from pef.reached_code import is_of
from sambac.frontend.torch.errors import OTHERS

from .own_results import AS_WHEN_RUN

Call: TypeAlias = tuple[tuple[object, ...], Mapping[str, object]]
Settings: TypeAlias = Hashable
"""What a function is given, of tensors their types, shapes and places alone."""


@dataclass(frozen=True)
class Fixed:
    """What depends on no source; equal computations of constants have equal fingerprints.

    What was `drawn` is another one in every run of a program.
    """

    fingerprint: int
    drawn: bool = False


Label: TypeAlias = str | tuple[int, int] | Fixed
"""What memory holds: the source of this name, a result of a step, by their numbers, a constant."""

_OF_SHAPES: Mapping[str, int] = {
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like"), 0
    ),
    **dict.fromkeys(("new", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor"), 0),
    **dict.fromkeys(("type_as", "expand_as", "view_as", "reshape_as", "to"), 1),
}
"""Functions that take the shape or the type alone of an argument, and which one it is."""

_INSIDE = ("torch._export", "torch._subclasses", "torch.fx")
"""Modules of torch that run functions of their own while they record."""

_SCAN = torch.ops.higher_order.scan

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""Python's numbers in a recording: what is open, or is taken from a tensor."""

_UNKNOWN = frozenset(kind.__name__ for kind in SYMBOLIC)
"""How sizes are spelled that depend on values: in one call they may be known, in another not."""
_SPELLED = (Number, str, torch.dtype, type(None), type(...))

_DRAWS = frozenset(
    {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"}
    | {"bernoulli", "multinomial", "normal", "poisson", "uniform_", "normal_", "random_"}
    | {"bernoulli_", "exponential_", "cauchy_", "geometric_", "log_normal_"}
    | {"dropout", "alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d"}
)
"""Functions that draw random numbers."""

_OF_VALUES = frozenset({"__bool__", "__float__", "__index__", "__int__", "item", "numpy", "tolist"})
"""Functions that compute Python's numbers from tensors."""


@dataclass(frozen=True)
class Entry:
    """One function: the memory that it reads, that of its results, and what of both it changes.

    `outside` is what of that was there before the recording.
    `place` is the user's line.
    """

    function: Callable[..., object]
    reads: tuple[int, ...]
    results: tuple[int, ...]
    changed: tuple[int, ...]
    outside: tuple[int, ...]
    settings: Settings
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
    computed: Mapping[int, tuple[int, int]]
    constants: Mapping[int, Fixed]

    def live(self, shown: Iterable[int]) -> Dependences:
        """Return those steps alone, numbered anew, that memory which is `shown` later depends on.

        Beside these are numbers that are taken from tensors, on which Python may depend.
        """
        needed = {self.computed[at][0] for at in shown if at in self.computed}
        for number, step in reversed([*enumerate(self.steps, 1)]):
            if number in needed or step.entry.name in _OF_VALUES:
                needed.add(number)
                needed.update(label[0] for label in step.reads if isinstance(label, tuple))
        anew = {number: at for at, number in enumerate(sorted(needed - {0}), 1)}
        anew[0] = 0  # what other calls computed

        def again(label: Label | None) -> Label | None:
            return (anew[label[0]], label[1]) if isinstance(label, tuple) else label

        return Dependences(
            [
                Step(step.entry, tuple(map(again, step.reads)))
                for number, step in enumerate(self.steps, 1)
                if number in needed
            ],
            {
                at: (anew[number], which)
                for at, (number, which) in self.computed.items()
                if number in needed
            },
            self.constants,
        )


def is_recorded(value: object) -> bool:
    """Tell whether a recording has values like this one: tensors, and numbers that are open."""
    return is_of(value, (torch.Tensor, *SYMBOLIC))


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
    found: list[torch.Tensor] = []
    _collect(value, found)
    return found


def _collect(value: object, found: list[torch.Tensor]) -> None:
    """Add the tensors in `value`; what functions are mostly given needs no general flattening."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, (tuple, list)) and kind in (tuple, list):
        for one in value:
            _collect(one, found)
    elif isinstance(value, dict) and kind is dict:
        for one in value.values():
            _collect(one, found)
    elif kind not in PLAIN:
        found += [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def dependences(
    entries: Iterable[Entry], sources: Mapping[int, Label], constants: Mapping[int, Fixed]
) -> Dependences:
    """Return what of `entries` depends on memory that `sources` name, and what does not.

    `constants` are known before. What an entry computes is the memory of its results, but for views
    of other memory, and of arguments that it changes.
    """
    labels: dict[int, Label] = {**constants, **sources}
    steps: list[Step] = []
    computed: dict[int, tuple[int, int]] = {}
    fixed = dict(constants)
    for entry in entries:
        for at in entry.outside:
            labels.setdefault(at, Fixed(at))
        reads = tuple(map(labels.get, entry.reads))
        viewed = {*entry.reads, *labels}
        made = [*(at for at in entry.results if at not in viewed), *entry.changed]
        constant = _constant(entry, reads)
        if constant is not None:
            fixed.update(dict.fromkeys(made, constant))
            labels.update(dict.fromkeys(made, constant))
        else:
            steps.append(Step(entry, reads))
            results = {at: (len(steps), number) for number, at in enumerate(made)}
            computed.update(results)
            labels.update(results)
    return Dependences(steps, computed, fixed)


def _constant(entry: Entry, reads: tuple[Label | None, ...]) -> Fixed | None:
    """Return what `entry` computes, or None if it reads what is no constant."""
    fixed = [label for label in reads if isinstance(label, Fixed)]
    if len(fixed) < sum(label is not None for label in reads):
        return None
    drawn = entry.name in _DRAWS or any(label.drawn for label in fixed)
    return Fixed(hash((entry.function, reads, entry.settings)), drawn)


class Tape(TorchFunctionMode):
    """Writes down what runs while it is entered, but for what only asks for shapes and types."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[Entry] = []
        self._alive: list[object] = []
        self._seen: list[ref[torch.Tensor]] = []

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
        own: Callable[..., object] | None = AS_WHEN_RUN.get(func)
        func = func if own is None else own
        name = getattr(func, "__name__", "")
        if name == "__get__":  # which changes nothing, and mostly asks for a shape or a type
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                self._write(func, (args, {}), [result], [])
            return result
        given = _without_shapes(name, args, kwargs or {})
        before = [(tensor, _version(tensor)) for tensor in tensors_in(given)]
        result = func(*args, **(kwargs or {}))
        made = tensors_in(result)
        if func is _SCAN:
            _want_gradients(made, [tensor for tensor, _ in before])
        changed = [tensor for tensor, version in before if version != _version(tensor)]
        if made or changed or name in _OF_VALUES:
            self._write(func, given, made, changed)
        return result

    def _write(
        self,
        func: Callable[..., object],
        given: Call,
        made: Sequence[torch.Tensor],
        changed: Sequence[torch.Tensor],
    ) -> None:
        """Write down what `func` made and changed that was `given` those, unless torch ran it."""
        frame = caller_of(sys._getframe(2))
        if frame.f_globals.get("__name__", "").startswith(_INSIDE):
            return
        read = tensors_in(given)
        self._alive += map(_storage, (*read, *made))
        entry = Entry(
            func,
            tuple(map(memory_of, read)),
            tuple(map(memory_of, made)),
            tuple(map(memory_of, changed)),
            tuple(memory_of(tensor) for tensor in read if not isinstance(tensor, FakeTensor)),
            spelled_out(given),
            _place(frame),
        )
        self._entries.append(entry)
        self._seen += [ref(tensor) for tensor in made if isinstance(tensor, FakeTensor)]

    def survivors(self) -> list[torch.Tensor]:
        """Return the tensors that functions gave back and that are still there, each once."""
        found = {id(tensor): tensor for seen in self._seen if (tensor := seen()) is not None}
        return [*found.values()]


def _want_gradients(made: Iterable[torch.Tensor], read: Iterable[torch.Tensor]) -> None:
    """Let what is `made` of tensors that want gradients want some: recorded loops forget it."""
    with torch._C.DisableTorchFunction():
        wanted = torch.is_grad_enabled() and any(one.requires_grad for one in read)
        for tensor in made:
            if wanted and tensor.is_floating_point() and not tensor.requires_grad:
                tensor.requires_grad_()


def _without_shapes(name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Call:
    """Return what the function `name` is given, without tensors of which it reads the shape."""
    at = _OF_SHAPES.get(name, len(args))
    if at < len(args) and isinstance(args[at], torch.Tensor):
        return (*args[:at], *args[at + 1 :]), kwargs
    ignored = {"input", "other"} if name in _OF_SHAPES else {}
    return args, {key: value for key, value in kwargs.items() if key not in ignored}


def spelled_out(value: object) -> Settings:
    """Return what can be compared of arguments: all but what tensors hold."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunction():
            strided = value.layout is torch.strided and torch._C._has_storage(value)
            place = (value.storage_offset(), *value.stride()) if strided else ()
            flags = (value.requires_grad, value.is_conj(), value.is_neg())
            return (value.dtype, *flags, *map(spelled_out, (*value.shape, *place)))
    if isinstance(value, (tuple, list)):
        return tuple(map(spelled_out, value))
    if isinstance(value, Mapping):
        return tuple((key, spelled_out(item)) for key, item in value.items())
    if isinstance(value, slice):
        return ("slice", *map(spelled_out, (value.start, value.stop, value.step)))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, SYMBOLIC) and value.node.has_hint():
        return repr(value.node.hint)  # of the example: a call may fix what is open before it
    return repr(value) if isinstance(value, _SPELLED) else type(value).__name__


def agree(one: Settings, other: Settings) -> bool:
    """Tell whether what was spelled out may be the same: where a size has no value, any is."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == other or not _UNKNOWN.isdisjoint((one, other))


def _version(tensor: torch.Tensor) -> int:
    """Return how often `tensor` was changed; those of inference_mode do not count."""
    with torch._C.DisableTorchFunction():
        return 0 if tensor.is_inference() else tensor._version


def caller_of(frame: FrameType) -> FrameType:
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
