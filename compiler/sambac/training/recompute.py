"""Trading time for memory: cheap activations are computed again where the backward pass reads them.

What the backward pass reads of the forward pass has to be kept from one to the other. Every such
value can be kept, or be computed again from others that are. A minimum cut finds the cheapest
choice: values are nodes whose capacity is their size in bytes; what expensive operators make flows
from the source, what the backward pass reads flows into the sink. The values on the cut are kept,
and everything behind them is computed again, by copies of its operators. Inputs, parameters and
constants are there anyway and cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import onnx_ir as ir

from pef.program import SectionType
from sambac.graph.editor import Editor
from sambac.graph.nodes import copy_node, has_subgraphs, static_shape
from sambac.ops import is_anchor, is_random
from sambac.passes.base import Pass

_SOURCE, _SINK = "source", "sink"


@dataclass(frozen=True)
class Recompute(Pass):
    """Let the backward pass compute cheap activations again instead of reading them.

    `stages` says to which stage each output of the graph belongs. Copies are named after what they
    repeat, behind `again/`. Merging duplicates afterwards would undo this.
    """

    name: ClassVar[str] = "recompute"
    stages: Mapping[str, SectionType]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert copies of forward operators before their readers in the backward pass."""
        forward = _ancestors(self._targets(model))
        read = _read_behind(model, forward)
        kept = _kept(model, forward, read)
        copies = _Copies(model, forward, kept)
        for node in tuple(model.graph):
            if node not in forward:
                copies.redirect(node)
        return ir.passes.PassResult(model, modified=copies.made > 0)

    def _targets(self, model: ir.Model) -> Iterator[ir.Value]:
        for value in model.graph.outputs:
            if self.stages.get(str(value.name)) is SectionType.FWD:
                yield value


def _ancestors(targets: Iterable[ir.Value]) -> set[ir.Node]:
    """Return the nodes that any of `targets` depends on."""
    found: set[ir.Node] = set()
    pending = [value.producer() for value in targets]
    while pending:
        node = pending.pop()
        if node is None or node in found:
            continue
        found.add(node)
        pending += [value.producer() for value in node.inputs if value is not None]
    return found


def _read_behind(model: ir.Model, forward: set[ir.Node]) -> list[ir.Value]:
    """Return what the forward pass makes and nodes behind it read, in the order of the graph."""
    return [
        value
        for node in model.graph
        if node in forward
        for value in node.outputs
        if any(use.node not in forward for use in value.uses())
    ]


def _kept(model: ir.Model, forward: set[ir.Node], read: list[ir.Value]) -> set[ir.Value]:
    """Return the values on a minimum cut between expensive operators and the backward pass."""
    network: nx.DiGraph[str] = nx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    by_name: dict[str, ir.Value] = {}
    for node in model.graph:
        if node not in forward:
            continue
        cheap = _is_cheap(node)
        for value in node.outputs:
            name = str(value.name)
            by_name[name] = value
            network.add_edge(f"into {name}", f"from {name}", capacity=_nbytes(value))
            if not cheap:
                network.add_edge(_SOURCE, f"into {name}")  # without a capacity: infinite
                continue
            for source in node.inputs:
                if source is not None and source.producer() is not None:
                    network.add_edge(f"from {source.name}", f"into {name}")
    for value in read:
        network.add_edge(f"from {value.name}", _SINK)
    _, (reachable, _) = nx.minimum_cut(network, _SOURCE, _SINK)
    return {
        value
        for name, value in by_name.items()
        if f"into {name}" in reachable and f"from {name}" not in reachable
    }


def _is_cheap(node: ir.Node) -> bool:
    """Tell whether to compute `node` twice costs little, and gives the same."""
    expensive = is_anchor(node.domain, node.op_type) or is_random(node) or has_subgraphs(node)
    return not expensive and all(static_shape(value) is not None for value in node.outputs)


def _nbytes(value: ir.Value) -> int:
    """Return what keeping `value` costs: nothing but a token for what the caller gets anyway."""
    if value.is_graph_output():
        return 1
    shape = static_shape(value)
    size = 1 if value.dtype is None else value.dtype.itemsize
    elements = 1
    for dim in shape or ():
        elements *= dim
    return max(int(elements * size), 1)


class _Copies:
    """Copies of forward operators, made when a reader behind them asks for one."""

    def __init__(self, model: ir.Model, forward: set[ir.Node], kept: set[ir.Value]) -> None:
        self._forward = forward
        self._kept = kept
        self._editor = Editor(model)
        self._copy_of: dict[ir.Value, ir.Value] = {}
        self.made = 0

    def redirect(self, reader: ir.Node) -> None:
        """Let `reader` read copies of what is not kept."""
        self._editor.go_before(reader)
        for index, value in enumerate(reader.inputs):
            if value is not None and self._is_repeated(value):
                reader.replace_input_with(index, self._copy(value))

    def _is_repeated(self, value: ir.Value) -> bool:
        maker = value.producer()
        return maker is not None and maker in self._forward and value not in self._kept

    def _copy(self, value: ir.Value) -> ir.Value:
        """Return the copy of `value`; what it needs is put where the editor is."""
        missing = [value]
        while missing:
            target = missing[-1]
            maker = target.producer()
            assert maker is not None
            if target in self._copy_of:
                missing.pop()
                continue
            needed = [
                source
                for source in maker.inputs
                if source is not None and self._is_repeated(source) and source not in self._copy_of
            ]
            if needed:
                missing += needed
                continue
            self._repeat(maker)
            missing.pop()
        return self._copy_of[value]

    def _repeat(self, node: ir.Node) -> None:
        names = self._editor.names
        copy = copy_node(
            node,
            self._copy_of,
            names.node(f"again/{node.name}"),
            lambda value: names.value(f"again/{value.name}"),
        )
        self._editor.put(copy)
        self.made += 1
