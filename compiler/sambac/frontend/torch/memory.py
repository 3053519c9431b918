"""What a module keeps from one call of `forward` to the next, which a program does not.

A module may make a tensor in its first call and read it in later ones, such as a mask. Each
recording sees the module as it was before any call, so that the tensor is made in the program. That
is what the module means as long as all calls are like the first.
"""

from __future__ import annotations

import inspect
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.modules import module as modules
from torch.utils import _pytree as pytree

from pef.objects import Change, ObjectSnapshot
from pef.warned import warn
from pef.wording import listed

from .assigned import (
    ParameterReader,
    put_back,
    require_parameters,
    require_same_gradients,
    tables_of,
    write_assigned,
)
from .errors import called
from .inputs import Example
from .repetition import (
    Found,
    Observed,
    is_count,
    require_alike,
    require_unwritten,
    unrecorded,
)
from .tape import Tape

_Lots: TypeAlias = tuple[tuple[Any, ...], Any]
"""Where the random numbers of Python and of numpy are."""

Arguments: TypeAlias = tuple[tuple[object, ...], dict[str, object]]

_CALLS = 3
"""How often a module is called: some begin to do something else in their third call."""

Told = list[str]
"""What the user is to be told of a module whose calls are not all alike."""


@contextmanager
def called_afresh(module: torch.nn.Module, example: Example, training: bool) -> Iterator[Told]:
    """Let `module` have before each call of it what it has now, and afterwards too.

    It is called like `example`. Yields what will hold what the user is to be told. Raises
    `CompileError` if another call would not do the same, as one that reads what the first computed
    from inputs or from what trains. What a call assigns to buffers is written to them; parameters
    may not be assigned to, nor, in `training`, be frozen or thawed.
    """
    tape, reader, told = Tape(), ParameterReader(name := called(module)), Told()
    attribute, call = _called(module)
    find = partial(Found.by_call, module, training=training)
    found = ObjectSnapshot(module.modules(), _is_tensor)

    @wraps(call)
    def afresh(*args: object, **kwargs: object) -> object:
        # `forward` may take things out of collections that it is given.
        count = 1 if _has_other_code(module) else _CALLS
        given, *later = (pytree.tree_map(_itself, (args, kwargs)) for _ in range(count))
        tables = tables_of(module)
        parameters = dict(module.named_parameters(remove_duplicate=False))
        before, lots = find(given), _lots()
        reader.begin(parameters.values())
        tape.taken()
        try:
            result = call(*given[0], **given[1])
            calls = [before.observed(tape.taken(), result)]
            told.extend(_drawn(lots))
            require_parameters(module, parameters, training)
            require_unwritten(name, before, calls[0])
            if training:
                require_same_gradients(module, parameters, reader.changed)
            reached = before.reached(calls[0].entries)
            result = write_assigned(module, before.buffers, reached, result, training)
            for repeated in _repeated(call, later, tape, find, lots):
                both = before.observed((), repeated.result)
                told.extend(require_alike(name, calls[-1], repeated, both))
                calls.append(repeated)
            told.extend(_counted([change for one in calls for change in one.changes]))
        finally:
            before.memory.restore()
            put_back(tables)
        return result

    afresh.__signature__ = _signature(module.forward, example)  # type: ignore[attr-defined]
    module.__dict__[attribute] = afresh
    try:
        with tape, reader:
            yield told
    finally:
        found.restore()  # `forward` too, and collections that torch.export put copies of there


def _repeated(
    call: Callable[..., object],
    later: Iterable[Arguments],
    tape: Tape,
    find: Callable[[object], Found],
    lots: _Lots,
) -> Iterator[Observed]:
    """Call again with each of `later`, with the same random numbers, without recording it."""
    for given in later:
        _cast(lots)
        with unrecorded(given):
            before = find(given)
            tape.taken()
            result = call(*given[0], **given[1])
            found = before.observed(tape.taken(), result)
        yield found


def _has_other_code(module: torch.nn.Module) -> bool:
    """Tell whether not all of `module` is Python: TorchScript is seen in recordings alone."""
    return any(isinstance(part, torch.jit.ScriptModule) for part in module.modules())


def _called(module: torch.nn.Module) -> tuple[str, Callable[..., object]]:
    """Return by which attribute PyTorch calls `module`, and what is there.

    With hooks that is all of the call: they may do what `forward` may do.
    """
    own = module._forward_pre_hooks or module._forward_hooks
    if own or modules._global_forward_pre_hooks or modules._global_forward_hooks:
        return "_compiled_call_impl", module._call_impl
    return "forward", module.forward


def _signature(forward: Callable[..., object], example: Example) -> inspect.Signature:
    """Return what `forward` takes: a decorator may take more than what it says it decorates."""
    signature = inspect.signature(forward)
    try:
        signature.bind(*example.args, **example.kwargs)
    except TypeError:
        return inspect.signature(forward, follow_wrapped=False)
    return signature


def tell(told: Told) -> None:
    """Warn of what was `told`, each of it once."""
    for sentence in dict.fromkeys(told):
        warn(sentence)


def _counted(changes: Sequence[Change]) -> Told:
    """Return a sentence about the numbers that a call changes, if it does."""
    counts: dict[str, object] = {}
    for one in filter(is_count, changes):
        counts.setdefault(one.path, one.before)
    found = [f"{path} = {number}" for path, number in counts.items()]
    sentence = (
        "forward changes numbers that every run of the program finds as they were before: "
        f"{listed(found, separator=', ')}; if results depend on them, let them be buffers, with "
        "register_buffer()"
    )
    return [sentence] if found else []


def _lots() -> _Lots:
    return random.getstate(), np.random.get_state()  # noqa: NPY002 - models draw from it


def _cast(lots: _Lots) -> None:
    """Let the next numbers that are drawn be those after `lots`."""
    random.setstate(lots[0])
    np.random.set_state(lots[1])  # noqa: NPY002 - models draw from it


def _drawn(lots: _Lots) -> Told:
    """Return a sentence about random numbers, if some were drawn since `lots`."""
    sentence = (
        "forward draws random numbers of Python or of numpy; every run of the program has those "
        "that fell when it was recorded: draw them with torch, or before the call"
    )
    return [sentence] if pickle.dumps(_lots()) != pickle.dumps(lots) else []


def _itself(value: object) -> object:
    return value


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)
