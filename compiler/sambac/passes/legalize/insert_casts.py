"""Run operators on a wider type where onnxruntime has no kernel for their own.

    y = Op(x), x float16, no such kernel   ->  y = Cast(Op(Cast(x, float32)), float16)
    Cast(Cast(y, float16), float32)        ->  y, where the casts are both from here, of floats

The casts stand before sections are cut, so that what crosses between sections carries the wide
type: rounding at every border would make the result depend on the sections. Whole numbers are
narrow again behind each operator, as they may have gone around: 300 of uint8 is 44.

Casts to the type of another value, where that type is known (`NameCasts`):

    CastLike(x, like)  ->  Cast(x, to=type of like)

The result no longer depends on `like`, and a constant is cast at once.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import all_nodes, is_calm, is_stop, subgraphs
from sambac.graph.origins import note_host_cast
from sambac.graph.value_types import parse
from sambac.kernels.failures import why_type_fails
from sambac.kernels.registry import KernelCall, why_not_runnable
from sambac.kernels.widening import Widening, widenings
from sambac.passes.base import WITHOUT_KERNEL, Pass
from sambac.passes.rewriting import Rule, RulePass


@dataclass(frozen=True)
class InsertCasts(Pass):
    """Put casts around each node that has a kernel only for wider types.

    Never lossy: floats become wider floats, integers wider integers. Types and shapes of all
    values must be known, and still are afterwards.
    """

    name: ClassVar[str] = "insert_casts"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert casts in `model`, subgraphs included."""
        needed = {
            node: wider
            for node in all_nodes(model.graph)
            if (wider := wider_call(node, model.opset_imports)) is not None
        }
        if not needed:
            return ir.passes.PassResult(model, modified=False)
        _Caster(needed, Editor(model)).run(model.graph)
        return ir.passes.PassResult(model, modified=True)


def wider_call(node: ir.Node, opsets: Mapping[str, int]) -> Widening | None:
    """Return how `node` runs on wider types, or None if it need not or cannot."""
    call = KernelCall.of(node, opsets)
    if why_not_runnable(node, opsets) is None or call.opset != opsets.get(node.domain, 1):
        return None
    # A kernel that is listed for more than it computes may be so for the wider type, too.
    kinds = ((item, next(iter(item.call.inputs), "")) for item in widenings(call))
    fitting = (item for item, kind in kinds if not why_type_fails(node, kind))
    return next(fitting, None)


_Wide = MutableMapping[ir.Value | None, dict[str, ir.Value]]


def _same_value(node: ir.Node) -> ir.Value | None:
    """Return the input that the node's output equals, in value and type, or None.

    What reads the output of a stop must read it, or gradients would flow past.
    """
    if node.domain != "" or node.op_type not in ("Identity", "Cast"):
        return None
    if is_stop(node) or is_calm(node):
        return None
    source = node.inputs[0]
    return source if source is not None and source.type == node.outputs[0].type else None


@dataclass
class _Caster:
    """Inserts the casts of one model, each wide form of a value once per graph."""

    needed: dict[ir.Node, Widening]
    editor: Editor
    _narrowed: list[ir.Node] = field(default_factory=list)

    def run(self, graph: ir.Graph) -> None:
        """Insert the casts of `graph` and its subgraphs, then drop those that nobody reads."""
        self._graph(graph, {})
        for cast in reversed(self._narrowed):
            output = cast.outputs[0]
            if not output.uses() and not output.is_graph_output() and cast.graph is not None:
                cast.graph.remove(cast, safe=True)

    def _graph(self, graph: ir.Graph, wide: _Wide) -> None:
        """`wide` holds, for a value, the values of wider types that it equals, by type."""
        for node in tuple(graph):
            wider = self.needed.get(node)
            if wider is not None:
                self.editor.origin = node
                self._inputs(node, wider, wide)
                self._outputs(node, wider, wide)
            elif (source := _same_value(node)) in wide:
                wide[node.outputs[0]] = wide[source]
            for inner in subgraphs(node):
                self._graph(inner, ChainMap({}, wide))

    def _inputs(
        self,
        node: ir.Node,
        wider: Widening,
        wide: _Wide,
    ) -> None:
        old = KernelCall.of(node, {}).inputs
        for index, (before, after) in enumerate(zip(old, wider.call.inputs, strict=True)):
            value = node.inputs[index]
            if before == after or value is None:
                continue
            known = wide.get(value, {})
            if after not in known:
                cast = self._cast(value, after, self._name(value, after))
                self.editor.go_before(node)
                self.editor.put(cast)
                # A new dictionary: what a subgraph adds is unknown outside of it.
                known = {**known, after: cast.outputs[0]}
                wide[value] = known
            node.replace_input_with(index, known[after])

    def _outputs(
        self,
        node: ir.Node,
        wider: Widening,
        wide: _Wide,
    ) -> None:
        if wider.dtype is not None:
            node.attributes["dtype"] = ir.AttrInt64("dtype", _number(wider.dtype))
        old = KernelCall.of(node, {}).outputs
        for output, before, after in zip(node.outputs, old, wider.call.outputs, strict=True):
            if before == after:
                continue
            name = str(output.name)
            output.name = self._name(output, after)
            cast = self._cast(output, before, name)
            narrow = cast.outputs[0]
            output.replace_all_uses_with(narrow, replace_graph_outputs=True)
            cast.replace_input_with(0, output)
            output.type = parse(after)
            self.editor.go_behind(node)
            self.editor.put(cast)
            self._narrowed.append(cast)
            if output.dtype is not None and output.dtype.is_floating_point():
                wide[narrow] = {after: output}

    def _name(self, value: ir.Value, type_: str) -> str:
        return self.editor.names.value(f"{value.name}_{_short(type_)}")

    def _cast(self, value: ir.Value, type_: str, name: str) -> ir.Node:
        cast = ir.node(
            "Cast",
            [value],
            {"to": _number(type_)},
            name=self.editor.names.node(f"{name}_cast"),
        )
        output = cast.outputs[0]
        output.name = name
        output.type = parse(type_)
        note_host_cast(output)
        output.shape = value.shape
        return cast


def _number(type_: str) -> int:
    parsed = parse(type_)
    return int(parsed.dtype) if parsed is not None else 0


def _short(type_: str) -> str:
    return type_.removeprefix("tensor(").removesuffix(")")


def _name_type(editor: Editor, node: ir.Node) -> str | None:
    """CastLike(x, like) -> Cast(x, to=type of like)."""
    like = node.inputs[1]
    if like is None or like.dtype is None:
        return "the type is not known"
    kept = ("saturate", "round_mode")
    attributes = {k: attr.value for k, attr in node.attributes.items() if k in kept}
    editor.replace(node, "Cast", node.inputs[0], to=int(like.dtype), **attributes)
    return None


@dataclass(frozen=True)
class NameCasts(RulePass):
    """Replace every CastLike by a Cast."""

    name: ClassVar[str] = "name_casts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"CastLike": (_name_type,)}
