"""Whether later calls of a module do what the first did.

A program does in every run what was recorded of one call. A module may compute something in its
first call that later ones read, such as the norm of a weight, or begin with another formula. What
two calls compute from their sources is compared function by function. Sources are inputs,
parameters that train, and buffers that calls change. The rest are constants, also those that calls
make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from numbers import Number

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import (
    PreDispatchTorchFunctionMode,
    disable_proxy_modes_tracing,
)

from pef.objects import Change, ObjectSnapshot
from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.patching import replaced

from .assigned import Buffers, buffers_of, spelled
from .tape import (
    SYMBOLIC,
    Dependences,
    Entry,
    Fixed,
    Label,
    Settings,
    Step,
    agree,
    dependences,
    memory_of,
    spelled_out,
    tensors_in,
)

_CURE = (
    "; a program does the same in every run: make the first call before compiling, if it is the "
    "only one that differs, and let buffers be what changes otherwise"
)

_UNREGISTERED = (
    "takes a number out of a tensor that it keeps in an attribute, as x[self.index] does, and "
    "whether a later call takes the same one is not known; register_buffer() the tensor, or keep a "
    "Python number"
)

_KEPT = (0, 0)
"""What a call calls the memory of what the one before it computed: the result of none of its own
steps, whose numbers begin with 1."""


@dataclass(frozen=True)
class Place:
    """Where a module keeps a tensor; only dicts and lists are between, if it is `direct`."""

    path: str
    direct: bool


@dataclass(frozen=True)
class Observed:
    """A call that is over: what it ran, and the names of its sources by their memory.

    Sources are `inputs`, and `states`: parameters that train, and buffers that changed. `held` is
    what else was there, and `changes` are those of attributes. `left` says where there are tensors
    that are new or were written; those of them that are buffers are `assigned`.
    """

    entries: Sequence[Entry]
    inputs: Mapping[int, str]
    states: Mapping[int, str]
    held: Mapping[int, Fixed]
    changes: Sequence[Change]
    left: Mapping[int, Place]
    assigned: Mapping[int, Place]
    result: object

    @property
    def sources(self) -> dict[int, str]:
        """All sources."""
        return {**self.states, **self.inputs}

    def shown(self) -> set[int]:
        """Return the memory that a run of the program shows: its results, and what buffers hold.

        Other tensors that a call leaves count where a later call shows what it made of them.
        """
        return {*self.sources, *self.assigned, *map(memory_of, tensors_in(self.result))}


@dataclass(frozen=True)
class Found:
    """What a call of `module` finds: inputs, parameters that train, buffers, and attributes."""

    module: torch.nn.Module
    inputs: Mapping[int, str]
    trained: Mapping[int, str]
    parameters: Mapping[int, str]
    buffers: Buffers
    memory: ObjectSnapshot

    @classmethod
    def by_call(
        cls,
        module: torch.nn.Module,
        given: object,
        *,
        training: bool,
        memory: ObjectSnapshot,
    ) -> Found:
        """Return what a call of `module` is about to find that is `given` such arguments.

        Objects hold what `memory` says.
        """
        named = [*module.named_parameters()]
        return cls(
            module,
            {memory_of(tensor): f"input {at}" for at, tensor in enumerate(tensors_in(given))},
            {memory_of(one): name for name, one in named if training and one.requires_grad},
            {memory_of(one): name for name, one in named},
            buffers_of(module),
            memory,
        )

    def reached(self, entries: Sequence[Entry]) -> Callable[[torch.Tensor], bool]:
        """Return what tells whether `entries` computed a tensor from what another call may find.

        Those are its inputs, buffers, and tensors in attributes, whether they change or not.
        """
        kept = tensors_in([[one for _, one in self.memory.tensors], [*self.buffers.values()]])
        sources = {**dict.fromkeys(map(memory_of, kept), "kept"), **self.inputs}
        reached = {*sources, *dependences(entries, sources, {}).computed}
        return lambda tensor: memory_of(tensor) in reached

    def observed(self, entries: Sequence[Entry], result: object) -> Observed:
        """Return the call, which has just run `entries` and returned `result`."""
        written = {at for entry in entries for at in entry.changed}
        changes, buffers = self.memory.changes(), buffers_of(self.module)
        stayed = {
            memory_of(one)
            for at, one in self.buffers.items()
            if one is not None and one is buffers.get(at)
        }
        constant = {*self.parameters, *stayed.difference(written)}
        kept = {*map(memory_of, tensors_in([one for _, one in self.memory.tensors]))}
        left = {
            memory_of(one): Place(path, direct=True)
            for path, one in self.memory.tensors
            if isinstance(one, torch.Tensor) and memory_of(one) in written
        }
        for change in changes:
            new_tensors = tensors_in(self.memory.new_tensors(change.value))
            place = Place(change.path, change.standing.direct)
            left.update(dict.fromkeys(map(memory_of, new_tensors), place))
        assigned = _assigned(self.buffers, buffers, written)
        states: dict[int, str] = {}
        for at, tensor in self.buffers.items():
            if tensor is not None and memory_of(tensor) not in constant:
                states[memory_of(tensor)] = spelled(at)
        return Observed(
            entries=entries,
            inputs=self.inputs,
            states={**states, **self.trained},
            held={at: Fixed(at) for at in (*self.parameters, *stayed, *kept)},
            # Packages have threads of their own.
            changes=[one for one in changes if one.standing.near and not _is_same_size(one)],
            left={**left, **assigned},
            assigned=assigned,
            result=result,
        )


def _assigned(before: Buffers, after: Buffers, written: set[int]) -> dict[int, Place]:
    """Return where buffers are that are new, or were written, by their memory."""
    return {
        memory_of(tensor): Place(spelled(at), direct=True)
        for at, tensor in after.items()
        if tensor is not None and (tensor is not before.get(at) or memory_of(tensor) in written)
    }


def require_unwritten(name: str, found: Found, call: Observed) -> None:
    """Raise `CompileError` if a `call` of the module `name` writes parameters that it `found`."""
    written = {at for entry in call.entries for at in entry.changed}
    parameters = [path for at, path in found.parameters.items() if at in written]
    if parameters:
        raise CompileError(
            f"{name} writes its parameters {listed(parameters, separator=', ')}; only an optimizer "
            "may: make them buffers, or do it outside of forward"
        )


@dataclass(frozen=True)
class Likeness:
    """What the user is to be told of two calls, and whether they have other numbers, by `counts`.

    Such is that objects of the user's, which may have to do with other modules too, keep what
    depends on inputs alone. `logs` is where the first call left tensors of which the second showed
    nothing.
    """

    told: list[str]
    counts: bool = False
    logs: tuple[str, ...] = ()


def require_alike(name: str, first: Observed, second: Observed, both: Observed) -> Likeness:
    """Raise `CompileError` if the `second` call of the module `name` is not like the `first`.

    `both` is what they are together.
    """
    one = dependences(first.entries, first.sources, first.held)
    known = {**second.states, **second.inputs}
    drawn = {at for at, label in one.constants.items() if label.drawn}
    kept = dict.fromkeys({*one.computed, *drawn}.difference(known), _KEPT)
    other = dependences(second.entries, {**second.sources, **kept}, one.constants)
    shown = other.live(second.shown())
    read = _kept_of(shown) | kept.keys() & {*map(memory_of, tensors_in(second.result))}
    if read:
        return Likeness(_told_of_kept(name, read, read & drawn, first, both))
    counted = any(map(is_count, (*first.changes, *second.changes)))
    before = one.live(first.shown())
    counts = _require_same_steps(name, before.steps, shown.steps, counted=counted)
    results = _labels(first, before), _labels(second, shown)
    if results[0] != results[1] and agree(tuple(results[0]), tuple(results[1])):
        raise CompileError(f"{name} {_UNREGISTERED}")
    if results[0] != results[1]:
        raise CompileError(f"a later call of {name} returns other tensors than the first{_CURE}")
    return Likeness([], counts, _paths(_kept_of(other) | kept.keys() & both.left, first, both))


def _kept_of(found: Dependences) -> set[int]:
    """Return what steps read of memory that the call before them computed."""
    reads = (pair for one in found.steps for pair in zip(one.entry.reads, one.reads, strict=True))
    return {at for at, label in reads if label == _KEPT}


def _paths(needed: Iterable[int], first: Observed, both: Observed) -> tuple[str, ...]:
    """Return where memory is that is `needed` after the `first` of `both` calls computed it."""
    places = ((at, first.left.get(at) or both.left.get(at)) for at in needed)
    unnamed = {True: "a tensor that is not registered", False: "a cache"}
    paths = (place.path if place else unnamed[at in first.held] for at, place in places)
    return tuple(sorted({*paths}))


def _labels(call: Observed, found: Dependences) -> list[tuple[Label | None, Settings]]:
    """Return what the results of a `call` hold."""
    labels: dict[int, Label] = {**found.constants, **call.sources, **found.computed}
    return [(labels.get(memory_of(one)), spelled_out(one)) for one in tensors_in(call.result)]


def _told_of_kept(
    name: str, needed: set[int], drawn: set[int], first: Observed, both: Observed
) -> list[str]:
    """Return what is told of memory that is `needed` after the call that computed it, or raise.

    What of that is `drawn` holds random numbers.
    """
    states = dependences(first.entries, first.states, {}).computed
    places = [first.left.get(at) or both.left.get(at) for at in needed]
    paths = _paths(needed, first, both)
    said = f"{name} keeps {listed(paths, separator=', ')} from one call of forward to the next"
    if drawn:
        raise CompileError(
            f"{said}, with random numbers, which every run of a program would draw anew; draw them "
            "in __init__, or call the module once before it is compiled"
        )
    if not needed.isdisjoint(states):
        of_what = "what trains or"
    elif any(place is None or place.direct for place in places):
        of_what = "its inputs or"
    else:
        begins = "in a program every run begins like the first call"
        return [f"{said}, with values that depend on its inputs; {begins}"]
    raise CompileError(
        f"{said}, with values that depend on {of_what} on earlier calls; compute them in each "
        "call, or take them as inputs and return them (in training, buffers keep what goes on)"
    )


def _require_same_steps(
    name: str, first: Sequence[Step], second: Sequence[Step], *, counted: bool
) -> bool:
    """Raise `CompileError` if the steps of two calls differ.

    Not if settings alone do, where the module has `counted`. Return whether that is so.
    """
    differ = False
    for one, other in zip_longest(first, second):
        alike = one is not None and other is not None and one.is_like(other)
        same = alike and one.entry.settings == other.entry.settings
        differ = differ or not same
        if not alike or not (counted or same):
            found = (other or one).entry
            if alike and agree(one.entry.settings, other.entry.settings):
                raise CompileError(f"{name} {_UNREGISTERED} ({found.place})")
            raise CompileError(
                f"a later call of {name} does not do what the first does, from {found.name} "
                f"({found.place}) on{_CURE}"
            )
    return differ


def is_count(change: Change) -> bool:
    """Tell of numbers that change, but not of flags, which say that something was made."""
    return all(map(_is_number, (change.before, change.value))) and change.before != change.value


def is_plain(change: Change) -> bool:
    """Tell of plain values, such as texts and flags, that another one replaces."""
    if isinstance(change.value, SYMBOLIC):  # of which no question may be asked
        return _is_plain(change.before)
    return all(map(_is_plain, (change.before, change.value))) and change.before != change.value


def _is_same_size(change: Change) -> bool:
    """Tell of open numbers that are spelled alike: each call has others of the same value."""
    sizes = [one.node.expr for one in (change.before, change.value) if isinstance(one, SYMBOLIC)]
    return len(sizes) == len({*sizes}) + 1


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (Number, str, bytes, Enum))


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, (bool, Enum))


@contextmanager
def unrecorded(given: object) -> Iterator[None]:
    """Let what runs on tensors as in `given` not become part of the recording that is going on."""
    mode = detect_fake_mode(tensors_in(given))
    sizes = mode.shape_env if mode is not None else None
    unnoticed = sizes.ignore_fresh_unbacked_symbols() if sizes is not None else nullcontext()
    unheard = replaced(PreDispatchTorchFunctionMode, "__torch_function__", _run)
    with unnoticed, unheard, disable_proxy_modes_tracing():
        yield


def _run(
    _mode: PreDispatchTorchFunctionMode,
    func: Callable[..., object],
    types: object,
    args: tuple[object, ...] = (),
    kwargs: Mapping[str, object] | None = None,
) -> object:
    # `autocast` has begun, and has ended, before it says so.
    if func in (torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast):
        return None
    return func(*args, **(kwargs or {}))
