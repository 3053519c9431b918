"""What a module keeps from one call of `forward` to the next, which a program does not.

A module may make a tensor in its first call and read it in later ones, such as a mask. Each
recording sees the module as it was before any call, so that the tensor is made in the program. That
is what the module means as long as the tensor does not depend on inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from numbers import Number
from typing import TypeAlias

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from pef.objects import ObjectSnapshot
from pef.warned import warn
from pef.wording import listed
from sambac.errors import CompileError

from .assigned import (
    buffers_of,
    put_back,
    require_parameters,
    require_same_gradients,
    tables_of,
    write_assigned,
)
from .inputs import Example

Counts: TypeAlias = dict[str, object]
"""What numbers that a call changes were before, by their paths."""

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
"""What assigning to `.data` of a tensor calls."""


@contextmanager
def called_afresh(module: torch.nn.Module, example: Example, training: bool) -> Iterator[Counts]:
    """Let `module` have before each call of it what it has now, and afterwards too.

    It is called like `example`. Yields what will hold the numbers that a call changes. Raises
    `CompileError` in a call that leaves a tensor in an attribute, if its values depend on inputs
    or on what an attribute held before: the next call is meant to go on from there. What a call
    assigns to buffers is written to them; parameters may not be assigned to, nor, in `training`,
    be frozen or thawed.
    """
    follower, writer, reader = _Follower(), _Follower(), _ParameterReader(type(module).__name__)
    attribute, call = _called(module)
    counts: Counts = {}
    found = ObjectSnapshot(module.modules(), _is_tensor)

    @wraps(call)
    def afresh(*args: object, **kwargs: object) -> object:
        memory, tables = ObjectSnapshot(module.modules(), _is_tensor), tables_of(module)
        buffers = buffers_of(module)
        parameters = dict(module.named_parameters(remove_duplicate=False))
        given = [*pytree.tree_leaves((args, kwargs)), *memory.tensors]
        follower.begin(given)
        writer.begin([*given, *buffers.values()])
        reader.begin(parameters.values())
        try:
            result = call(*args, **kwargs)
            require_parameters(module, parameters, reader.used, training)
            if training:
                require_same_gradients(module, parameters, reader.changed)
            result = write_assigned(module, buffers, writer.reached, result, training)
            _require_no_state(type(module).__name__, memory, follower)
            counts.update(_counts(memory))
        finally:
            memory.restore()
            put_back(tables)
        return result

    afresh.__signature__ = _signature(module.forward, example)  # type: ignore[attr-defined]
    module.__dict__[attribute] = afresh
    try:
        with follower, writer, reader:
            yield counts
    finally:
        found.restore()  # `forward` too, and collections that torch.export put copies of there


def _called(module: torch.nn.Module) -> tuple[str, Callable[..., object]]:
    """Return by which attribute PyTorch calls `module`, and what is there.

    With hooks that is all of the call: they may do what `forward` may do.
    """
    if module._forward_pre_hooks or module._forward_hooks:
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


def _require_no_state(name: str, memory: ObjectSnapshot, follower: _Follower) -> None:
    kept = [
        change.path
        for change in memory.changes()
        if change.direct and any(map(follower.reached, memory.new_tensors(change.value)))
    ]
    if kept:
        raise CompileError(
            f"{name} keeps {listed(kept, separator=', ')} from one call of forward to the next, "
            f"with values that depend on its inputs or on earlier calls; register a buffer for "
            f"that, or return it"
        )


def tell_counts(counts: Counts) -> None:
    """Warn of numbers that a call changes, where all calls of a program are like the first."""
    if counts:
        found = [f"{path} = {number}" for path, number in counts.items()]
        warn(
            f"forward changes numbers that every run of the program finds as they were before: "
            f"{listed(found, separator=', ')}; if results depend on them, let them be buffers, "
            f"with register_buffer()"
        )


def _counts(memory: ObjectSnapshot) -> Counts:
    return {
        change.path: change.before
        for change in memory.changes()
        if _is_number(change.before) and _is_number(change.value) and change.before != change.value
    }


def _is_number(value: object) -> bool:
    """Tell of numbers, but not of flags, which say that something was made in the first call."""
    return isinstance(value, Number) and not isinstance(value, bool)


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


class _Follower(TorchFunctionMode):
    """Follows which tensors were computed from some that it begins with."""

    def __init__(self) -> None:
        super().__init__()
        self._reached: dict[int, object] = {}

    def begin(self, values: Iterable[object]) -> None:
        """Follow the tensors among `values`."""
        self._reached = {id(value): value for value in values if _is_tensor(value)}

    def reached(self, tensor: object) -> bool:
        """Tell whether `tensor` was computed from those."""
        return id(tensor) in self._reached

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and follow its results if it was given a tensor that is followed."""
        result = func(*args, **(kwargs or {}))
        if any(map(self.reached, pytree.tree_leaves((args, kwargs)))):
            made = [leaf for leaf in pytree.tree_leaves(result) if _is_tensor(leaf)]
            self._reached.update((id(tensor), tensor) for tensor in made)
        return result


class _ParameterReader(TorchFunctionMode):
    """Sees which parameters are read, and whether they want the gradients that they did before.

    Refuses what changes tensors unseen, of the module called `name`.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._trained: dict[int, bool] = {}
        self._used: set[int] = set()
        self._changed: set[int] = set()

    def begin(self, values: Iterable[object]) -> None:
        """Look at the parameters `values`."""
        parameters = [value for value in values if isinstance(value, torch.Tensor)]
        self._trained = {id(value): value.requires_grad for value in parameters}
        self._used, self._changed = set(), set()

    def used(self, parameter: torch.Tensor) -> bool:
        """Tell whether a function was given `parameter`."""
        return id(parameter) in self._used

    def changed(self, parameter: torch.Tensor) -> bool:
        """Tell whether `parameter` was read, or is left, wanting other gradients than before."""
        return id(parameter) in self._changed or self._differs(parameter)

    def _differs(self, parameter: torch.Tensor) -> bool:
        return self._trained[id(parameter)] is not parameter.requires_grad

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func`, and remember parameters that it was given."""
        if func == _SET_DATA:
            raise CompileError(
                f"{self._name} assigns to .data of a tensor, which cannot be recorded; change "
                "parameters outside of forward, and buffers with copy_()"
            )
        leaves = pytree.tree_leaves((args, kwargs))
        given = [leaf for leaf in leaves if id(leaf) in self._trained]
        self._used.update(map(id, given))
        with torch._C.DisableTorchFunction():
            self._changed.update(id(leaf) for leaf in given if self._differs(leaf))
        return func(*args, **(kwargs or {}))
