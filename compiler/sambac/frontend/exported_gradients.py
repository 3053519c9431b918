"""Where no gradient is to flow, by what PyTorch's exporter notes in an ONNX file of its calls.

    y = x.detach()                          nothing, or an Identity, in the file
    nn.Embedding(..., padding_idx=0)        a Gather

Results are the same, and so an exporter for inference leaves both out. They are put back:

    f(..., x, ...)        ->  f(..., stop(x), ...)
    r = Gather(w, i)      ->  Where(i == padding_idx, stop(r), r)

What runs under `torch.no_grad()` bears no note at all.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from pef.wording import listed
from sambac.graph.editor import Editor

CALL = "pkg.torch.onnx.fx_node"
NAME = re.compile(r"%(\w+)")
_DETACHED = re.compile(r"detach(_\d+)?")
_PADDED = re.compile(r"aten\.embedding\.default\]\(args = \(%\w+, %\w+, (\d+)[,)]")


@dataclass
class Stops:
    """Identities through which no gradient may flow, to be marked, and what could not be found."""

    nodes: list[ir.Node] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return sentences for the user."""
        if not self.lost:
            return ()
        names = listed(self.lost, 8, ", ")
        told = f"gradients flow where the exported module detaches {names}, which the file lacks"
        return (f"{told}; compile the module itself",)


def arguments_of(call: str) -> list[str]:
    """Return the names that a call is given, in order, each as often as it stands there."""
    return NAME.findall(call.partition("](args = ")[2])


def calls_of(graph: ir.Graph) -> dict[str, list[ir.Node]]:
    """Return the operators of each call of the exported program."""
    calls: dict[str, list[ir.Node]] = defaultdict(list)
    for node in graph:
        if CALL in node.metadata_props:
            calls[node.metadata_props[CALL]].append(node)
    return calls


def put_stops(model: ir.Model) -> Stops:
    """Put Identities back where the exported program stops gradients, in place."""
    stops = Stops()
    editor = Editor(model)
    calls = calls_of(model.graph)
    made = {name for call in calls for name in NAME.findall(call.partition("=")[0])}
    for call, nodes in calls.items():
        padded = _PADDED.search(call)
        if padded:
            stops.nodes += _keep_padding(editor, nodes, int(padded[1]))
        elif "target=torch.ops.aten.detach.default]" in call:
            stops.nodes += [node for node in nodes if node.op_type == "Identity"]
        gone = {name for name in arguments_of(call) if _DETACHED.fullmatch(name)} - made
        if gone:
            found = [*_detached(arguments_of(call), nodes, gone)]
            stops.nodes += [_stopped(editor, *place) for place in found]
            stops.lost += [] if found else sorted(gone)
    return stops


def _keep_padding(b: Editor, nodes: Sequence[ir.Node], row: int) -> Iterator[ir.Node]:
    """Let no gradient reach `row` of the table that an embedding looks its rows up in."""
    for node in nodes:
        indices = node.inputs[1] if node.op_type == "Gather" and node.domain == "" else None
        if indices is None:
            continue
        rows = node.outputs[0]
        readers = [*rows.uses()]
        b.go_behind(node)
        kind = (indices.dtype or ir.DataType.INT64).numpy()
        hidden = b.op("Unsqueeze", b.op("Equal", indices, np.asarray(row, kind)), np.asarray([-1]))
        still = b.op("Identity", rows, like=rows)
        kept = b.op("Where", hidden, still, rows, like=rows)
        for reader in readers:
            reader.node.replace_input_with(reader.idx, kept)
        maker = still.producer()
        assert maker is not None
        yield maker


def _detached(
    arguments: Sequence[str], nodes: Sequence[ir.Node], gone: set[str]
) -> Iterator[tuple[ir.Node, int]]:
    """Yield where the operators of a call read what it was given detached.

    That is told by places where one operator reads as many values as the call, else by names, if
    as many others are read as are `gone`.
    """
    if len(nodes) == 1 and len(nodes[0].inputs) == len(arguments):
        yield from ((nodes[0], at) for at, name in enumerate(arguments) if name in gone)
        return
    own = set(nodes)
    foreign = [
        (node, at, value)
        for node in nodes
        for at, value in enumerate(node.inputs)
        if value is not None
        and not value.is_initializer()
        and value.producer() not in own
        and value.name not in arguments
    ]
    if len({value for _, _, value in foreign}) == len(gone):
        yield from ((node, at) for node, at, _ in foreign)


def _stopped(b: Editor, node: ir.Node, at: int) -> ir.Node:
    """Let `node` read a copy of its input `at`; return what makes that."""
    value = node.inputs[at]
    assert value is not None
    b.go_before(node)
    copy = b.op("Identity", value, like=value)
    node.replace_input_with(at, copy)
    maker = copy.producer()
    assert maker is not None
    return maker
