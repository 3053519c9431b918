"""What a module keeps from one call of `forward` to the next, which a program does not.

A module may make a tensor in its first call and read it in later ones, such as a mask. Each
recording sees the module as it was before any call, so that the tensor is made in the program. That
is what the module means as long as all calls are like the first.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import chain
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as modules
from torch.utils import _pytree as pytree

from pef.objects import ObjectSnapshot
from pef.warned import warn
from pef.wording import listed
from sambac.frontend.torch.errors import refusal

from .assigned import (
    ParameterReader,
    put_back,
    require_parameters,
    require_same_gradients,
    tables_of,
    told_of_new_shapes,
    write_assigned,
)
from .holders import taking_apart
from .inputs import Example, arguments_of, module_name, signature_of
from .repetition import (
    Found,
    Observed,
    is_count,
    is_plain,
    require_alike,
    require_unwritten,
    unrecorded,
)
from .survivors import require_released
from .tape import SYMBOLIC, Tape, is_recorded

Generator: TypeAlias = random.Random | np.random.Generator | np.random.RandomState
"""Random numbers of Python and of numpy, of which a recording has those that fell."""

Arguments: TypeAlias = tuple[tuple[object, ...], dict[str, object]]

_CALLS = 3
"""How often a module is called: some begin to do something else in their third call."""

Told = list[str]
"""What the user is to be told of a module whose calls are not all alike."""


@dataclass(frozen=True)
class _Reached:
    """The state that a generator had, and how to ask for it and to set it."""

    state: Any
    get: Callable[[], Any]
    set: Callable[[Any], None]


@dataclass(frozen=True)
class Lots:
    """Where the generators were that a module may draw from."""

    generators: tuple[_Reached, ...]

    @classmethod
    def of(cls, around: Surroundings) -> Lots:
        """Return where they are now; those of modules and of inputs are `around`."""
        found = chain.from_iterable(part.found(Generator) for part in (around.found, around.inputs))
        own = {id(one): one for one in found}.values()
        return cls((_reached(random), _reached(np.random), *map(_reached, own)))

    def cast(self) -> None:
        """Let the next numbers be those after these lots."""
        for one in self.generators:
            one.set(one.state)

    def drawn(self) -> list[str]:
        """Return a sentence for the user, if some were drawn since."""
        sentence = (
            "forward draws random numbers of Python or of numpy; every run of the program has "
            "those that fell when it was recorded: draw them with torch, or before the call"
        )
        moved = any(pickle.dumps(one.get()) != pickle.dumps(one.state) for one in self.generators)
        return [sentence] if moved else []


@dataclass(frozen=True)
class Surroundings:
    """What code of `module` can get to, called with what is `given`, and what that held.

    `found` is what the module's own gets to, `inputs` what it is given.
    """

    module: torch.nn.Module
    given: SimpleNamespace
    found: ObjectSnapshot
    inputs: ObjectSnapshot

    @classmethod
    def of(cls, module: torch.nn.Module, example: Example) -> Surroundings:
        """Return what is there now. Raises `CompileError` where objects cannot be looked into."""
        given = SimpleNamespace(**arguments_of(module.forward, example.args, example.kwargs))
        try:
            found, inputs = (ObjectSnapshot(of, is_recorded) for of in (module.modules(), [given]))
        except Exception as error:  # keys and members may have a `__hash__` of the user's
            raise refusal(module_name(module), error) from error
        return cls(module, given, found, inputs)

    def again(self) -> Surroundings:
        """Return what is there now, mostly what was; to look everywhere takes longer than calls."""
        found = self.found.again(self.module.modules())
        return replace(self, found=found, inputs=self.inputs.again([self.given]))

    def restore(self) -> None:
        """Put back what was there; other threads may have made tensors meanwhile."""
        for part in (self.found, self.inputs):
            part.restore(_is_stale)


@dataclass(frozen=True)
class _Calls:
    """Calls of a module, each recorded as if it were the first; `call` is what PyTorch calls.

    `before` is what was there before any, `told` what the user is to be told.
    """

    module: torch.nn.Module
    training: bool
    call: Callable[..., object]
    before: Surroundings
    told: Told
    tape: Tape
    reader: ParameterReader

    @property
    def name(self) -> str:
        """What messages call the module."""
        return module_name(self.module)

    def record(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Return what one call returns; compare it with later ones."""
        # `forward` may take things out of collections that it is given.
        count = 1 if _other_code(self.module) else _CALLS
        with unrecorded((args, kwargs)), torch._C.DisableTorchFunction():
            later = [pytree.tree_map(_alias, (args, kwargs)) for _ in range(count - 1)]
        given = pytree.tree_map(_itself, (args, kwargs))
        tables = tables_of(self.module)
        around = self.before.again()  # which is all that was there, but for what calls again
        before, lots = self._found_by(around, given), Lots.of(around)
        try:
            first, result = self._first(before, given)
            self.told.extend(lots.drawn())
            repeat = partial(self._repeated, around, lots)
            self.told.extend(_compared(self.name, before, first, map(repeat, later)))
        finally:
            left = before.memory.restore(_is_stale)
            put_back(tables)
        self.told.extend([*_unseen(before.memory.unseen), *_left(left)])
        return result

    def _found_by(self, around: Surroundings, given: Arguments) -> Found:
        """Return what a call finds that is `given` such arguments."""
        return Found.by_call(self.module, given, training=self.training, memory=around.found)

    def _repeated(self, around: Surroundings, lots: Lots, given: Arguments) -> Observed:
        """Call again with what is `given` and the same random numbers, without recording it."""
        lots.cast()
        with unrecorded(given):
            before = self._found_by(around.again(), given)
            self.tape.taken()
            result = self.call(*given[0], **given[1])
            return before.observed(self.tape.taken(), result)

    def _first(self, before: Found, given: Arguments) -> tuple[Observed, object]:
        """Return the first call, and what it returns with what it assigns written to buffers."""
        module, name, training = self.module, self.name, self.training
        parameters = dict(module.named_parameters(remove_duplicate=False))
        self.reader.begin(parameters.values())
        self.tape.taken()
        result = self.call(*given[0], **given[1])
        first = before.observed(self.tape.taken(), result)
        require_parameters(module, parameters, training)
        require_unwritten(name, before, first)
        if training:
            require_same_gradients(module, parameters, self.reader.changed)
            self.told.extend(told_of_new_shapes(module, before.buffers))
        reached = before.reached(first.entries)
        return first, write_assigned(module, before.buffers, reached, result, training)


