"""What a module writes in place: buffers become outputs, and what gradients depend on is refused.

Buffers are running statistics, counters, averages.
torch.export turns `buffer.add_(x)` into one more result, of kind BUFFER_MUTATION; the ONNX exporter
drops all results that are not the user's, and with them the operators behind them.

Writes where no gradients flow change by what ways gradients flow elsewhere.

    with torch.no_grad():             y has the new values, and the gradients that it had before
        y.mul_(2)
    z = y.detach(); z.add_(w)         z has gradients by w, and y those that it had before

PyTorch tells this from which tensor was written by which name. In a graph without writes there are
values alone, so that such writes are refused where gradients depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ArgumentSpec, OutputKind, OutputSpec
from torch.utils import _pytree as pytree

from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend.torch.memory_of_nodes import viewed, viewed_unsaid, written_by


@dataclass(frozen=True)
class Results:
    """What the outputs of a program are, in their order.

    First come the tensors among the user's results: `leaves` are the positions that they have
    among all of them, in the order of `structure`. `numbers` are results that are Python numbers,
    by position. Then come the new values of `buffers`, by qualified name. `dtypes` are the element
    types of all outputs, None for complex numbers, which ONNX has as pairs of real ones.
    """

    structure: pytree.TreeSpec
    leaves: tuple[int, ...]
    numbers: Mapping[int, float]
    buffers: tuple[str, ...]
    dtypes: tuple[torch.dtype | None, ...]


def arrange_results(program: ExportedProgram, *, updates: bool) -> Results:
    """Leave `program`, which is functional, with tensors as results only; all are the user's.

    New values of buffers come last, if there are to be `updates`. Raises `CompileError` for a
    program that writes its parameters.
    """
    signature = program.graph_signature
    results = program.graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    _refuse_written_parameters(signature.output_specs)
    user = [
        (spec, result)
        for spec, result in zip(signature.output_specs, results, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    written = [
        (spec, result)
        for spec, result in zip(signature.output_specs, results, strict=True)
        if spec.kind is OutputKind.BUFFER_MUTATION and updates
    ]
    tensors = {at: item for at, item in enumerate(user) if isinstance(item[1], fx.Node)}
    outputs = [*tensors.values(), *written]
    facts = Results(
        structure=program.call_spec.out_spec,
        leaves=tuple(tensors),
        numbers={at: item for at, (_, item) in enumerate(user) if isinstance(item, (int, float))},
        buffers=tuple(str(spec.target) for spec, _ in written),
        dtypes=tuple(_dtype(node) for _, node in outputs),
    )
    _set_results(program, outputs)
    return facts


def _dtype(node: object) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if isinstance(value, torch.Tensor) and not value.is_complex():
        return value.dtype
    return None


def require_no_memory(program: ExportedProgram) -> None:
    """Raise `CompileError` if results of `program` depend on buffers that it also writes.

    For inference, where nothing is kept from call to call.
    """
    signature = program.graph_signature
    buffers = {name: node for node, name in signature.inputs_to_buffers.items()}
    written = [str(name) for name in signature.buffers_to_mutate.values()]
    needed = _needed(program)
    kept = [name for name in written if buffers.get(name) in needed]
    if kept:
        raise CompileError(
            f"the results depend on {listed(kept, separator=', ')}, which every call changes; an "
            "inference program keeps nothing: take it as an input and return it, or compile with "
            "train"
        )


def _needed(program: ExportedProgram) -> set[str]:
    """Return the names of the inputs that the user's results depend on."""
    results = program.graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    specs = program.graph_signature.output_specs
    todo = [
        result
        for spec, result in zip(specs, results, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(result, fx.Node)
    ]
    seen: set[fx.Node] = set()
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += node.all_input_nodes
    return {node.name for node in seen if node.op == "placeholder"}


def _refuse_written_parameters(specs: Iterable[OutputSpec]) -> None:
    written = [str(spec.target) for spec in specs if spec.kind is OutputKind.PARAMETER_MUTATION]
    if written:
        raise CompileError(
            f"the module writes its parameters {listed(written, separator=', ')}; only an "
            "optimizer may: make them buffers, or do it outside of forward"
        )


def _set_results(program: ExportedProgram, results: list[tuple[OutputSpec, object]]) -> None:
    """Make `results` those of `program`, all of them as the user's.

    The exporter finds them by the names in the signature, which another node may have by now.
    """
    program.graph.output_node().args = (tuple(result for _, result in results),)
    program.graph_module.recompile()
    program.graph_signature.output_specs[:] = [
        replace(spec, kind=OutputKind.USER_OUTPUT, target=None, arg=_named(spec, result))
        for spec, result in results
    ]
    signature = program.module_call_graph[0].signature
    assert signature is not None
    signature.out_spec = pytree.tree_structure(tuple(0 for _ in results))


def _named(spec: OutputSpec, result: object) -> ArgumentSpec:
    """Return what the signature says of `result`, by the name that it has in the graph."""
    return replace(spec.arg, name=result.name) if isinstance(result, fx.Node) else spec.arg


_OPENS = "unbacked_bindings"
"""Where a node has the sizes that it opens, as those that select by values do."""


def noted(node: fx.Node, **changes: object) -> dict[str, object]:
    """Return what is noted of `node`, with `changes`, for one in its place that opens no sizes."""
    kept = {key: value for key, value in node.meta.items() if key != _OPENS}
    return kept | changes


DETACH = torch.ops.aten.detach.default
GRADIENTS = "computed_with_gradients"
"""What notes on a node that gradients are on or off where it runs; on, if it is missing."""


def has_gradients(node: fx.Node) -> bool:
    """Tell whether `node` runs with gradients on."""
    return bool(node.meta.get(GRADIENTS, True))


def active_nodes(graph: fx.Graph, sources: set[str], until: fx.Node | None = None) -> set[fx.Node]:
    """Return what depends on one of the inputs `sources` by operators that have gradients.

    Those before `until` count, if it is given.
    """
    active: set[fx.Node] = set()
    for node in graph.nodes:
        if node is until:
            break
        if node.op == "placeholder":
            if node.name in sources:
                active.add(node)
        elif (
            _passes_gradients(node)
            and _may_have_gradients(node)
            and not active.isdisjoint(node.all_input_nodes)
        ):
            active.update((node, *(_base(target)[0] for target in written_by(node))))
    return active


def written_with_gradients(graph: fx.Graph) -> set[fx.Node]:
    """Return what operators that have gradients write, or write views of."""
    writers = filter(has_gradients, graph.nodes)
    return {_base(target)[0] for node in writers for target in written_by(node)}


def require_plain_writes(graph: fx.Graph, active: set[fx.Node]) -> None:
    """Raise `CompileError` for writes after which a graph cannot tell what has gradients by what.

    `active` are the nodes that have some. Parameters that are written are refused elsewhere.
    """
    for node in graph.nodes:
        for target in written_by(node):
            base, stopped = _base(target)
            values = has_gradients(node) and not active.isdisjoint(node.all_input_nodes)
            flows = values or (base in active and base.op != "placeholder")
            if flows and (stopped or not has_gradients(node)):
                raise CompileError(
                    f"the module changes a tensor in place ({node.target}) where gradients are off "
                    "(no_grad, detach), and gradients flow through that tensor; compute a new "
                    "tensor instead, or change a clone()"
                )


def _passes_gradients(node: fx.Node) -> bool:
    return node.target is not DETACH and has_gradients(node)


def _may_have_gradients(node: fx.Node) -> bool:
    """Tell whether the result of `node` may have any, which whole numbers and masks have not."""
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()


def _base(node: fx.Node) -> tuple[fx.Node, bool]:
    """Return what `node` is a view of, itself if of nothing, and whether gradients stop between."""
    stopped = False
    while (source := viewed(node) or viewed_unsaid(node)) is not None:
        stopped = stopped or not _passes_gradients(node)
        node = source
    return node, stopped
