"""Who owns a result: outputs, statistics and new states that no operator writes over.

Outputs of graphs that need an operator to make them (`OwnOutputs`):

    graph { .. ; return p, p }       ->  graph { .. ; q = Identity(p); return p, q }
    graph { .. ; return outer }      ->  graph { .. ; q = Identity(outer); return q }
    Scan(body(x) { .. ; return x })  ->  Scan(body(x) { .. ; q = Identity(x); return q })
    model { .. ; return "text" }     ->  model { .. ; q = Identity("text"); return q }

Where a subgraph returns a value twice, onnxruntime fills only one of the two results, and none
that is an input of a Scan's body. Strings have a place in the file only inside of programs.

Running statistics that no kernel writes over (`OwnStatistics`):

    BatchNormalization(x, s, b, mean, var; training_mode = 1)
        ->  BatchNormalization(x, s, b, -(-mean), -(-var); training_mode = 1)

onnxruntime's kernel returns the new statistics in the memory of the old ones, whoever reads those
later, and even if they are constants or belong to the caller.

New values of states that no operator makes over what is still read (`own_updates`):

    queue' = ScatterND(queue, i, v)  ->  queue' = -(-ScatterND(queue, i, v))

    a = f(queue)                         t = [queue, new]      two halves of one tensor
    queue' = new, without a          ->  a = f(first half of t)
                                         queue' = second half of t

A new value has the memory of the old one. An operator that reads the old value itself may write
there only if it does so element by element; any other makes its result elsewhere, to be copied. And
who reads the old value without the new one being made of that, may do so at any time: it gets a
copy, without which there is no new value. Views of the old value, which in onnxruntime are the same
memory, are views of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import all_nodes, input_at, int_attribute, own_values, subgraphs
from sambac.ops import is_elementwise
from sambac.passes.base import CONSTANT_OUTPUTS, SUBGRAPHS, Pass
from sambac.passes.rewriting import Rule, RulePass

# Values to copy, each with the positions among the outputs of its graph that the copy takes.
_Copies: TypeAlias = list[tuple[ir.Value, list[int]]]


@dataclass(frozen=True)
class OwnOutputs(Pass):
    """Let an operator make each output of a subgraph, and each constant string of the model.

    In a subgraph, constants and inputs, but for those of a Scan, may stay outputs, once. Outputs of
    the model keep their names.
    """

    name: ClassVar[str] = "own_outputs"
    operators: ClassVar[frozenset[str] | None] = frozenset({SUBGRAPHS, CONSTANT_OUTPUTS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert an Identity wherever one is needed in `model`, whose names must be unique."""
        main = model.graph
        found = [(main, _texts(main))]
        for node in all_nodes(main):
            found += [(graph, _not_own(node, graph)) for graph in subgraphs(node)]
        needed = [(graph, value, at) for graph, copies in found for value, at in copies]
        if needed:
            editor = Editor(model)
            for graph, value, positions in needed:
                copy = _copy(editor, graph, value)
                for position in positions:
                    graph.outputs[position] = copy
        return ir.passes.PassResult(model, modified=bool(needed))


def _texts(graph: ir.Graph) -> _Copies:
    """Return the outputs that are constant strings, each with its positions."""
    found: dict[ir.Value, list[int]] = {}
    for position, value in enumerate(graph.outputs):
        if value.is_initializer() and value.dtype == ir.DataType.STRING:
            found.setdefault(value, []).append(position)
    return list(found.items())


def _not_own(node: ir.Node, graph: ir.Graph) -> _Copies:
    """Return the outputs that an earlier output is too, or that the subgraph does not make."""
    own = set(own_values(graph))
    if node.domain == "" and node.op_type == "Scan":
        own.difference_update(graph.inputs)
    found: _Copies = []
    for position, value in enumerate(graph.outputs):
        if value not in own:
            found.append((value, [position]))
        own.discard(value)
    return found


def _copy(editor: Editor, graph: ir.Graph, value: ir.Value) -> ir.Value:
    """Return a copy of `value` made at the end of `graph`; that of the model gets its name."""
    editor.go_to_end(graph)
    copy = editor.op("Identity", value, like=value, name=f"{value.name}_copy")
    if graph is editor.model.graph:
        value.name, copy.name = copy.name, value.name
    return copy


def own_statistics(editor: Editor, node: ir.Node) -> str | None:
    """Give the node copies of its inputs 3 and 4."""
    if not int_attribute(node, "training_mode"):
        return "in inference nothing is written"
    for index in (3, 4):
        value = input_at(node, index)
        assert value is not None
        if _is_copy(value):
            return "it has its own statistics"
        negative = editor.op("Neg", value, like=value)
        node.replace_input_with(index, editor.op("Neg", negative, like=value))
    return None


