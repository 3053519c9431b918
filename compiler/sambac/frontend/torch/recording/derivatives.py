"""Derivatives that forward takes (autograd.grad), recorded as one operator each.

PyTorch's engine computes them from what operators have kept, which no recording knows of. Here the
recording has what is differentiated by what:

    autograd.grad(y, x, d, create_graph=True)   ->  derivative([y], [d], [x])

`programs.derivatives` writes its formulas out, once the recording is complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.utils._python_dispatch import _disable_current_modes

from sambac.errors import CompileError
from sambac.frontend.torch.own_operators import derivative
from sambac.frontend.torch.patching import replaced

_PYTORCHS = ("torch._functorch", "torch._higher_order_ops")
"""Where PyTorch takes derivatives for itself, as of control flow."""


@contextmanager
def derivatives(name: str) -> Iterator[None]:
    """Record what the module called `name` differentiates in forward.

    What other threads do meanwhile is theirs.
    """
    with replaced(torch.autograd, "grad", _recorded(name, torch.autograd.grad)):
        yield


def _recorded(name: str, before: Callable[..., Any]) -> Callable[..., Any]:
    here = get_ident()

    def grad(*args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__"))
        if get_ident() != here or caller.startswith(_PYTORCHS):
            return before(*args, **kwargs)
        return _grad(name, *args, **kwargs)

    return grad


def _grad(  # the signature of autograd.grad
    name: str,
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return what `autograd.grad` does, as results of one operator."""
    if is_grads_batched:
        raise CompileError(
            f"{name} calls autograd.grad with is_grads_batched=True, which cannot be recorded; "
            "call it once for each gradient"
        )
    results = [outputs] if isinstance(outputs, Tensor) else [*outputs]
    sources = [inputs] if isinstance(inputs, Tensor) else [*inputs]
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else grad_outputs
    incoming = _incoming(results, [None] * len(results) if given is None else [*given])
    used = _used(results, sources, lenient=bool(allow_unused) or materialize_grads)
    found = iter(derivative(results, incoming, [one for one, at in zip(sources, used) if at]))
    made = [next(found) if at else None for at in used]
    if not create_graph:
        made = [one if one is None else one.detach() for one in made]
    if materialize_grads:
        made = [
            torch.zeros_like(one) if gradient is None else gradient
            for one, gradient in zip(sources, made, strict=True)
        ]
    return tuple(made)


def _incoming(results: Sequence[Tensor], given: Sequence[Tensor | None]) -> list[Tensor]:
    """Return the gradients of `results`; those of numbers may be left to be 1, as in PyTorch."""
    if len(given) != len(results):
        raise RuntimeError(f"got {len(results)} tensors and {len(given)} gradients")
    for result, gradient in zip(results, given, strict=True):
        if gradient is None and result.numel() != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if gradient is not None and gradient.shape != result.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output has a shape of {[*gradient.shape]} and output "
                f"has a shape of {[*result.shape]}."
            )
    return [
        torch.ones_like(result) if gradient is None else gradient
        for result, gradient in zip(results, given, strict=True)
    ]


def _used(results: Sequence[Tensor], sources: Sequence[Tensor], *, lenient: bool) -> list[bool]:
    """Tell for each of `sources` whether gradients of `results` reach it.

    Raises what PyTorch does where there is none to take, unless it is `lenient`.
    """
    for at, one in enumerate((*results, *sources)):
        if not one.requires_grad:
            what = f"element {at} of tensors" if at < len(results) else "One of the inputs"
            raise RuntimeError(f"{what} does not require grad and does not have a grad_fn")
    with _disable_current_modes():
        ends = [get_gradient_edge(one) for one in results]
        reached = {(edge.node, edge.output_nr) for edge in ends}
        left = [edge.node for edge in ends]
        while left:
            for node, number in left.pop().next_functions:
                if node is not None and (node, number) not in reached:
                    reached.add((node, number))
                    left.append(node)
        edges = [get_gradient_edge(one) for one in sources]
    used = [(edge.node, edge.output_nr) in reached for edge in edges]
    if not all(used) and not lenient:
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return used
