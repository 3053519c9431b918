"""Derivatives that transforms of torch.func take (grad, vjp, jvp, jacrev, jacfwd, hessian).

PyTorch wraps the tensors that a function is differentiated by, and no recording knows what is
wrapped. Here the function is given variables, which are tensors like any other:

    grad(f)(x)        ->  v = variable(x);  derivative([f(v)], [1], [v])
    jvp(f, x, t)      ->  g = derivative([f(v)], [w], [v]);  derivative([g], [t], [w])

Inside of vmap these two operators know their axis (see `own_operators`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import (
    CVmapInterpreterPtr,
    TransformType,
    _remove_batch_dim,
    get_interpreter_stack,
    get_unwrapped,
    is_batchedtensor,
    maybe_get_level,
)
from torch._functorch import eager_transforms, predispatch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.utils import _pytree as pytree

from sambac.errors import CompileError
from sambac.frontend.torch.own_operators import derivative, variable
from sambac.frontend.torch.patching import replaced

_PYTORCHS = ("torch._functorch._aot_autograd", "torch._higher_order_ops")
"""Where PyTorch takes derivatives for itself, as of control flow."""

_BETWEEN = ("torch.", "contextlib")
"""What may lie between who takes a derivative and where it is taken."""


def is_pytorchs(frame: FrameType | None) -> bool:
    """Tell whether PyTorch itself takes the derivative that is taken in `frame`."""
    name = _BETWEEN[0]
    while frame is not None and name.startswith(_BETWEEN) and not name.startswith(_PYTORCHS):
        name = str(frame.f_globals.get("__name__"))
        frame = frame.f_back
    return name.startswith(_PYTORCHS)


@contextmanager
def transforms() -> Iterator[None]:
    """Record derivatives that transforms take meanwhile. What other threads do is theirs."""
    here = get_ident()

    def chosen(before: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            theirs = get_ident() != here or is_pytorchs(sys._getframe(1))
            return (before if theirs else own)(*args, **kwargs)

        return call

    with ExitStack() as stack:
        for name, own in _OWN.items():
            before = getattr(eager_transforms, name)
            stack.enter_context(replaced(eager_transforms, name, chosen(before, own)))
        leave = chosen(_remove_batch_dim, _without_axis)
        stack.enter_context(replaced(predispatch, "_remove_batch_dim_impl", leave))
        enter = chosen(forward_ad.enter_dual_level, _refuse_duals)
        stack.enter_context(replaced(forward_ad, "enter_dual_level", enter))
        yield


def _without_axis(x: Tensor, level: int, size: int, at: int) -> Tensor:
    """Return what leaves a vmap, with its axis at a place.

    The whole of it is one operator of a recording. Moving the axis would be one more, of a tensor
    that the recording does not know.
    """
    with disable_proxy_modes_tracing():
        found: Tensor = _remove_batch_dim(x, level, size, at)
        return found


def _refuse_duals() -> None:
    raise CompileError(
        "forward takes derivatives with torch.autograd.forward_ad or torch.func.linearize, which "
        "cannot be recorded; take them with torch.func.jvp"
    )


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    grad_outputs: Sequence[Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = True,
) -> tuple[Tensor, ...]:
    incoming = [torch.ones_like(one) for one in outputs] if grad_outputs is None else grad_outputs
    found = derivative([*outputs], [*incoming], [*inputs], False)
    return tuple(found if create_graph else [one.detach() for one in found])


_pulling: Callable[..., tuple[Any, ...]] = eager_transforms._vjp_with_argnums


def _vjp(function: Callable[..., Any], *primals: Any, **settings: Any) -> tuple[Any, ...]:
    """Return what `torch.func.vjp` does, whose function may be called where gradients are off.

    Where it was made without any, what has been computed is constant for PyTorch, but for what the
    function was given: this no recording has.
    """
    made_with_gradients = torch.is_grad_enabled()
    result, whole, *aux = _pulling(function, *primals, **settings)

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        gradients = torch.is_grad_enabled() if create_graph is None else create_graph
        if gradients and not made_with_gradients:
            raise CompileError(
                "forward calls torch.func.vjp inside torch.no_grad(), and what it returned where "
                "gradients are recorded, which cannot be compiled; call both inside, or both "
                "outside"
            )
        with torch.enable_grad() if gradients else nullcontext():
            return whole(cotangents, retain_graph, gradients)

    return (result, pull, *aux)


def _variables(values: Any, level: int = 0) -> Any:
    """Return variables for all tensors in `values`; inside of vmap each place has its own."""
    stack = get_interpreter_stack() or ()
    axes = {one.level(): one for one in stack if one.key() == TransformType.Vmap}

    def made(x: Tensor) -> Tensor:
        one = torch.ones((), dtype=x.dtype)
        lacking = axes.keys() - _levels(x)
        for each in sorted(lacking):
            size = CVmapInterpreterPtr(axes[each]).batchSize()
            one = predispatch._add_batch_dim(one.unsqueeze(0).expand(size, *one.shape), 0, each)
        own: Tensor = variable(x * one if lacking else x)
        return own

    return pytree.tree_map_only(Tensor, made, values)


def _levels(x: Tensor) -> set[int]:
    """Return the levels of vmap whose axes `x` has."""
    found = set()
    while is_batchedtensor(x):
        found.add(maybe_get_level(x))
        x = get_unwrapped(x)
    return found


def _as_they_are(values: Any, level: int | None = None) -> Any:
    return values


def _leaving(values: Any, with_gradients: bool) -> Any:
    """Return what leaves a transform; without gradients, where it is called without any."""
    return values if with_gradients else pytree.tree_map_only(Tensor, Tensor.detach, values)


def _jvp(
    function: Callable[..., Any],
    primals: Any,
    tangents: Any,
    argnums: Any = None,
    *,
    strict: bool = False,
    has_aux: bool,
) -> tuple[Any, ...]:
    """Return what `torch.func.jvp` does: what gradients are linear in, differentiated by it."""
    with_gradients = torch.is_grad_enabled()
    with torch.enable_grad():
        made = _pushed(function, primals, tangents, argnums, has_aux=has_aux)
    leaving: tuple[Any, ...] = _leaving(made, with_gradients)
    return leaving


def _pushed(
    function: Callable[..., Any], primals: Any, tangents: Any, argnums: Any, *, has_aux: bool
) -> tuple[Any, ...]:
    given = _variables(primals)
    sources = given if argnums is None else eager_transforms._slice_argnums(given, argnums)
    flat, form = pytree.tree_flatten(sources)
    directions, other = pytree.tree_flatten(tangents)
    if form != other:
        raise RuntimeError("jvp expects primals and tangents of the same structure")
    returned = function(*given)
    result, *aux = returned if has_aux else (returned,)
    outputs, structure = pytree.tree_flatten(result)
    weights = _variables([torch.zeros_like(one) for one in outputs])
    linear = derivative(outputs, weights, flat, False)
    pushed = derivative(linear, directions, weights, False)
    return (result, pytree.tree_unflatten(pushed, structure), *aux)


_OWN: dict[str, Callable[..., Any]] = {
    "grad_increment_nesting": lambda: nullcontext(torch.is_grad_enabled()),
    "_wrap_all_tensors": _variables,
    "_create_differentiable": _as_they_are,
    "_undo_create_differentiable": _leaving,
    "_autograd_grad": _gradients,
    "_jvp_with_argnums": _jvp,
    "_vjp_with_argnums": _vjp,
}
"""What takes the place of functions of PyTorch's."""
