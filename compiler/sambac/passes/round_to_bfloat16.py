"""Numbers rounded to bfloat16 where a device computes in it, and kept in float32.

    R(x)  =  Cast(Cast(x, bfloat16), float32)      to the nearest, of two to the even one
    R(w)  =  the numbers, rounded now              w a constant

    MatMul(a, b)  ->  MatMul(R(a), R(b))           so Gemm, Conv, ConvTranspose, attention and
                                                   others of `_PRODUCTS`, backward ones too: what
                                                   they add up, and what they add it to, is float32
    MatMul(Transpose(a), b)  ->  MatMul(Transpose(R(a)), R(b))

A factor of ones and zeros makes a sum of a product, as gradients of biases are written: it is not
rounded, nor is what it adds up. With `everything` also

    Op(a, b)      ->  Op(R(a), R(b))               for every operator but those of `_SETTINGS`
    y = Op(a)     ->  y = R(Op(a))                 y an output of a graph

but for what depends on shapes and constants alone, for constants of one element, which are part of
an operator, and for what only the outputs named in `apart` need, which is computed in float32 from
rounded results. What is rounded already, or moved only after it was, is not rounded again.

Rounding is part of what is computed: it is decided on the legal graph, so that numbers depend on
neither the simplifications nor the sections that follow. No pass may cancel R: a cast to bfloat16
loses digits, so `remove_no_ops` and `merge_chains` leave it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.traversal import all_nodes, has_subgraphs, subgraphs
from sambac.ops import family_of, is_random
from sambac.ops.family import qualified

from .base import Pass
from .rewriting import constant, derived_name, made_by, present

_PRODUCTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "DeformConv"), (0, 1)),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (0, 1, 2)),
    "Attention": (0, 1, 2, 4, 5),
    **dict.fromkeys(
        (
            "com.microsoft.Attention",
            "com.microsoft.FusedConv",
            "com.microsoft.FusedGemm",
            "com.microsoft.FusedMatMul",
            "com.microsoft.FusedMatMulActivation",
        ),
        (0, 1),
    ),
    "com.microsoft.MultiHeadAttention": (0, 1, 2),
    "com.microsoft.GroupQueryAttention": (0, 1, 2, 3, 4),
}
"""Which operands of operators that are made of matrix products are multiplied."""

_SETTINGS: dict[str, tuple[int, ...]] = {
    "DequantizeLinear": (),
    "QuantizeLinear": (0,),
    "Range": (),
    "Resize": (0,),
    "Upsample": (0,),
}
"""Operators with operands that say what is done, not to what: the others are listed."""

_CHOOSE = frozenset(("Abs", "Max", "MaxPool", "Min", "Neg", "ReduceMax", "ReduceMin", "Relu",
                     "Where", "GlobalMaxPool"))  # fmt: skip
_MAKE = frozenset(("Dropout", "EyeLike", "Range", "ConstantOfShape", "Pad"))

_Known = MutableMapping[ir.Value, ir.Value]


@dataclass(frozen=True)
class RoundToBfloat16(Pass):
    """Round what matrix products multiply, or everything, to bfloat16.

    `apart` names outputs of the graph that are left in float32.
    """

    name: ClassVar[str] = "round_to_bfloat16"
    everything: bool = False
    apart: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert the casts in `model`, subgraphs included."""
        before = sum(1 for _ in all_nodes(model.graph)), len(model.graph.initializers)
        rounding = _Rounding(Editor(model), self.everything, self._members(model))
        rounding.run(model.graph)
        after = sum(1 for _ in all_nodes(model.graph)), len(model.graph.initializers)
        return ir.passes.PassResult(model, modified=before != after)

    def _members(self, model: ir.Model) -> frozenset[ir.Node]:
        """Return the nodes that an output needs which is not apart, with those inside of them."""
        starts = [out for out in model.graph.outputs if out.name not in self.apart]
        pending = [node for out in starts if (node := out.producer()) is not None]
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


