"""From an onnx_ir model to the view that planners work on.

Some kinds of node are marked `cloned`, because a copy in each reader is cheaper than a place in
memory: constants that were too large to fold (`ConstantOfShape` and what follows from it alone),
what follows from weights alone, and the arithmetic on shapes; then what a device does while it
reads, which is to widen narrow floating-point numbers for a sum and to turn a weight over. On
request also views, which only give the same bytes another shape: as sections of their own they
would copy them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import onnx_ir as ir

from pef import dtypes
from pef.symbols import Shape
from sambac.errors import CompileError
from sambac.graph.constants import is_literal
from sambac.graph.nodes import has_subgraphs, subgraphs
from sambac.graph.origins import is_host_cast, module_of, operator_of
from sambac.graph.value_types import spell
from sambac.ops import flops_of, held_whole, is_random, keepable

from .view import DataflowView, OpFacts, ValueFacts, ValueRole

# More bytes than a processor of today can address.
_ADDRESSABLE = 1 << 56
_SHAPE_SOURCES = frozenset({"Shape", "Size"})
_SHAPE_ARITHMETIC = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Expand", "Floor", "Gather",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul",
    "Neg", "Not", "Or", "ReduceProd", "ReduceSum", "Reshape", "Slice", "Squeeze", "Sub",
    "Unsqueeze", "Where",
})  # fmt: skip
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_READ_OTHERWISE = frozenset({"Cast", "Transpose"})
_SHAPE_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})


def view_of(
    model: ir.Model, *, states: Collection[str] = (), clone_views: bool = False
) -> DataflowView:
    """Return what planners know of `model`, which is in legal form.

    Raises `CompileError` for a value that no memory could hold.

    `states` are the inputs that are weights; `clone_views` marks operators that only change the
    shape of a tensor as cloned.
    """
    return _ViewBuilder(model.graph, states, clone_views).build()


class _ViewBuilder:
    """One walk over the nodes of a graph that collects the facts of operators and values."""

    def __init__(self, graph: ir.Graph, states: Collection[str], clone_views: bool) -> None:
        self._graph = graph
        self._turned = {value for value in graph.inputs if value.name in states}  # and their copies
        self._clone_views = clone_views
        self._returned = set(graph.outputs)
        self._values: dict[str, ValueFacts] = {}
        self._constant: set[ir.Value] = set()  # defined by nodes cloned for being constant
        self._shapes: set[ir.Value] = set()  # defined by nodes cloned for computing shapes
        self._declared: dict[ir.Value, ir.DataType] = {}  # what the host has in more bits

    def build(self) -> DataflowView:
        """Walk the graph."""
        for value in self._graph.inputs:
            self._add(value, ValueRole.INPUT)
        given = set(self._graph.inputs)
        ops = {}
        for node in self._graph:
            op = self._op(node, given)
            ops[op.name] = op
        for value in self._graph.outputs:
            # An output that no node makes is an input or has content in the model.
            if _name(value) not in self._values:
                self._add(value, ValueRole.WEIGHT)
        return DataflowView(
            ops=ops,
            values=self._values,
            inputs=tuple(_name(value) for value in self._graph.inputs),
            outputs=tuple(_name(value) for value in self._graph.outputs),
        )

    def _op(self, node: ir.Node, given: set[ir.Value]) -> OpFacts:
        reads = list(dict.fromkeys(chain(_direct_inputs(node), _captured(node))))
        symbols = [value for value in reads if value in given or not _is_literal(value)]
        for value in symbols:
            if _name(value) not in self._values:
                self._add(value, ValueRole.WEIGHT)
        outputs = [value for value in node.outputs if value.name]
        self._declared.update(self._declared_of(node, outputs))
        for value in outputs:
            self._add(value, ValueRole.ACTIVATION)
        return OpFacts(
            name=_required(node.name, f"a node of type {node.op_type}"),
            op_type=node.op_type,
            domain=node.domain,
            inputs=tuple(_name(value) for value in symbols),
            outputs=tuple(_name(value) for value in outputs),
            flops=flops_of(node),
            cloned=self._is_cloned(node, symbols),
            module=module_of(node),
            part_of=operator_of(node),
            holds=tuple(_name(value) for value in held_whole(node)),
            keepable=tuple(_name(value) for value in keepable(node)),
        )

    def _declared_of(
        self, node: ir.Node, outputs: Sequence[ir.Value]
    ) -> Iterator[tuple[ir.Value, ir.DataType]]:
        """Yield what `node` makes in more bits than the model asks for, with the type of the model.

        It begins with a cast that only kernels of the host need, and goes on to all that has the
        type of the cast until the model itself casts: what operators of the model read beside each
        other has one type, and so they were all widened.
        """
        if has_subgraphs(node):
            return
        read = [value for value in node.inputs if value is not None]
        if is_host_cast(node):
            narrow = self._declared.get(read[0], read[0].dtype)
            if narrow is not None and _is_wider(outputs[0], narrow):
                yield outputs[0], narrow
        elif node.op_type != "Cast" or node.domain != "":
            for value in outputs:
                alike = (each for each in read if each.dtype == value.dtype)
                types = {self._declared[each] for each in alike if each in self._declared}
                if types:
                    yield value, max(types, key=lambda dtype: dtype.itemsize)

    def _is_cloned(self, node: ir.Node, symbols: list[ir.Value]) -> bool:
        """Tell whether readers get a copy of `node`, and note what that says of its outputs."""
        if any(value in self._returned for value in node.outputs):
            return False
        if self._is_shape_only(node, symbols):
            self._shapes.update(node.outputs)
            return True
        if self._is_constant(node, symbols):
            self._constant.update(node.outputs)
            return True
        if self._is_read_otherwise(node, symbols):
            return True
        return self._clone_views and self._is_view(node, symbols)

    def _is_read_otherwise(self, node: ir.Node, symbols: list[ir.Value]) -> bool:
        """Tell whether readers widen or turn over what they read themselves."""
        if node.domain != "" or node.op_type not in _READ_OTHERWISE:
            return False
        if symbols != [node.inputs[0]]:
            return False
        source, made = symbols[0], node.outputs[0]
        of_weight = source in self._turned
        if node.op_type == "Cast" and not _widens(source, made):
            return False
        if of_weight:
            self._turned.add(made)
        return of_weight or node.op_type == "Cast"

    def _is_view(self, node: ir.Node, symbols: list[ir.Value]) -> bool:
        return (
            node.domain == ""
            and node.op_type in VIEWS
            and symbols == [node.inputs[0]]
            and self._values[_name(node.outputs[0])].nbytes is not None
        )

    def _is_shape_only(self, node: ir.Node, symbols: list[ir.Value]) -> bool:
        if node.domain != "":
            return False
        if node.op_type in _SHAPE_SOURCES:
            return True
        return (
            node.op_type in _SHAPE_ARITHMETIC
            and len(symbols) > 0
            and all(value in self._shapes for value in symbols)
            and all(value.dtype in _SHAPE_TYPES for value in node.outputs)
        )

    def _is_constant(self, node: ir.Node, symbols: list[ir.Value]) -> bool:
        if is_random(node) or has_subgraphs(node):
            return False
        return all(
            value in self._constant or self._values[_name(value)].role is ValueRole.WEIGHT
            for value in symbols
        )

    def _add(self, value: ir.Value, role: ValueRole) -> None:
        name = _name(value)
        facts = value_facts(value, name, role)
        if value in self._declared:
            facts = replace(facts, declared=int(self._declared[value]))
        self._values[name] = facts
        if facts.nbytes is not None and facts.nbytes >= _ADDRESSABLE:
            raise CompileError(
                f"'{name}' would have {facts.nbytes:,} bytes, which is beyond any memory; choose "
                "smaller sizes"
            )


def value_facts(value: ir.Value, name: str, role: ValueRole) -> ValueFacts:
    """Return the facts of one value; a symbolic or unknown dimension leaves its size open."""
    shape = _shape(value)
    is_tensor = isinstance(value.type, ir.TensorType)
    dtype = int(value.dtype) if is_tensor and value.dtype is not None else 0
    return ValueFacts(
        name=name,
        role=role,
        dtype=dtype,
        shape=shape,
        type=spell(value.type),
        nbytes=dtypes.static_nbytes(dtype, shape),
    )


def _shape(value: ir.Value) -> Shape:
    if value.shape is None:
        return None
    return tuple(
        int(dim) if isinstance(dim, int) else (dim.value if isinstance(dim.value, str) else None)
        for dim in value.shape
    )


def _direct_inputs(node: ir.Node) -> Iterator[ir.Value]:
    return (value for value in node.inputs if value is not None and value.name)


def _widens(source: ir.Value, made: ir.Value) -> bool:
    """Tell whether `made` has the floating-point numbers of `source` in more bits."""
    narrow, wide = source.dtype, made.dtype
    if narrow is None or wide is None:
        return False
    floats = narrow.is_floating_point() and wide.is_floating_point()
    return floats and narrow.itemsize < wide.itemsize


def _is_wider(value: ir.Value, than: ir.DataType) -> bool:
    return value.dtype is not None and value.dtype.itemsize > than.itemsize


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what the subgraphs of `node` take from outside.

    An initializer that a subgraph still has of its own is a literal or the subgraph's output, and
    is stored with it.
    """
    for graph in subgraphs(node):
        inner = {*graph.inputs, *graph.initializers.values()}
        for child in graph:
            reads = chain(_direct_inputs(child), _captured(child))
            yield from (value for value in reads if value not in inner)
            inner.update(child.outputs)
        yield from (value for value in graph.outputs if value.name and value not in inner)


def _is_literal(value: ir.Value) -> bool:
    return (
        value.producer() is None and value.const_value is not None and is_literal(value.const_value)
    )


def _name(value: ir.Value) -> str:
    return _required(value.name, "a value")


def _required(name: str | None, what: str) -> str:
    if not name:
        raise ValueError(f"{what} has no name; the model is not in legal form")
    return name
