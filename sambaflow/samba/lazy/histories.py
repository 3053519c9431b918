"""How tensors without values would have got them: what is recorded, and doing it again.

A history belongs to a storage, as values do, so that a parameter, its `.data` and views of it all
see the same. It is what was computed at first and what was written since, each a call of torch;
arguments that have histories themselves are kept as regions: which history, how far it had come,
and which elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .rng import MultithreadedRNG, RNGProvider, drawn

Function: TypeAlias = Callable[..., object]
Tree: TypeAlias = object
"""A value, or a tuple, list or dict of them, as arguments and results of torch are."""

Layout: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, stride and offset of a tensor in its storage."""

_OVERWRITES = frozenset(
    {"uniform_", "normal_", "zero_", "fill_", "copy_", "exponential_"}
    | {"orthogonal_", "dirac_", "sparse_", "_no_grad_trunc_normal_"}
)
"""What writes every element of its target without reading any."""


@dataclass(frozen=True)
class Elements:
    """The elements of a tensor: where they lie in a storage, after so many of its steps."""

    history: History
    steps: int
    layout: Layout

    def of(self, base: torch.Tensor) -> torch.Tensor:
        """Return the elements in `base`, a tensor over the storage."""
        return base.as_strided(*self.layout)


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A call of torch; `random` gives the random numbers of one that needs some."""

    function: Function
    args: Tree
    kwargs: Mapping[str, Tree]
    random: RNGProvider | None = None


@dataclass(frozen=True, eq=False)
class RecordedWrite:
    """A call that wrote into `target`: a region, which stands in the call as `TARGET`."""

    call: RecordedCall
    target: Elements
    overwrites: bool


class _Target:
    """Stands for the target among the arguments of a step."""


TARGET = _Target()


@dataclass(eq=False)
class History:
    """How the values of a storage come about.

    `origin` is the call that made the first values, None where there were none. `path` says which
    of its results they are, and `layout` where in the storage they went (size, stride, offset).
    `elements` and `dtype` are those of the storage.
    """

    elements: int
    dtype: torch.dtype
    origin: RecordedCall | None = None
    path: tuple[int, ...] = ()
    layout: Layout = ((0,), (1,), 0)
    steps: list[RecordedWrite] = field(default_factory=list)
    recipe: Callable[[], ValueRecipe | None] | None = None
    """A weak reference to the recipe of the parameter that stands for the storage, if one does.

    Not to the parameter: tensors with weak references cannot be given values in place."""


@dataclass(eq=False)
class ValueRecipe:
    """A materializer that does again what was recorded; called with the tensor and any generator.

    The seed and the order in which random steps were recorded decide on the values, so the
    generator is not used. `owner` is the parameter it was made for.
    """

    region: Elements
    owner: torch.Tensor | None = None

    def __call__(self, tensor: torch.Tensor, rng: MultithreadedRNG | None = None) -> torch.Tensor:
        """Return the values, of the type and shape of `tensor`."""
        region = replace(self.region, steps=len(self.region.history.steps))
        return replay(region).to(tensor.dtype).reshape(tensor.shape)


class Histories:
    """The histories of storages that are alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, History]] = {}
        self._limit = 1024

    def __len__(self) -> int:
        return len(self._known)

    def find(self, value: object) -> History | None:
        """Return the history of a tensor's storage, if it has one."""
        if not self._known or not isinstance(value, torch.Tensor):
            return None
        # A tensor of another layout has no storage.
        if value.layout is not torch.strided:
            return None
        found = self._known.get(value.untyped_storage()._cdata)
        return found[1] if found else None

    def add(self, tensor: torch.Tensor, history: History) -> None:
        """Let `history` be that of the storage of `tensor`."""
        if len(self._known) >= self._limit:
            # A weak reference keeps the address taken, so entries of dead storages mislead nobody.
            alive = {key: item for key, item in self._known.items() if not item[0].expired()}  # type: ignore[no-untyped-call]
            self._known, self._limit = alive, max(1024, 2 * len(alive))
        storage = tensor.untyped_storage()
        self._known[storage._cdata] = (StorageWeakRef(storage), history)  # type: ignore[no-untyped-call]

    def region(self, tensor: torch.Tensor) -> Elements | None:
        """Return where the elements of `tensor` are in its history, as it is now."""
        history = self.find(tensor)
        if history is None or history.dtype != tensor.dtype:
            return None
        return Elements(history, len(history.steps), _layout(tensor))