@dataclass
class _Rounding:
    """Rounds in one model, each value once in a graph.

    `exact` are values that bfloat16 holds, `fixed` those that depend on constants and shapes alone.
    """

    editor: Editor
    everything: bool
    members: frozenset[ir.Node]
    exact: set[ir.Value] = field(default_factory=set)
    fixed: set[ir.Value] = field(default_factory=set)

    def run(self, graph: ir.Graph) -> None:
        """Round in `graph` and its subgraphs."""
        self._graph(graph, {})

    def _graph(self, graph: ir.Graph, known: _Known) -> None:
        for node in tuple(graph):
            if self._is_fixed(node):
                self.fixed.update(node.outputs)
                continue
            self.editor.rewrite(node)
            for index, value in self._operands(node):
                node.replace_input_with(index, self._rounded(value, known))
            if self._only_moves(node):
                self.exact.update(node.outputs)
            for inner in subgraphs(node):
                self._graph(inner, ChainMap({}, known))
        if self.everything:
            self._outputs(graph, known)

    def _is_fixed(self, node: ir.Node) -> bool:
        """Tell whether a node computes from constants and shapes alone."""
        if is_random(node) or has_subgraphs(node):
            return False
        if node.domain == "" and node.op_type in ("Shape", "Size"):
            return True
        return all(value in self.fixed or _is_stored(value) for value in present(node.inputs))

    def _operands(self, node: ir.Node) -> list[tuple[int, ir.Value]]:
        """Return the operands of `node` that are to be rounded, by number."""
        name = qualified(node.domain, node.op_type)
        everything = range(len(node.inputs))
        products = _PRODUCTS.get(name, everything if name == "Einsum" and node.inputs[1:] else ())
        if any(_selects(node.inputs[index]) for index in products if index < len(node.inputs)):
            products = ()
        chosen = _SETTINGS.get(name, everything) if self.everything else products
        return [
            (index, value)
            for index, value in enumerate(node.inputs)
            if index in chosen
            and value is not None
            and _is_float32(value)
            and self._takes_part(node, value)
            and (index in products or not _is_number(value))
        ]

    def _takes_part(self, node: ir.Node, value: ir.Value) -> bool:
        return node in self.members or value.producer() in self.members

    def _rounded(self, value: ir.Value, known: _Known) -> ir.Value:
        """Return R(value), for where the editor is and what lies behind that in its graph."""
        if value in self.exact:
            return value
        if value not in known:
            known[value] = self._make(value, known)
            self.exact.add(known[value])
        return known[value]

    def _make(self, value: ir.Value, known: _Known) -> ir.Value:
        array = constant(value)
        if array is not None:
            short = array.astype(ir.DataType.BFLOAT16.numpy()).astype(array.dtype)
            name = derived_name(value, "bfloat16")
            return self.editor.initializer(short, name, origin=[value])
        turn = made_by(value, "Transpose")
        if turn is None or turn.inputs[0] is None:
            return _cast_twice(self.editor, value)
        straight = self._rounded(turn.inputs[0], known)
        order = turn.attributes["perm"].as_ints() if "perm" in turn.attributes else None
        name = f"{value.name}_rounded"
        return self.editor.op("Transpose", straight, like=value, name=name, perm=order)

    def _only_moves(self, node: ir.Node) -> bool:
        """Tell whether all that `node` gives out is among exact operands, but for their signs."""
        moves = node.domain == "" and (
            node.op_type in _CHOOSE or (_is_move(node) and node.op_type not in _MAKE)
        )
        reduces = "reduction" in node.attributes or node.op_type == "Col2Im"
        read = [value for value in present(node.inputs) if value.dtype == ir.DataType.FLOAT]
        return moves and not reduces and bool(read) and all(value in self.exact for value in read)

    def _outputs(self, graph: ir.Graph, known: _Known) -> None:
        """Let `graph` give out rounded results, under their names."""
        for index, value in enumerate(graph.outputs):
            node = value.producer()
            done = value in self.exact or value in self.fixed
            if node is None or node not in self.members or done or not _is_float32(value):
                continue
            rounded = known[value] if value in known else _cast_last(self.editor, graph, value)
            graph.outputs[index] = rounded
            value.name, rounded.name = rounded.name, value.name


def _is_float32(value: ir.Value) -> bool:
    return isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def _is_stored(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()


def _is_move(node: ir.Node) -> bool:
    family = family_of(node.domain, node.op_type)
    return family is not None and family.name == "movement"


def _selects(value: ir.Value | None) -> bool:
    """Tell whether a factor consists of ones and zeros, so that the product is a sum."""
    array = constant(value)
    if array is None or array.size < 2 or array.flat[0] not in (0, 1):
        return False
    return bool(((array == 0) | (array == 1)).all())


def _is_number(value: ir.Value) -> bool:
    array = constant(value)
    return array is not None and array.size == 1


def _cast_twice(editor: Editor, value: ir.Value) -> ir.Value:
    """Return R(value)."""
    for suffix, dtype in (("bfloat16", ir.DataType.BFLOAT16), ("rounded", ir.DataType.FLOAT)):
        like = ir.Value(type=ir.TensorType(dtype), shape=value.shape)
        stem = f"{str(value.name).removesuffix('_bfloat16')}_{suffix}"
        value = editor.op("Cast", value, like=like, name=stem, to=int(dtype))
    return value


def _cast_last(editor: Editor, graph: ir.Graph, value: ir.Value) -> ir.Value:
    """Add R(value) at the end of `graph`."""
    editor.rewrite(graph[-1])
    editor.go_to_end(graph)
    return _cast_twice(editor, value)
