"""Torch modules: what they hold, put aside and put back; who wrote to one, or froze it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, is_, itemgetter, methodcaller
from threading import RLock
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from pef.warned import warn
from pef.wording import listed

from .errors import HostError


@contextmanager
def without_values(*models: nn.Module) -> Iterator[None]:
    """Make the parameters and buffers of `models` shapes alone for a while.

    A program compiled meanwhile holds no weights. What is one tensor, in one model or in several,
    stays one.
    """
    replaced: dict[int, Tensor] = {}
    modules = dict.fromkeys(module for model in models for module in model.modules())
    tables = [
        cast(dict[str, Tensor | None], table)
        for module in modules
        for table in (module._parameters, module._buffers)
    ]
    before = [dict(table) for table in tables]
    for table in tables:
        for name, tensor in table.items():
            if tensor is not None:
                table[name] = replaced.setdefault(id(tensor), _described(tensor))
    try:
        yield
    finally:
        for table, content in zip(tables, before, strict=True):
            table.update(content)


def _described(tensor: Tensor) -> Tensor:
    """Return a plain tensor of the same kind without values."""
    with torch._C.DisableTorchFunctionSubclass():
        empty = torch.empty_like(tensor.detach().as_subclass(Tensor), device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


_MODES = RLock()
"""Held by who puts modules into a mode: devices, each in a thread, may have modules in common."""


@contextmanager
def in_mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Let `module` train for a while, or evaluate: without dropout, with the statistics it has.

    Other threads that want a mode wait meanwhile.
    """
    with _MODES:
        before = [(part, part.training) for part in module.modules()]
        module.train(training)
        try:
            yield
        finally:
            for part, trained in before:
                part.training = trained


def tried(part: nn.Module, sample: Sequence[Tensor], *, training: bool) -> tuple[Tensor, ...]:
    """Return what `part` gives for a sample in one of its modes, by torch, without gradients.

    Its forward may take some inside, as it may where it is compiled. Buffers that it moves stay as
    they are, and so do torch's random numbers. Raises `HostError` where Python or torch refuse;
    errors of the program's own kinds come as they are.
    """
    buffers = {name: tensor.clone() for name, tensor in part.named_buffers()}
    given = tuple(tensor.clone() for tensor in sample)
    alone = torch.random.fork_rng(devices=())
    with in_mode(part, training=training), torch.enable_grad(), alone, running(part, sample):
        found: tuple[Tensor, ...] = torch.func.functional_call(part, buffers, given)
    return detached(found)


def detached(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors, without what gradients would go back by."""
    return tuple(tensor.detach() for tensor in tensors)


@contextmanager
def running(part: nn.Module, sample: Sequence[Tensor]) -> Iterator[None]:
    """Raise `HostError` where Python or torch refuse to run `part` on a sample meanwhile."""
    try:
        yield
    except Exception as error:
        if type(error).__module__ != "builtins":
            raise
        shapes = ", ".join(str([*tensor.shape]) for tensor in sample)
        name = part._get_name()  # type: ignore[no-untyped-call]
        raise HostError(f"{name} does not run on tensors of {shapes}: {error}") from error


class Version:
    """What a module computes with at one time: tensors, how often each was written to, and more.

    That is its `structure`, as `structure_of` returns it, of what `owners` hold. Tensors are kept,
    so that none that is made later can be taken for one of them.
    """

    def __init__(
        self,
        tensors: Iterable[Tensor | None],
        structure: object = (),
        owners: Iterable[object] = (),
    ) -> None:
        self.tensors = [tensor for tensor in tensors if tensor is not None]
        self._marks = [mark(tensor) for tensor in self.tensors]
        self._structure = structure
        self._glance = Glance(owners)

    def stands(self) -> bool:
        """Return whether a glance shows that nothing has changed; else `is_that_of` may say so."""
        return self._glance.is_same()

    def is_that_of(self, other: Version) -> bool:
        """Return whether nothing has changed between the two."""
        return (
            self._marks == other._marks
            and None not in self._marks
            and all(a is b for a, b in zip(self.tensors, other.tensors, strict=True))
            and self._structure == other._structure
        )


def structure_of(module: nn.Module, objects: bool = True) -> object:
    """Return what `module` is made of beside tensors: modules in it, and what attributes hold.

    It equals that of another time if nobody has put another module or value there: numbers and
    texts and tensors alone, or all `objects`. What other objects hold is not looked at. Without
    `objects` it is for training, and what evaluates in a `module` that trains counts, too.
    """
    trains = objects or not module.training  # all of it, where the whole is to evaluate
    return [
        (
            *(path, part, held({k: v for k, v in vars(part).items() if k not in _TORCHS}, objects)),
            trains or part.training,
        )
        for path, part in module.named_modules(remove_duplicate=False)
    ]


_TORCHS = frozenset(vars(nn.Module())) - {"_forward_hooks", "_forward_pre_hooks"}
"""Attributes that every module has, and that hold nothing of its own."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST = 100


class _Same:
    """An object, which equals itself alone; a tensor until it is written to."""

    __slots__ = ("_kept", "_mark")

    def __init__(self, kept: object) -> None:
        self._kept = kept
        self._mark = mark(kept) if isinstance(kept, Tensor) else ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self._kept is not other._kept:
            return False
        return self._mark is not None and self._mark == other._mark

    __hash__ = None  # type: ignore[assignment]  # nobody looks for it


def held(value: object, objects: bool = True) -> object:
    """Return what equals that of another time if `value` is the same, or equal and plain.

    Lists and dictionaries of up to a hundred items are looked into. Without `objects` all that is
    neither plain nor a tensor is equal.
    """
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, list | tuple) and len(value) <= _MOST:
        return type(value), [held(item, objects) for item in value]
    if isinstance(value, Mapping) and len(value) <= _MOST:
        return type(value), [(key, held(item, objects)) for key, item in value.items()]
    return _Same(value) if objects or isinstance(value, Tensor) else None


