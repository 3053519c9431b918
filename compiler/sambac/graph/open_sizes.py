"""What open sizes of results are called, where inference has no name of the model's for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import onnx_ir as ir

Sizes: TypeAlias = "tuple[int | ir.SymbolicDim, ...] | None"


def declared_sizes(graph: ir.Graph) -> tuple[Sizes, ...]:
    """Return what the shapes of the outputs of `graph` are said to be."""
    return tuple(None if one.shape is None else tuple(one.shape.dims) for one in graph.outputs)


def name_open_sizes(graph: ir.Graph, declared: Sequence[Sizes]) -> None:
    """Call sizes of outputs as they were `declared`, where they are none of the inputs', in place.

    That is said to people and nothing is concluded from it, as what is declared may be wrong: so
    it comes last. Inference makes up a name for each size that it cannot follow.
    """
    known = {
        dim.value for one in graph.inputs for dim in one.shape or () if not isinstance(dim, int)
    }
    for value, said in zip(graph.outputs, declared, strict=False):
        if value.shape is None or said is None or len(said) != len(value.shape):
            continue
        pairs = zip(value.shape.dims, said, strict=True)
        value.shape = ir.Shape([_named(dim, other, known) for dim, other in pairs])


def _named(
    dim: int | ir.SymbolicDim, said: int | ir.SymbolicDim, known: set[str | None]
) -> int | ir.SymbolicDim:
    inferred = isinstance(dim, int) or (dim.value is not None and dim.value in known)
    return dim if inferred or isinstance(said, int) or said.value is None else said


def same_shape(one: ir.Value, other: ir.Value) -> bool:
    """Tell whether two shapes are known to be the same; sizes that are open have their names."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return False
    return all(map(same_size, one.shape, other.shape))


def same_size(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim) -> bool:
    """Tell whether two sizes are known to be the same."""
    return one == other and not (isinstance(one, ir.SymbolicDim) and one.value is None)
