"""Which operators and values the rules of numbers concern: those of the passes, not of updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from sambac.graph.nodes import has_subgraphs, static_shape, subgraphs
from sambac.graph.value_types import infer_results
from sambac.ops import family_of, is_random

from .rewriting import constant, present

_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Expand", "Cast")


@dataclass
class NumberScope:
    """The operators of a model, by what they are for.

    The forward pass needs `forward`, and both passes together need `computing`. Some output that
    is not kept exact needs `members`.
    """

    forward: frozenset[ir.Node]
    computing: frozenset[ir.Node]
    members: set[ir.Node] = field(default_factory=set)

    def stage_of(self, node: ir.Node) -> str:
        """Return the pass that `node` belongs to: `fwd` or `bwd`."""
        return "fwd" if node in self.forward else "bwd"


def needed(outputs: Iterable[ir.Value]) -> frozenset[ir.Node]:
    """Return the nodes that `outputs` need, with those inside of them."""
    pending = [node for out in outputs if (node := out.producer()) is not None]
    found: set[ir.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += [maker for value in _read(node) if (maker := value.producer())]
    return frozenset(found)


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, and what the graphs inside of it do."""
    yield from present(node.inputs)
    for inner in subgraphs(node):
        yield from inner.outputs
        for step in inner:
            yield from _read(step)


def is_stored(value: ir.Value) -> bool:
    """Tell whether `value` is a constant that no caller can override."""
    return value.is_initializer() and not value.is_graph_input()


def is_weight(value: ir.Value, names: frozenset[str]) -> bool:
    """Tell whether `value` is a weight, or one that was only moved; `names` are those of states."""
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVES and maker.inputs[0] is not None:
        value = maker.inputs[0]
        maker = value.producer()
    return is_stored(value) or value.name in names


def depends_on_constants(node: ir.Node, fixed: set[ir.Value]) -> bool:
    """Tell whether a node computes from constants, `fixed` values and shapes alone."""
    if is_random(node) or has_subgraphs(node):
        return False
    if node.domain == "" and node.op_type in ("Shape", "Size"):
        return True
    return all(value in fixed or is_stored(value) for value in present(node.inputs))


def find_sizes(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Find the sizes that `node` makes of known ones, with constants from around a branch, too."""
    open_ = any(static_shape(value) is None for value in node.outputs if value.name)
    known = all(static_shape(value) is not None for value in present(node.inputs))
    if open_ and known and not node.domain and not has_subgraphs(node):
        infer_results(node, opsets)


def is_move(node: ir.Node) -> bool:
    """Tell whether `node` only moves data."""
    family = family_of(node.domain, node.op_type)
    return family is not None and family.name == "movement"


def is_float32(value: ir.Value) -> bool:
    """Tell whether `value` is a tensor of float32."""
    return isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def selects(value: ir.Value | None) -> bool:
    """Tell whether a factor consists of ones and zeros, so that the product is a sum."""
    array = constant(value)
    if array is None or array.size < 2 or array.flat[0] not in (0, 1):
        return False
    return bool(((array == 0) | (array == 1)).all())


def is_number(value: ir.Value) -> bool:
    """Tell whether `value` is a constant of one element, which is part of an operator."""
    array = constant(value)
    return array is not None and array.size == 1
