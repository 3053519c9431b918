"""Functions with a backward method of their own (autograd.Function), recorded with that method.

PyTorch records what `forward` computes, and loses `backward`. Here both are recorded: `backward` is
called on stand-ins for the gradients of the results, and two operators say what belongs together:

    y = forward(ctx, x);   d = incoming_gradient(y, 0);   dx = backward(ctx, d)
    return own_gradient([y], [d], [x], [dx])              # y

They become those of `sambac.graph.own_gradients`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._functorch import utils as functorch
from torch._library import autograd as library
from torch.autograd import function as applying
from torch.autograd.function import Function
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode
from torch.utils import checkpoint

from sambac.errors import CompileError
from sambac.frontend.torch.modules.guards import ADVICE
from sambac.frontend.torch.own_operators import (
    DERIVATIVE,
    STEPS_OF_LENGTHS,
    VARIABLE,
    incoming_gradient,
    own_gradient,
)
from sambac.frontend.torch.packaged_operators import ROWS_IN_GROUPS
from sambac.frontend.torch.patching import replaced

from .own_calls import Call, UserFunction, has_gradient, stopped, without_autocast
from .watch import tensors

_CONTROL_FLOW = frozenset(
    f"torch._higher_order_ops.{part}"
    for part in ("associative_scan", "cond", "map", "scan", "while_loop")
)
"""Where PyTorch makes an autograd.Function of what is recorded as an operator of its own."""


_WITHOUT_METHODS = frozenset(
    {".".join((*ROWS_IN_GROUPS, "default")), str(DERIVATIVE), str(VARIABLE), str(STEPS_OF_LENGTHS)}
)
"""Operators whose backward methods nobody needs: what they become is differentiated."""


@contextmanager
def own_gradients(name: str) -> Iterator[None]:
    """Record backward methods of functions that the module called `name` calls.

    What other threads do meanwhile is theirs. Raises `CompileError` for functions that cannot be
    recorded.
    """
    call = vars(applying)["custom_function_call"]
    recorder = _FunctionRecorder(name, functorch.unwrap_dead_wrappers, call, get_ident())
    # What every Function.apply calls, even one that was looked up before.
    with (
        replaced(functorch, "unwrap_dead_wrappers", recorder.unwrap),
        # What it calls instead inside torch.vmap and the like.
        replaced(applying, "custom_function_call", recorder.transformed),
    ):
        try:
            yield
        finally:
            recorder.put_back()


@dataclass
class _FunctionRecorder:
    """Lets the next call of `forward` of a function that is applied record its gradients.

    `name` is that of the module, `before` what unwraps arguments, `call` what applies functions
    inside torch.vmap, `thread` whose calls are recorded. `inside` says that such a call is running:
    what it calls has no gradients.
    """

    name: str
    before: Callable[..., Any]
    call: Callable[..., Any]
    thread: int
    inside: bool = False
    _dirty: list[Tensor] = field(default_factory=list)
    _put_aside: ExitStack = field(default_factory=ExitStack)

    def put_back(self) -> None:
        """Give the class of the last function what it had."""
        self._put_aside.close()

    def transformed(self, kind: type, *args: Any, **named: Any) -> object:
        """Apply a function inside torch.vmap or the like, where it cannot be recorded."""
        found = str(_registered(sys._getframe(2)))
        if get_ident() != self.thread or self.inside or found in _WITHOUT_METHODS:
            return self.call(kind, *args, **named)
        raise self._refusal(kind, "is called inside torch.vmap or another transform of torch.func")

    def unwrap(self, args: tuple[Any, ...]) -> Any:
        """Do as `before` for arguments of a function; see that its `forward` is recorded."""
        if get_ident() != self.thread or self.inside:
            return self.before(args)
        frame = sys._getframe(1)
        kind, caller = frame.f_locals.get("cls"), sys._getframe(2)
        if caller.f_globals.get("__name__") in _CONTROL_FLOW:
            return self.before(args)
        if str(_registered(caller)) in _WITHOUT_METHODS:
            return self.before(args)
        assert isinstance(kind, type)
        assert issubclass(kind, Function)
        whole = UserFunction(kind.forward, kind.setup_context, kind)
        if not whole.has_setup:
            args = whole.in_order(args, frame.f_locals["kwargs"])
        self._require_recordable(kind, caller, args)
        self._put_aside = ExitStack()
        self._put_aside.enter_context(_replaced(kind, "forward", self._forward(whole)))
        if whole.has_setup:
            self._put_aside.enter_context(_replaced(kind, "setup_context", self._setup(whole)))
        return self.before(args)

    def _require_recordable(self, kind: type, caller: FrameType, given: object) -> None:
        if kind is checkpoint.CheckpointFunction:
            raise CompileError(
                f"{self.name} calls torch.utils.checkpoint with use_reentrant=True, which cannot "
                "be recorded; give it use_reentrant=False"
            )
        if (found := _registered(caller)) is not None:
            operator = str(found)
            if operator.startswith("sambac."):  # differentiated once more, as control flow is
                raise CompileError(
                    f"{self.name} calls a function with a backward method of its own "
                    "(autograd.Function) inside torch.cond, scan or map, where it cannot be "
                    f"recorded; {ADVICE}"
                )
            raise CompileError(
                f"{self.name} calls the operator {operator}, which has a backward method of its "
                f"own that cannot be recorded; {ADVICE}"
            )
        if any(tensor.is_complex() for tensor in tensors(given)):
            raise self._refusal(kind, "takes complex numbers")

    def _refusal(self, kind: type, what: str) -> CompileError:
        return CompileError(
            f"{self.name} calls {kind.__name__}, which has a backward method of its own "
            f"(autograd.Function) and {what}, which cannot be recorded; {ADVICE}"
        )

    def _forward(self, whole: UserFunction) -> Callable[..., object]:
        """Return what takes the place of `forward` for one call."""

        def forward(*args: Any) -> object:
            if get_ident() != self.thread:
                return whole.forward(*args)
            self.put_back()
            given = args if whole.has_setup else args[1:]  # without PyTorch's own context
            self.inside = True
            try:
                with _without_modes():
                    returned = self._recorded(whole, given)
            finally:
                self.inside = False
            if not whole.has_setup:
                args[0].mark_dirty(*self._dirty)
            return returned

        return forward

    def _setup(self, whole: UserFunction) -> Callable[..., None]:
        """Return what takes the place of `setup_context` meanwhile."""

        def setup_context(*args: Any) -> None:
            """Tell PyTorch's engine, which will not run, no more than what is written."""
            if get_ident() != self.thread:
                whole.setup_context(*args)
            else:
                args[0].mark_dirty(*self._dirty)

        return setup_context

    def _recorded(self, whole: UserFunction, given: Sequence[Any]) -> object:
        """Call `forward` and `backward` of a function; return the results with both."""
        call = Call.of(whole, given)
        if any(tensor.is_complex() for tensor in tensors(call.results)):
            raise self._refusal(whole.kind, "returns complex numbers")
        if any(one.requires_grad and id(one) not in call.kept for one in call.written):
            raise self._refusal(whole.kind, "writes what it is not given")
        for one in call.written:
            if has_gradient(one) and id(one) not in call.dirty:
                one.copy_(call.unmarked(one))
        marked = self._marked(call) if call.places else {}
        self._dirty = [*call.dirty.values()]
        for one in self._dirty:
            one.copy_(marked[id(one)])
        # What is returned twice has the gradient of the last place. Nothing else has any.
        made = [self._returned(one, call, marked) for one in call.results]
        return tuple(made) if call.several else made[0]

    def _returned(self, result: Any, call: Call, marked: Mapping[int, Tensor]) -> object:
        """Return a result with its gradient, if it has one. What is marked as written is itself."""
        if id(result) in call.dirty:
            return result
        if id(result) in marked:
            return marked[id(result)]
        return stopped(result, () if call.several else call.given)

    def _marked(self, call: Call) -> dict[int, Tensor]:
        """Return the results with gradients, by their identity, as `backward` says these."""
        found = [call.results[at] for at in call.places]
        incoming = [incoming_gradient(one, at) for one, at in zip(found, call.places, strict=True)]
        gradients = self._gradients(call, dict(zip(call.places, incoming, strict=True)))
        sources = [call.source(at) for at in gradients]
        marked = own_gradient(found, incoming, sources, [*gradients.values()])
        return {id(one): own for one, own in zip(found, marked, strict=True)}

    def _gradients(self, call: Call, incoming: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return what `backward` returns for the floating-point tensors of `given`, by place."""
        given, kind = call.given, call.whole.kind
        with call.watch as watch, without_autocast():
            watch.note(call.results)
            watch.begin()
            returned = call.whole.backward(call.context, call.incoming(incoming))
        if watch.written():
            raise self._refusal(kind, "writes in backward what is there outside of it, as buffers")
        if len(returned) < len(given) or any(one is not None for one in returned[len(given) :]):
            raise CompileError(
                f"{self.name} calls {kind.__name__}, whose backward method returns "
                f"{len(returned)} values; one for each of its {len(given)} arguments was expected"
            )
        return {
            at: self._fitting(kind, gradient, one)
            for at, (one, gradient) in enumerate(zip(given, returned, strict=False))
            if gradient is not None and isinstance(one, Tensor) and one.is_floating_point()
        }

    def _fitting(self, kind: type, gradient: object, like: Tensor) -> Tensor:
        """Return `gradient` in the type and shape of what it is of, as PyTorch does."""
        if not isinstance(gradient, Tensor):
            raise CompileError(
                f"{self.name} calls {kind.__name__}, whose backward method returns "
                f"{type(gradient).__name__} for a tensor; a tensor or None was expected"
            )
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


def _registered(caller: FrameType | None) -> object:
    """Return the operator for which PyTorch calls a backward method that was registered.

    One that takes lists is called by way of another function.
    """
    while caller is not None and caller.f_globals.get("__name__") == library.__name__:
        if "op" in caller.f_locals:
            return caller.f_locals["op"]
        caller = caller.f_back
    return None
