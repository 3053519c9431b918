"""Functions with a backward method of their own (autograd.Function), recorded with that method.

PyTorch records what `forward` computes, and loses `backward`. Here both are recorded: `backward` is
called on stand-ins for the gradients of the results, and two operators say what belongs together:

    y = forward(ctx, x);   d = incoming_gradient(y, 0);   dx = backward(ctx, d)
    return own_gradient([y], [d], [x], [dx])              # y

They become those of `sambac.graph.own_gradients`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._functorch import utils as functorch
from torch._library import autograd as library
from torch.autograd.function import Function, FunctionCtx, _SingleLevelFunction
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils import checkpoint

from sambac.errors import CompileError
from sambac.frontend.torch.errors import FIXED_GROUPS, GROUPED
from sambac.frontend.torch.modules.guards import ADVICE
from sambac.frontend.torch.own_operators import incoming_gradient, own_gradient
from sambac.frontend.torch.patching import replaced

_CONTROL_FLOW = frozenset(
    f"torch._higher_order_ops.{part}"
    for part in ("associative_scan", "cond", "map", "scan", "while_loop")
)
"""Where PyTorch makes an autograd.Function of what is recorded as an operator of its own."""


@contextmanager
def own_gradients(name: str) -> Iterator[None]:
    """Record backward methods of functions that the module called `name` calls.

    What other threads do meanwhile is theirs. Raises `CompileError` for functions that cannot be
    recorded.
    """
    recorder = _Recorder(name, functorch.unwrap_dead_wrappers, get_ident())
    # What every Function.apply calls, even one that was looked up before.
    with replaced(functorch, "unwrap_dead_wrappers", recorder.unwrap):
        try:
            yield
        finally:
            recorder.put_back()


@dataclass
class _Recorder:
    """Lets the next call of `forward` of a function that is applied record its gradients.

    `name` is that of the module, `before` what unwraps arguments, `thread` whose calls are
    recorded. `inside` says that such a call is running: what it calls has no gradients.
    """

    name: str
    before: Callable[..., Any]
    thread: int
    inside: bool = False
    _put_aside: ExitStack = field(default_factory=ExitStack)

    def put_back(self) -> None:
        """Give the class of the last function what it had."""
        self._put_aside.close()

    def unwrap(self, *args: Any) -> Any:
        """Do as `before` for arguments of a function; see that its `forward` is recorded."""
        if get_ident() != self.thread or self.inside:
            return self.before(*args)
        frame = sys._getframe(1)
        kind, caller = frame.f_locals.get("cls"), sys._getframe(2)
        if caller.f_globals.get("__name__") in _CONTROL_FLOW:
            return self.before(*args)
        assert isinstance(kind, type)
        assert issubclass(kind, Function)
        self._require_recordable(kind, caller, args)
        self._put_aside = ExitStack()
        whole = _Whole(kind.forward, kind.setup_context, kind)
        self._put_aside.enter_context(_replaced(kind, "forward", self._forward(whole)))
        if whole.has_setup:
            self._put_aside.enter_context(_replaced(kind, "setup_context", _no_setup))
        return self.before(*args)

    def _require_recordable(self, kind: type, caller: FrameType, given: object) -> None:
        if kind is checkpoint.CheckpointFunction:
            raise CompileError(
                f"{self.name} calls torch.utils.checkpoint with use_reentrant=True, which cannot "
                "be recorded; give it use_reentrant=False"
            )
        if caller.f_globals.get("__name__") == library.__name__:
            operator = str(caller.f_locals.get("op"))
            raise CompileError(
                f"{self.name} calls the operator {operator}, which has a backward method of its "
                f"own that cannot be recorded; "
                f"{FIXED_GROUPS if GROUPED.search(operator) else ADVICE}"
            )
        if any(tensor.is_complex() for tensor in _tensors(given)):
            raise self._refusal(kind, "takes complex numbers")

    def _refusal(self, kind: type, what: str) -> CompileError:
        return CompileError(
            f"{self.name} calls {kind.__name__}, which has a backward method of its own "
            f"(autograd.Function) and {what}, which cannot be recorded; {ADVICE}"
        )

    def _forward(self, whole: _Whole) -> Callable[..., object]:
        """Return what takes the place of `forward` for one call."""

        def forward(*args: Any) -> object:
            if get_ident() != self.thread:
                return whole.forward(*args)
            self.put_back()
            given = args if whole.has_setup else args[1:]  # without PyTorch's own context
            self.inside = True
            try:
                with _without_modes():
                    return self._recorded(whole, given)
            finally:
                self.inside = False

        return forward

    def _recorded(self, whole: _Whole, given: Sequence[Any]) -> object:
        """Call `forward` and `backward` of a function; return the results with both."""
        context, returned = whole.called(given)
        several = isinstance(returned, tuple)
        results = list(returned) if isinstance(returned, tuple) else [returned]
        if getattr(context, "dirty_tensors", ()):
            raise self._refusal(whole.kind, "writes what it is given (mark_dirty)")
        if any(tensor.is_complex() for tensor in _tensors(results)):
            raise self._refusal(whole.kind, "returns complex numbers")
        constant = {id(one) for one in getattr(context, "non_differentiable", ())}
        places = [at for at, one in enumerate(results) if _has_gradient(one, constant)]
        if places:
            self._mark(whole, context, given, results, places)
        return tuple(results) if several else results[0]

    def _mark(
        self,
        whole: _Whole,
        context: FunctionCtx,
        given: Sequence[Any],
        results: list[Any],
        places: Sequence[int],
    ) -> None:
        """Let those of `results` that are at `places` have the gradients that `backward` says."""
        incoming = [incoming_gradient(results[at], at) for at in places]
        # Copies, as a backward method may write what it is given.
        into = _nothing(results) if getattr(context, "materialize_grads", True) else {}
        into |= {at: one.clone() for at, one in zip(places, incoming, strict=True)}
        gradients = self._gradients(
            whole, context, given, [into.get(at) for at in range(len(results))]
        )
        sources = [given[at] for at in gradients]
        found = [results[at] for at in places]
        marked = own_gradient(found, incoming, sources, [*gradients.values()])
        for at, one in zip(places, marked, strict=True):
            results[at] = one

    def _gradients(
        self,
        whole: _Whole,
        context: FunctionCtx,
        given: Sequence[Any],
        incoming: Sequence[Tensor | None],
    ) -> dict[int, Tensor]:
        """Return what `backward` returns for the floating-point tensors of `given`, by place."""
        returned = whole.backward(context, incoming)
        if len(returned) < len(given) or any(one is not None for one in returned[len(given) :]):
            raise CompileError(
                f"{self.name} calls {whole.kind.__name__}, whose backward method returns "
                f"{len(returned)} values; one for each of its {len(given)} arguments was expected"
            )
        pairs = zip(given, returned, strict=False)
        return {
            at: self._fitting(whole.kind, gradient, one)
            for at, (one, gradient) in enumerate(pairs)
            if gradient is not None and isinstance(one, Tensor) and one.is_floating_point()
        }

    def _fitting(self, kind: type, gradient: Tensor, like: Tensor) -> Tensor:
        """Return `gradient` in the type and shape of what it is of, as PyTorch does."""
        gradient = gradient.to(like.dtype)
        if gradient.shape == like.shape:
            return gradient
        try:
            return gradient.sum_to_size(like.shape)
        except RuntimeError:
            raise CompileError(
                f"{self.name} calls {kind.__name__}, whose backward method returns a gradient of "
                f"shape {[*gradient.shape]} for an argument of shape {[*like.shape]}"
            ) from None


@dataclass(frozen=True)
class _Whole:
    """A function as its class has it."""

    forward: Callable[..., Any]
    setup_context: Callable[..., Any]
    kind: type[Function]

    @property
    def has_setup(self) -> bool:
        """Tell whether `forward` takes no context, which another method fills."""
        return self.setup_context is not _SingleLevelFunction.setup_context

    def called(self, given: Sequence[Any]) -> tuple[FunctionCtx, object]:
        """Return the context that a call has filled, and what it returns."""
        context = _Context(tuple(_has_gradient(one, ()) for one in given))
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


class _Context(FunctionCtx):
    """What `forward` hands on to `backward`, without the engine of PyTorch."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved."""
        return getattr(self, "to_save", ())