Mark: TypeAlias = tuple[object, ...]
"""What a write to a tensor changes."""


def mark(tensor: Tensor) -> Mark | None:
    """Return what a write to `tensor` changes, None where torch does not count writes.

    Other `data` of it count, too, be they a part of what it had, or that turned. What is written
    by way of `data`, or to an array that shares its memory, nobody counts.
    """
    return None if tensor.is_inference() else tuple(looks(tensor) for looks in _LOOKS)


_LOOKS = (
    attrgetter("_version"),
    methodcaller("data_ptr"),
    attrgetter("shape"),
    methodcaller("stride"),
)
"""What tells whether a tensor has been written to."""


class MarkedSource(ABC):
    """What is read when it is compiled, and which may be changed later."""

    @abstractmethod
    def mark(self) -> object:
        """Return what is another one after a change that is noticed."""


class Glance:
    """What `owners` hold in their attributes, to see soon whether all that is as it was.

    It looks at what is the same object, and at writes to tensors, in lists and dictionaries too.
    What only equals what was there, as `held` takes it, is another one to it. It costs a small part
    of what `structure_of` takes, which is more than a run of a small program.
    """

    def __init__(self, owners: Iterable[object], *, modes: bool = False) -> None:
        """Look at what there is now, with `modes` at what trains and what evaluates, too."""
        idle = _UNSEEN - {"training"} if modes else _UNSEEN
        self._owners = [*owners]
        self._attributes = [vars(owner) for owner in self._owners]
        self._picks: list[_Picks] = []
        self._looked: list[Collection[object]] = [*self._attributes]
        self._full: list[Iterable[object]] = []
        found: dict[int, object] = {}
        for owner, attributes in zip(self._owners, self._attributes, strict=True):
            unseen = idle if isinstance(owner, nn.Module) else frozenset()
            names = [name for name in attributes if name not in unseen]
            self._picks.append(_picking(names))
            for name in names:
                self._look(name, attributes[name], found)
        self._sources = [owner for owner in self._owners if isinstance(owner, MarkedSource)]
        self._read = [source.mark() for source in self._sources]
        self._lengths = [*map(len, self._looked)]  # of each: an item may move from one to the next
        self._held = [*self._items()]
        self._tensors = [each for each in found.values() if isinstance(each, Tensor)]
        self._uncounted = any(tensor.is_inference() for tensor in self._tensors)
        self._marks = [] if self._uncounted else self._marked()

    def is_same(self) -> bool:
        """Return whether all that is held is what it was."""
        try:
            return (
                not self._uncounted
                and all(map(is_, map(vars, self._owners), self._attributes))
                and [*map(len, self._looked)] == self._lengths
                and all(map(is_, self._items(), self._held))
                and self._marked() == self._marks
                and [source.mark() for source in self._sources] == self._read
            )
        except KeyError:  # an attribute has another name
            return False

    def _items(self) -> Iterator[object]:
        """Return what attributes hold that count, and what is in collections."""
        picked = [picks(held) for picks, held in zip(self._picks, self._attributes, strict=True)]
        return chain.from_iterable((*picked, *self._full))

    def _marked(self) -> list[Any]:
        return [found for looks in _LOOKS for found in map(looks, self._tensors)]

    def _look(self, key: object, value: object, found: dict[int, object]) -> None:
        """Look at what is called `key`; if it is a collection, at what is in it, too."""
        if id(value) in found:
            return
        if isinstance(value, Tensor):
            found[id(value)] = value
        elif isinstance(value, list | tuple | Mapping) and (len(value) <= _MOST or key in _TABLES):
            found[id(value)] = value
            self._looked.append(value)
            if value:  # many tables are empty
                self._full += [value, value.values()] if isinstance(value, Mapping) else [value]
            for name, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                self._look(name, item, found)


_Picks: TypeAlias = Callable[[Mapping[str, object]], tuple[object, ...]]


def _picking(names: Sequence[str]) -> _Picks:
    """Return what gives the values that have these names, soon."""
    if len(names) < 2:  # of which `itemgetter` makes no tuple
        return lambda held: tuple(held[name] for name in names)
    return itemgetter(*names)


_TABLES = frozenset({"_parameters", "_buffers", "_modules", "_constants"})
"""Attributes that hold what modules are made of, which count however many there are."""
_UNSEEN = _TORCHS - _TABLES
"""Attributes of all modules that count for nobody, but the mode in training."""


_WANTS_GRADIENT = attrgetter("requires_grad")


class FreezeWatch:
    """Tells, once each, of parameters that are frozen after a program was compiled to train them.

    `trained` are what the program trains, by the names that users know. A program trains what it
    was compiled for, so that freezing one has no effect on it.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter] | None = None) -> None:
        found = dict(trained or {})
        self.trained: Mapping[str, nn.Parameter] = found
        self._untold = {name: item for name, item in found.items() if item.requires_grad}

    def tell(self, program: str) -> None:
        """Warn of what was frozen since the last call; `program` is what trains it all the same."""
        with torch._C.DisableTorchFunctionSubclass():  # each would go through it, in every run
            if all(map(_WANTS_GRADIENT, self._untold.values())):
                return
            frozen = [name for name, item in self._untold.items() if not item.requires_grad]
        for name in frozen:
            del self._untold[name]
        warn(
            f"{program} goes on training {listed(frozen, separator=', ')}, frozen since by "
            "requires_grad = False: it trains what it was compiled for. Compile it again to leave "
            "them as they are"
        )
