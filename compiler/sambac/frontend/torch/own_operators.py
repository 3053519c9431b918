"""Operators of this toolchain's that recordings have: what PyTorch has no operator for.

    d = incoming_gradient(y, 0)                  # stands for the gradient of y
    y' = own_gradient([y], [d], [x], [dx])       # y, whose gradient d goes to x as dx
    v = variable(x)                              # x, by which something is differentiated
    dv = derivative([y], [d], [v], False)        # what autograd.grad gives inside forward
    y, h = steps_of_lengths("gru", x, lengths, [h], params, ...)   # of packed sequences

The first two become those of `sambac.graph.own_gradients`, `programs.derivatives` writes the next
two out, and the last one has a translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram


@torch.library.custom_op("sambac::incoming_gradient", mutates_args=())
def incoming_gradient(y: Tensor, number: int) -> Tensor:
    """Stand for the gradient of `y`, result `number` of a function."""
    return torch.zeros_like(y)


@torch.library.custom_op("sambac::own_gradient", mutates_args=())
def own_gradient(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    """Return `results`, whose gradients, `incoming`, go to `sources` as `gradients`."""
    return [result.clone() for result in results]


@torch.library.custom_op("sambac::derivative", mutates_args=())
def derivative(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    batched: bool,
) -> list[Tensor]:
    """Return the gradients of `sources`, where those of `results` are `incoming`.

    If they are `batched`, the incoming ones have one more axis in front, and so do these.
    """
    return [source.new_zeros(gradient_shape(source, incoming, batched)) for source in sources]


@torch.library.custom_op("sambac::variable", mutates_args=())
def variable(x: Tensor) -> Tensor:
    """Return `x`, as what something is differentiated by."""
    return x.clone()


@torch.library.custom_op("sambac::steps_of_lengths", mutates_args=())
def steps_of_lengths(
    kind: str,
    x: Tensor,
    lengths: Tensor,
    starts: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> list[Tensor]:
    """Return all states [T, N, D * H] of recurrent layers, and the last of each kind [L * D, N, H].

    `kind` is lstm, gru, rnn_tanh or rnn_relu. Of sequence n of `x` [T, N, F] there are as many
    steps as `lengths` say; the states behind them are zero. Lengths are at least 1, and fall.
    """
    rows, sizes = torch.ops.aten._pack_padded_sequence(x, lengths.cpu(), False)
    layers = getattr(torch.ops.aten, kind).data
    hx = starts if kind == "lstm" else starts[0]
    settings = (has_biases, num_layers, dropout, train, bidirectional)
    states, *last = layers(rows, sizes, hx, params, *settings)
    padded, _ = torch.ops.aten._pad_packed_sequence(states, sizes, False, 0.0, x.shape[0])
    return [padded, *(one.clone() for one in last)]


@incoming_gradient.register_fake
def _(y: Tensor, number: int) -> Tensor:
    return torch.empty_like(y)


@own_gradient.register_fake
def _(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    return [torch.empty_like(result) for result in results]


@steps_of_lengths.register_fake
def _(
    kind: str,
    x: Tensor,
    lengths: Tensor,
    starts: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> list[Tensor]:
    wide = starts[0].shape[-1] * (2 if bidirectional else 1)
    return [x.new_empty(*x.shape[:2], wide), *map(torch.empty_like, starts)]


@derivative.register_fake
def _(
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    batched: bool,
) -> list[Tensor]:
    return [source.new_empty(gradient_shape(source, incoming, batched)) for source in sources]


def gradient_shape(source: Tensor, incoming: Sequence[Tensor], batched: bool) -> Sequence[int]:
    """Return the shape of the gradient of `source`, where the `incoming` ones are `batched`."""
    return (incoming[0].shape[0], *source.shape) if batched else source.shape


@variable.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@variable.register_vmap
def _(info: Any, dims: tuple[int | None], x: Tensor) -> tuple[Tensor, int]:
    """A variable of its own for each place of the axis, as each has gradients of its own."""
    return variable(_moved(x, dims[0], 0, info.batch_size)), 0


@derivative.register_vmap
def _(
    info: Any,
    dims: tuple[Sequence[int | None], Sequence[int | None], Sequence[int | None], None],
    results: Sequence[Tensor],
    incoming: Sequence[Tensor],
    sources: Sequence[Tensor],
    batched: bool,
) -> tuple[list[Tensor], list[int]]:
    """Gradients at each place of the axis, of what does not depend on other places of it."""
    of_results, of_incoming, of_sources, _ = dims
    size, at = info.batch_size, int(batched)
    # Variables that were made inside of vmap have its axis in front.
    if all(dim == 0 for dim in of_sources):
        found = derivative(
            [_moved(one, dim, 0, size) for one, dim in zip(results, of_results, strict=True)],
            [_moved(one, dim, at, size) for one, dim in zip(incoming, of_incoming, strict=True)],
            sources,
            batched,
        )
        return found, [at] * len(found)
    if batched or any(dim is not None for dim in (*of_results, *of_sources)):
        raise NotImplementedError(
            "inside torch.vmap, derivatives are taken by what has its axis; give vmap the tensor "
            "as an argument with in_dims=0"
        )
    given = [_moved(one, dim, 0, size) for one, dim in zip(incoming, of_incoming, strict=True)]
    found = derivative(results, given, sources, True)
    return found, [0] * len(found)


def _moved(x: Tensor, dim: int | None, at: int, size: int) -> Tensor:
    """Return `x` with its axis `dim`, of `size` places, at another place; repeated without any."""
    if dim is not None:
        return x if dim == at else x.movedim(dim, at)
    return x.unsqueeze(at).expand(*x.shape[:at], size, *x.shape[at:])


INCOMING = torch.ops.sambac.incoming_gradient.default
OWN = torch.ops.sambac.own_gradient.default
DERIVATIVE = torch.ops.sambac.derivative.default
VARIABLE = torch.ops.sambac.variable.default
STEPS_OF_LENGTHS = torch.ops.sambac.steps_of_lengths.default


def takes_derivatives(program: ExportedProgram) -> bool:
    """Tell whether derivatives are taken in `program`."""
    return any(map(derivatives_of, parts_of(program)))


def parts_of(program: ExportedProgram) -> list[fx.GraphModule]:
    """Return the graph of `program`, and those inside of it."""
    return [part for part in program.graph_module.modules() if isinstance(part, fx.GraphModule)]


def derivative_order(program: ExportedProgram) -> int:
    """Return how often anything may be differentiated, the gradients of training included."""
    orders: dict[fx.Node, int] = {}
    for node in program.graph.nodes:
        inner = max(map(orders.__getitem__, node.all_input_nodes), default=0)
        orders[node] = inner + (node.target is DERIVATIVE)
    return 1 + max(orders.values(), default=0)


def derivatives_of(part: fx.GraphModule) -> list[fx.Node]:
    """Return where derivatives are taken in a graph, in their order."""
    return [node for node in part.graph.nodes if node.target is DERIVATIVE]