@contextmanager
def _without_modes() -> Iterator[None]:
    """Let switches of gradients not be recorded.

    A function runs without any, which is not recorded either: what it would put back at the end of
    its own `no_grad` would count for all that follows.
    """
    record = PreDispatchTorchFunctionMode.__torch_function__

    def heard(mode: PreDispatchTorchFunctionMode, func: Any, *given: Any) -> object:
        if func is torch._C._set_grad_enabled:
            torch._C._set_grad_enabled(*given[1])
            return None
        return record(mode, func, *given)

    with replaced(PreDispatchTorchFunctionMode, "__torch_function__", heard):
        yield


def _no_setup(*_: object) -> None:
    """Fill no context: that of PyTorch's engine, which will not run."""


def _has_gradient(value: object, constant: Sequence[int] | set[int]) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and id(value) not in constant


def _nothing(results: Sequence[object]) -> dict[int, Tensor]:
    """Return zeros for the tensors among `results`: what has no gradient comes as such."""
    return {at: torch.zeros_like(one) for at, one in enumerate(results) if isinstance(one, Tensor)}


def _tensors(value: object) -> list[Tensor]:
    return [one for one in pytree.tree_leaves(value) if isinstance(one, Tensor)]


@contextmanager
def _replaced(kind: type, method: str, by: Callable[..., object]) -> Iterator[None]:
    """Let a static method of a class, which may be of one of its bases, be another one."""
    before = vars(kind).get(method)
    setattr(kind, method, staticmethod(by))
    try:
        yield
    finally:
        if before is None:
            delattr(kind, method)
        else:
            setattr(kind, method, before)
