"""Derivatives that forward takes (autograd.grad), recorded as one operator each.

PyTorch's engine computes them from what operators have kept, which no recording knows of. Here the
recording has what is differentiated by what:

    autograd.grad(y, x, d, create_graph=True)   ->  derivative([y], [d], [x])

`programs.derivatives` writes the formulas out, once the recording is complete. The transforms of
torch.func take their derivatives in the same way (see `transforms`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.autograd.graph import get_gradient_edge
from torch.fx.experimental import proxy_tensor
from torch.utils._python_dispatch import _disable_current_modes

from sambac.frontend.torch.own_operators import derivative
from sambac.frontend.torch.patching import replaced

from .transforms import is_pytorchs, transforms


@contextmanager
def derivatives() -> Iterator[None]:
    """Record what is differentiated meanwhile. What other threads do is theirs."""
    here, before = get_ident(), torch.autograd.grad

    def grad(*args: Any, **kwargs: Any) -> Any:
        theirs = get_ident() != here or is_pytorchs(sys._getframe(1))
        return (before if theirs else _grad)(*args, **kwargs)

    with replaced(torch.autograd, "grad", grad), transforms():
        yield


def _grad(  # the signature of autograd.grad
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
    results = [outputs] if isinstance(outputs, Tensor) else [*outputs]
    sources = [inputs] if isinstance(inputs, Tensor) else [*inputs]
    given = [grad_outputs] if isinstance(grad_outputs, Tensor) else grad_outputs
    kept = [None] * len(results) if given is None else [*given]
    incoming = _incoming(results, kept, batched=is_grads_batched)
    used = _used(results, sources, lenient=bool(allow_unused) or materialize_grads)
    wanted = [one for one, is_used in zip(sources, used, strict=True) if is_used]
    gradients = torch.enable_grad() if create_graph else nullcontext()
    with gradients:
        found = iter(derivative(results, incoming, wanted, is_grads_batched))
    made = [next(found) if is_used else None for is_used in used]
    if not create_graph:
        made = [one if one is None else one.detach() for one in made]
    if materialize_grads:
        pairs = zip(sources, made, strict=True)
        made = [torch.zeros_like(one) if found is None else found for one, found in pairs]
    return tuple(made)


def _incoming(
    results: Sequence[Tensor], given: Sequence[Tensor | None], *, batched: bool
) -> list[Tensor]:
    """Return the gradients of `results`; those of numbers may be left to be 1, as in PyTorch.

    They have one more axis in front if they are `batched`.
    """
    if len(given) != len(results):
        raise RuntimeError(f"got {len(results)} tensors and {len(given)} gradients")
    for result, gradient in zip(results, given, strict=True):
        if gradient is None and (result.numel() != 1 or batched):
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if gradient is not None and gradient.shape[int(batched) :] != result.shape:
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
            raise RuntimeError(
                f"{what} does not require grad and does not have a grad_fn; call requires_grad_() "
                "on what is differentiated by before anything is computed of it"
            )
    with _disable_current_modes():
        ends = [get_gradient_edge(one) for one in results]
        edges = [get_gradient_edge(one) for one in sources]
    reached: set[tuple[Any, int]] = {(edge.node, edge.output_nr) for edge in ends}
    left = [edge.node for edge in ends]
    while left:
        for edge in left.pop().next_functions:
            if edge[0] is not None and edge not in reached:
                reached.add(edge)
                left.append(edge[0])
    used = [(edge.node, edge.output_nr) in reached for edge in edges]
    if not all(used) and _has_loops():
        return [True] * len(used)
    if not all(used) and not lenient:
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    return used


def _has_loops() -> bool:
    """Tell whether loops are recorded, through which PyTorch sees no gradients meanwhile."""
    tracer = getattr(proxy_tensor.get_proxy_mode(), "tracer", None)
    nodes = () if tracer is None else tracer.graph.nodes
    return any(isinstance(node.target, HigherOrderOperator) for node in nodes)