HISTORIES = Histories()
"""One table for the process, as there is one memory."""


def start(tensor: torch.Tensor, origin: RecordedCall | None, path: tuple[int, ...] = ()) -> History:
    """Give the storage of `tensor` a history that begins with `origin`, and return it."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    history = History(elements, tensor.dtype, origin, path, _layout(tensor))
    HISTORIES.add(tensor, history)
    return history


def write(target: Elements, call: RecordedCall) -> None:
    """Record that `call` writes into `target`."""
    name = getattr(call.function, "__name__", "")
    whole = torch.Size(target.layout[0]).numel() == target.history.elements
    target.history.steps.append(RecordedWrite(call, target, whole and name in _OVERWRITES))


def replay(region: Elements) -> torch.Tensor:
    """Return the values of `region`, a plain tensor with memory of its own."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return region.of(_Replay().base(region.history, region.steps)).clone()


class _Replay:
    """Does histories again; what several steps read is computed once."""

    def __init__(self) -> None:
        self._bases: dict[tuple[History, int], torch.Tensor] = {}
        self._results: dict[RecordedCall, Tree] = {}

    def base(self, history: History, steps: int) -> torch.Tensor:
        """Return a tensor over all of the storage as it was after so many steps."""
        key = history, steps
        if key not in self._bases:
            self._bases[key] = self._made(history, steps)
        return self._bases[key]

    def _made(self, history: History, steps: int) -> torch.Tensor:
        taken = history.steps[:steps]
        first = max((i for i, step in enumerate(taken) if step.overwrites), default=0)
        base = torch.empty(history.elements, dtype=history.dtype)
        if history.origin is not None and not (taken and taken[first].overwrites):
            base.as_strided(*history.layout).copy_(self._origin(history.origin, history.path))
        for step in taken[first:]:
            self._call(step.call, step.target.of(base))
        return base

    def _origin(self, call: RecordedCall, path: tuple[int, ...]) -> torch.Tensor:
        if call not in self._results:
            self._results[call] = self._call(call, None)
        found = self._results[call]
        for index in path:
            assert isinstance(found, tuple | list)
            found = found[index]
        assert isinstance(found, torch.Tensor)
        return found

    def _call(self, call: RecordedCall, target: torch.Tensor | None) -> Tree:
        def real(leaf: object) -> object:
            if leaf is TARGET:
                return target
            return self.value(leaf) if isinstance(leaf, Elements) else leaf

        if call.function is torch.Tensor.__deepcopy__:
            # What `copy` remembers by id in its second argument is not of this replay.
            assert isinstance(call.args, tuple)
            copied = real(call.args[0])
            assert isinstance(copied, torch.Tensor)
            return copied.clone()
        args = mapped(real, call.args)
        kwargs = mapped(real, dict(call.kwargs))
        assert isinstance(args, tuple)
        assert isinstance(kwargs, dict)
        if call.random is None:
            return call.function(*args, **kwargs)
        return drawn(call.function, args, kwargs, call.random())

    def value(self, region: Elements) -> torch.Tensor:
        """Return the elements of a region that a call reads."""
        return region.of(self.base(region.history, region.steps))


def mapped(change: Callable[[object], object], tree: Tree) -> Tree:
    """Return `tree` with every leaf changed."""
    if isinstance(tree, dict):
        return {key: mapped(change, value) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [mapped(change, part) for part in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    return change(tree)


def leaves(tree: Tree, path: tuple[int, ...] = ()) -> Iterable[tuple[tuple[int, ...], object]]:
    """Yield the values in `tree`, each with its position; those of a dict in its order."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, tuple | list):
        parts = (leaves(part, (*path, index)) for index, part in enumerate(tree))
        yield from chain.from_iterable(parts)
    else:
        yield path, tree


def _layout(tensor: torch.Tensor) -> Layout:
    return tuple(tensor.size()), tuple(tensor.stride()), int(tensor.storage_offset())
