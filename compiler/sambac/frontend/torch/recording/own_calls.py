"""A call of a function with a backward method of its own: what it takes, returns and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx, _SingleLevelFunction
from torch.utils import _pytree as pytree

from sambac.frontend.torch.own_operators import incoming_gradient, own_gradient

from .watch import Watch


@dataclass(frozen=True)
class UserFunction:
    """A function as its class has it."""

    forward: Callable[..., Any]
    setup_context: Callable[..., Any]
    kind: type[Function]

    @property
    def has_setup(self) -> bool:
        """Tell whether `forward` takes no context, which another method fills."""
        return self.setup_context is not _SingleLevelFunction.setup_context

    def in_order(self, given: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments by their order, as PyTorch gives them on, out of those by name."""
        if not named:
            return tuple(given)
        bound = signature(self.forward).bind(None, *given, **named)
        if bound.kwargs:  # PyTorch takes none that must have their names
            return tuple(given)
        named.clear()
        return bound.args[1:]

    def called(self, given: Sequence[Any]) -> tuple[FunctionCtx, object]:
        """Return the context that a call has filled, and what it returns."""
        context = _Context(tuple(has_gradient(one) for one in given))
        if not self.has_setup:
            return context, self.forward(context, *given)
        result = self.forward(*given)
        self.setup_context(context, tuple(given), result)
        return context, result

    def backward(
        self, context: FunctionCtx, incoming: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of what was given."""
        own = self.kind.vjp if self.kind.vjp is not Function.vjp else self.kind.backward
        returned = own(context, *incoming)
        return returned if isinstance(returned, tuple) else (returned,)


@dataclass(frozen=True)
class Call:
    """What a call of a function took and left.

    `kept` are copies of what it may write, from before, by identity; `written` is what it wrote of
    what was there before; `watch` knows what it made.
    """

    whole: UserFunction
    context: FunctionCtx
    given: Sequence[Any]
    returned: object
    kept: Mapping[int, Tensor]
    watch: Watch
    written: Sequence[Tensor]

    @classmethod
    def of(cls, whole: UserFunction, given: Sequence[Any]) -> Call:
        """Call a function."""
        kept = {id(one): one.clone() for one in given if has_gradient(one)}
        with Watch() as watch:
            watch.note(given)
            context, returned = whole.called(given)
        return cls(whole, context, given, returned, kept, watch, watch.written())

    @property
    def several(self) -> bool:
        """Tell whether what it returned are several results."""
        return isinstance(self.returned, tuple)

    @property
    def results(self) -> tuple[Any, ...]:
        """What it returned."""
        return self.returned if isinstance(self.returned, tuple) else (self.returned,)

    @cached_property
    def dirty(self) -> dict[int, Tensor]:
        """What was given and is marked as written, and a result with a gradient, by identity."""
        marked = {id(one) for one in getattr(self.context, "dirty_tensors", ())}
        marked &= {id(one) for one in self.given}
        results = (self.results[at] for at in self.places)
        return {id(one): one for one in results if id(one) in marked}

    @cached_property
    def places(self) -> list[int]:
        """Where in `results` those with gradients are; the last one of each."""
        constant = {id(one) for one in getattr(self.context, "non_differentiable", ())}
        last = {id(one): at for at, one in enumerate(self.results) if has_gradient(one)}
        return sorted(at for one, at in last.items() if one not in constant)

    def source(self, at: int) -> Tensor:
        """Return the argument at a place; as it was before the call, if it is marked as written."""
        one: Tensor = self.given[at]
        return self.kept[id(one)] if id(one) in self.dirty else one

    def unmarked(self, one: Tensor) -> Tensor:
        """Return what was written without a mark: its gradients are those of what it was."""
        return with_gradients_of(one, self.kept[id(one)]) if one.requires_grad else one.detach()

    def incoming(self, known: Mapping[int, Tensor]) -> list[Tensor | None]:
        """Return what `backward` is given: copies, as it may write them, or zeros."""
        zeros = getattr(self.context, "materialize_grads", True)
        others = [
            torch.zeros_like(one) if zeros and isinstance(one, Tensor) and at not in known else None
            for at, one in enumerate(self.results)
        ]
        return [known[at].clone() if at in known else one for at, one in enumerate(others)]


class _Context(FunctionCtx):
    """What `forward` hands on to `backward`, without the engine of PyTorch."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved."""
        return getattr(self, "to_save", ())


def with_gradients_of(value: Tensor, other: Tensor) -> Tensor:
    """Return `value`, whose gradient goes to `other` as it comes."""
    incoming = incoming_gradient(value, 0)
    made: list[Tensor] = own_gradient([value], [incoming], [other], [incoming])
    return made[0]


@contextmanager
def without_autocast() -> Iterator[None]:
    """Turn autocast off, as it is where PyTorch goes backward."""
    if not torch.is_autocast_enabled("cpu"):
        yield
        return
    with torch.autocast("cpu", enabled=False):
        yield


def stopped(result: object, given: Sequence[object]) -> object:
    """Return a result, or what is in it, without gradients; what was given keeps its own."""

    def stop(leaf: object) -> object:
        if has_gradient(leaf) and not any(leaf is one for one in given):
            return leaf.detach()
        return leaf

    return pytree.tree_map(stop, result)


def has_gradient(value: object) -> TypeGuard[Tensor]:
    """Tell whether `value` may have a gradient, by its type."""
    return isinstance(value, Tensor) and value.is_floating_point()
