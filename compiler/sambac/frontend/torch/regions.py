"""Regions without gradients: what `torch.no_grad` computes becomes visibly detached.

    with torch.no_grad():         region = wrap_with_set_grad_enabled(False, f, x)
        y = f(x)            ->        y = f(x)
    z = g(y)                      z = g(detach(y))

torch.export keeps such a region as a call of a subgraph, and every later step forgets that
gradients were off in it. Here its operators move into the main graph, and what one of them computes
passes a detach before an operator with gradients reads it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, TensorArgument

from sambac.errors import CompileError

from .capture import copied_graph

_REGION = torch.ops.higher_order.wrap_with_set_grad_enabled
_DETACH = torch.ops.aten.detach.default
_GRADIENTS = "computed_with_gradients"


def without_regions(program: ExportedProgram) -> ExportedProgram:
    """Return `program` with the operators of its regions outside of them; itself without any.

    The graph of the argument is not changed. Raises `CompileError` where a region changes in place
    what gradients flow through.
    """
    if not any(_has_region(part) for part in program.graph_module.modules()):
        return program
    module = copied_graph(program)
    parameters = set(program.graph_signature.inputs_to_parameters)
    _unwrap(module, parameters)
    for part in module.modules():
        if isinstance(part, fx.GraphModule) and _has_region(part):  # inside autocast, or a branch
            _unwrap(part, {node.name for node in part.graph.find_nodes(op="placeholder")})
    return program._update(module, _renamed(program.graph_signature, module.graph))


def _unwrap(module: fx.GraphModule, sources: set[str]) -> None:
    """Do so in one graph; `sources` names the inputs that may have gradients."""
    _inline(module, gradients=True)
    _detach_sources(module.graph, _active(module.graph, sources))
    _detach_results(module.graph)
    module.recompile()


def _has_region(part: torch.nn.Module) -> bool:
    return isinstance(part, fx.GraphModule) and any(map(_is_region, part.graph.nodes))


def _is_region(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is _REGION


def _inline(module: fx.GraphModule, *, gradients: bool) -> None:
    """Replace the regions of `module` by their operators, and note on each whether it is in one."""
    for node in tuple(module.graph.nodes):
        if _is_region(node):
            _splice(module, node)
        elif node.op == "call_function":
            node.meta.setdefault(_GRADIENTS, gradients)


def _splice(module: fx.GraphModule, node: fx.Node) -> None:
    enabled, reference, *arguments = node.args
    assert isinstance(reference, fx.Node)
    region = module.get_submodule(str(reference.target))
    assert isinstance(region, fx.GraphModule)
    _inline(region, gradients=bool(enabled))
    copies = dict(zip(region.graph.find_nodes(op="placeholder"), arguments, strict=True))
    with module.graph.inserting_before(node):
        for inner in region.graph.nodes:
            if inner.op not in ("placeholder", "output"):
                copies[inner] = module.graph.node_copy(inner, copies.__getitem__)
                if inner.op == "get_attr":
                    _adopt(module, region, copies[inner])
    results = region.graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    for item in tuple(node.users):
        item.replace_all_uses_with(copies[results[int(str(item.args[1]))]])
        module.graph.erase_node(item)
    module.graph.erase_node(node)


def _adopt(module: fx.GraphModule, region: fx.GraphModule, reference: fx.Node) -> None:
    """Give `module` what `reference`, a node copied from `region`, refers to."""
    target = str(reference.target)
    name = f"{target}_{reference.name}"
    setattr(module, name, getattr(region, target))
    reference.target = name


def _active(graph: fx.Graph, sources: set[str]) -> set[fx.Node]:
    """Return what depends on one of `sources` by operators that have gradients."""
    active: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            if node.name in sources:
                active.add(node)
        elif node.meta.get(_GRADIENTS, True) and not active.isdisjoint(node.all_input_nodes):
            active.add(node)
    return active


def _detach_sources(graph: fx.Graph, active: set[fx.Node]) -> None:
    """Detach what regions write into other tensors: those are read outside by their own names."""
    for node in tuple(graph.nodes):
        if node.meta.get(_GRADIENTS, True) or not _writes(node):
            continue
        written, *sources = node.all_input_nodes
        if written in active and written.op != "placeholder":  # parameters are refused later
            raise CompileError(
                f"the module changes a tensor in place ({node.target}) under torch.no_grad, and "
                "gradients flow through that tensor; compute a new tensor instead"
            )
        for source in sources:
            if source in active:
                node.replace_input_with(source, _detached(graph, source, before=node))


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _detach_results(graph: fx.Graph) -> None:
    for node in tuple(graph.nodes):
        if node.meta.get(_GRADIENTS, True) or not _is_differentiable(node):
            continue
        readers = [user for user in node.users if user.meta.get(_GRADIENTS, True)]
        if readers:
            detached = _detached(graph, node, before=node.next)
            for reader in readers:
                reader.replace_input_with(node, detached)


def _is_differentiable(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point


def _detached(graph: fx.Graph, source: fx.Node, *, before: fx.Node) -> fx.Node:
    with graph.inserting_before(before):
        node = graph.call_function(_DETACH, (source,))
    node.meta = {**source.meta, _GRADIENTS: True}
    return node


def _renamed(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
    """Return `signature` with the names that the outputs of `graph` have now."""
    results = graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    specs = [
        replace(spec, arg=TensorArgument(name=result.name))
        if isinstance(spec.arg, TensorArgument) and isinstance(result, fx.Node)
        else spec
        for spec, result in zip(signature.output_specs, results, strict=True)
    ]
    return ExportGraphSignature(list(signature.input_specs), specs)