@dataclass(frozen=True)
class Before:
    """What there was before a module was called, and what the user is to be told of its calls."""

    around: Surroundings
    told: Told

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Let what the module's code reaches have afterwards what it had before any call.

        Values of tensors are not looked at.
        """
        lots = Lots.of(self.around)
        try:
            yield
        finally:
            self.around.restore()
            lots.cast()


@contextmanager
def called_afresh(
    module: torch.nn.Module, example: Example, training: bool, around: Surroundings
) -> Iterator[Before]:
    """Let `module` have before each call of it what it has now, and afterwards too.

    It is called like `example`, whose objects have afterwards what they have now, too; what is
    `around` may have been found earlier. What is yielded will hold what the user is to be told.
    Raises `CompileError` if another call would not do the same, as one that reads what the first
    computed from inputs or from what trains. What a call assigns to buffers is written to them;
    parameters may not be assigned to, nor, in `training`, be frozen or thawed. Nor may what a call
    computes stay where it cannot be taken out.
    """
    tape, reader = Tape(), ParameterReader(name := module_name(module))
    told = _not_compared(name, _other_code(module))
    attribute, call = _called(module)
    call = taking_apart(call, module.forward, told)
    around = around.again()
    calls = _Calls(module, training, call, around, told, tape, reader)

    @wraps(call)
    def afresh(*args: object, **kwargs: object) -> object:
        # What calls set in the context is gone with a copy of it.
        return copy_context().run(calls.record, args, kwargs)

    taken = signature_of(module.forward, example.args, example.kwargs)
    afresh.__signature__ = taken  # type: ignore[attr-defined]
    module.__dict__[attribute] = afresh
    try:
        with tape, reader:
            yield Before(around, told)
    finally:
        # `forward` too, and collections that torch.export put copies of there.
        around.restore()
    require_released(name, tape.survivors)


def _compared(name: str, before: Found, first: Observed, later: Iterable[Observed]) -> Told:
    """Return what is to be told of a `first` call and of `later` ones; see `require_alike`.

    The first call found what was there `before`. No more are made once calls leave all as it was.
    """
    told, calls, counts = Told(), [first], False
    logs: tuple[str, ...] = ()
    for repeated in later:
        both = before.observed(calls[-1].entries, repeated.result)
        alike = require_alike(name, calls[-1], repeated, both)
        told += alike.told
        counts, logs = counts or alike.counts, logs or alike.logs
        calls.append(repeated)
        if not before.memory.changes():
            break  # the next call finds what this one found
    return [*told, *_logged(name, logs), *_unsettled(calls, counts)]


def _logged(name: str, paths: Sequence[str]) -> Told:
    """Return a sentence about tensors that calls leave at `paths`, and none has read so far."""
    sentence = (
        f"{name} keeps {listed(paths, separator=', ')} from one call of forward to the next, which "
        "a program does not; return what is to be seen of a run"
    )
    return [sentence] if paths else []


def _unseen(paths: Sequence[str]) -> list[str]:
    """Return a sentence about arrays at `paths`, which are too large to be looked at."""
    sentence = (
        f"the arrays {listed(paths, separator=', ')} are too large to see whether forward changes "
        "them; if it does not, say so with array.flags.writeable = False"
    )
    return [sentence] if paths else []


def _left(paths: Sequence[str]) -> list[str]:
    """Return a sentence about what is at `paths`, which calls have changed for good."""
    sentence = (
        f"compiling called forward, which leaves {listed(paths, separator=', ')} changed: what "
        "is no plain value or container, such as an iterator, cannot be put back"
    )
    return [sentence] if paths else []


def _other_code(module: torch.nn.Module) -> list[str]:
    """Return the parts of `module` that are not Python: TorchScript is seen in recordings alone."""
    named = module.named_modules()
    return [path for path, part in named if isinstance(part, torch.jit.ScriptModule)]


def _not_compared(name: str, other_code: Sequence[str]) -> Told:
    """Return a sentence about a module whose later calls are not looked at, if that is so."""
    sentence = (
        f"{name} has parts in TorchScript ({listed(other_code, separator=', ')}), so that its "
        "later calls are not compared with the first: let nothing that forward computes stay in "
        "attributes"
    )
    return [sentence] if other_code else []


def _called(module: torch.nn.Module) -> tuple[str, Callable[..., object]]:
    """Return by which attribute PyTorch calls `module`, and what is there.

    With hooks that is all of the call: they may do what `forward` may do.
    """
    own = module._forward_pre_hooks or module._forward_hooks
    if own or modules._global_forward_pre_hooks or modules._global_forward_hooks:
        return "_compiled_call_impl", module._call_impl
    return "forward", module.forward


def tell(told: Told) -> None:
    """Warn of what was `told`, each of it once."""
    for sentence in dict.fromkeys(told):
        warn(sentence)


def _unsettled(calls: Sequence[Observed], counts: bool) -> Told:
    """Return a sentence about what still the last of `calls` changes.

    Also about numbers that any of them changes, if what they do depends on these `counts`.
    """
    lasting = {change.path for change in calls[-1].changes}
    before: dict[str, object] = {}
    for change in (change for call in calls for change in call.changes):
        if is_plain(change) and (change.path in lasting or (counts and is_count(change))):
            before.setdefault(change.path, change.before)
    short = (int, float, str, bool)
    found = [f"{at} = {old!r}" if isinstance(old, short) else at for at, old in before.items()]
    sentence = (
        "forward changes values that every run of the program finds as they were before: "
        f"{listed(found, separator=', ')}; if results depend on them, let them be buffers, with "
        "register_buffer()"
    )
    return [sentence] if found else []


def _reached(generator: object) -> _Reached:
    get, put = _access(generator)
    return _Reached(get(), get, put)


def _access(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return how to ask for the state of a generator, and how to set it."""
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return partial(getattr, bits, "state"), partial(setattr, bits, "state")
    if isinstance(generator, random.Random) or generator is random:
        return generator.getstate, generator.setstate
    return generator.get_state, generator.set_state


def _itself(value: object) -> object:
    return value


def _alias(value: object) -> object:
    """Return a tensor of the same memory: one that is written to may want gradients afterwards."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _is_stale(value: object) -> bool:
    """Tell whether a recording made a tensor; other threads make others meanwhile."""
    return isinstance(value, (FakeTensor, *SYMBOLIC))