def _is_copy(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and maker.op_type == "Neg" and len(value.uses()) == 1


@dataclass(frozen=True)
class OwnStatistics(RulePass):
    """Copy what the kernel of BatchNormalization in training would write over."""

    name: ClassVar[str] = "own_statistics"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"BatchNormalization": (own_statistics,)}


_VIEWS = frozenset(
    ("", op) for op in ("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
)


@dataclass(frozen=True)
class OwnUpdates(Pass):
    """Keep apart the outputs named by the keys of `updates` and the inputs that they overwrite."""

    name: ClassVar[str] = "own_updates"
    updates: Mapping[str, str]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Copy old or new values where somebody may read the old one too late."""
        graph = model.graph
        inputs = {str(value.name): value for value in graph.inputs}
        # Cleared by the first change: what has no place is looked at wherever it is.
        places: dict[ir.Node, float] = {node: at for at, node in enumerate(graph)}
        editor: Editor | None = None
        for position, value in enumerate(graph.outputs):
            old, maker = inputs.get(self.updates.get(str(value.name), "")), value.producer()
            if old is None or maker is None:
                continue
            viewed = _views(old)
            if viewed:
                editor = editor or Editor(model)
                _view_copy(editor, old, viewed)
                places.clear()
            late = _late_readers(old, maker, places)
            if not late and not _writes_over(maker, old, value):
                continue
            editor = editor or Editor(model)
            editor.origin = maker
            copy = _second_half(editor, old, value, late) if late else _copied(editor, value)
            value.name, copy.name = copy.name, value.name
            graph.outputs[position] = copy
            places.clear()
        if editor is not None:
            graph.sort()
        return ir.passes.PassResult(model, modified=editor is not None)


def _views(old: ir.Value) -> list[tuple[ir.Node, int]]:
    """Return which operators make a view of `old`, and of which input that is."""
    return [
        (node, at) for node, at in old.uses() if at == 0 and (node.domain, node.op_type) in _VIEWS
    ]


def _view_copy(b: Editor, old: ir.Value, viewed: list[tuple[ir.Node, int]]) -> None:
    """Let operators view a copy of `old`."""
    b.origin = viewed[0][0]
    copy = _copied(b, old)
    for node, at in viewed:
        node.replace_input_with(at, copy)


def _late_readers(
    old: ir.Value, maker: ir.Node, places: Mapping[ir.Node, float]
) -> list[tuple[ir.Node, int]]:
    """Return who reads `old`, at which input, though `maker` does not wait for it.

    `places` are those of the operators in an order in which they can run. What reads it in a
    subgraph runs with the operator of the subgraph.
    """
    readers = [use for use in old.uses() if use[0] is not maker]
    holders = _holders(maker.graph) if any(n.graph is not maker.graph for n, _ in readers) else {}
    first = min((places.get(holders.get(node, node), -inf) for node, _ in readers), default=inf)
    todo, before = [maker], {maker}
    while todo and first < inf:
        for node in _makers(todo.pop()):
            if node not in before and places.get(node, inf) >= first:
                before.add(node)
                todo.append(node)
    return [(node, at) for node, at in readers if holders.get(node, node) not in before]


def _holders(graph: ir.Graph | ir.Function | None) -> dict[ir.Node, ir.Node]:
    """Return the operators of `graph` by those in their subgraphs, and by themselves."""
    assert graph is not None
    return {inner: node for node in graph for inner in all_nodes([node])}


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    """Yield what makes the values that `node` and its subgraphs read."""
    for reader in all_nodes([node]):
        for value in reader.inputs:
            maker = value.producer() if value is not None else None
            if maker is not None:
                yield maker


def _writes_over(maker: ir.Node, old: ir.Value, new: ir.Value) -> bool:
    """Tell whether `maker`, or a branch of it, reads `old` in any way but element by element."""
    alike = is_elementwise(maker.domain, maker.op_type) and old.shape == new.shape
    return not alike and any(old in node.inputs for node in all_nodes([maker]))


def _second_half(
    b: Editor, old: ir.Value, new: ir.Value, late: list[tuple[ir.Node, int]]
) -> ir.Value:
    """Return a copy of `new` behind one of `old`, which those who are `late` read instead."""
    count, shape = prod(shape_of(old)), shape_of(old)
    both = b.op("Concat", *(b.op("Reshape", item, (count,)) for item in (old, new)), axis=0)
    first, second = (
        b.op("Reshape", b.op("Slice", both, [start], [start + count], [0]), shape)
        for start in (0, count)
    )
    for reader, index in late:
        reader.replace_input_with(index, first)
    return second


def _copied(b: Editor, value: ir.Value) -> ir.Value:
    """Return a value that equals `value` to the last bit, by operators that undo each other."""
    op = _own_inverse(value.dtype)
    return b.op(op, b.op(op, value))


def _own_inverse(dtype: ir.DataType | None) -> str:
    if dtype is None or dtype.is_floating_point():
        return "Neg"
    return "Not" if dtype == ir.DataType.BOOL else "BitwiseNot"
