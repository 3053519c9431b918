"""Does a PEF belong to the model that was traced? Everything that differs, at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from pef.foreign import producer_options
from sambaflow.samba.compile.application import GraphSignature, application_of, graphs_of
from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.onnx_graph import OnnxStandIn
from sambaflow.samba.trace.traced_graph import TracedGraph, group_optimizers
from sambaflow.samba.trace.tracing import Traced
from sambahost.wording import spelled

from .device import SambaDevice
from .optimizer_matching import differences, other_members, tell_what_has_no_effect


def require_match(
    device: SambaDevice,
    model: nn.Module,
    call: ForwardCall,
    traced: Traced,
    optimizers: tuple[torch.optim.Optimizer, ...],
    mapping: str | None = None,
) -> None:
    """Raise `SambaError` that lists what differs between the PEF and the traced model.

    A PEF without optimizers fits all: then there is nothing that they could update, with a warning.
    """
    compiled = application_of(device.program).get("model")
    named = compiled is not None or not isinstance(
        model, OnnxStandIn
    )  # a file is of no application
    problems = [
        *(_model(compiled, model_name(model)) if named else ()),
        *_mapping(device, mapping),
        *_all_tensors(device, model, call, traced),
        *differences(device, {id(p) for p in model.parameters()}, optimizers),
        *other_members(device, "", model, optimizers),
    ]
    if problems:
        raise SambaError(
            f"{device.path} was not compiled from this model with these inputs; compile it again:\n"
            f"{_listed(problems)}"
        )
    tell_what_has_no_effect(device, optimizers)


def require_graphs_match(
    device: SambaDevice, traced: Sequence[TracedGraph], wanted: Iterable[str]
) -> None:
    """Raise `SambaError` that lists what differs between a PEF of several graphs and the models.

    `wanted` are the names of graphs that it must have.
    """
    graphs = graphs_of(device.program)
    if not graphs:
        raise SambaError(
            f"{device.path} is of one model, and not of several graphs; load it with "
            f"samba.utils.trace_graph, or compile one with compile_multigraph"
        )
    problems = [f"there is no graph '{name}' in the PEF" for name in wanted if name not in graphs]
    for graph in traced:
        problems += _mapping(device, graph.mapping)
        problems += _all_tensors(device, graph.model, graph.call, graph.traced)
    optimizers = group_optimizers(traced)
    owned = {id(p) for graph in traced if graph.optimizers for p in graph.model.parameters()}
    problems += differences(device, owned, optimizers)
    for graph in traced:
        name = _compiled_as(graphs, graph)
        problems += other_members(device, name, graph.model, graph.optimizers) if name else ()
    problems += _for_inference(graphs, traced) if device.host.updates else ()
    if problems:
        raise SambaError(
            f"{device.path} was not compiled from the graphs that were traced; compile it again:\n"
            f"{_listed(problems)}"
        )
    tell_what_has_no_effect(device, optimizers)


def _listed(problems: Iterable[str]) -> str:
    return "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))


def _all_tensors(
    device: SambaDevice, model: nn.Module, call: ForwardCall, traced: Traced
) -> Iterator[str]:
    yield from _tensors("input", device, [(n.tensor.sn_name, n.tensor) for n in call.tensors])
    yield from _tensors("parameter", device, _parameters(model))
    yield from _tensors("output", device, [(output.sn_name, output) for output in traced.outputs])


def _model(compiled: object, traced: str) -> Iterator[str]:
    if compiled != traced:
        yield f"the model is '{traced}', the PEF is of '{compiled}'"


def _mapping(device: SambaDevice, wanted: str | None) -> Iterator[str]:
    """Compare the mapping that is given, if one is, with that of the PEF."""
    compiled = producer_options(device.program.producer.options).get("mapping")
    if wanted and compiled not in (None, wanted):
        yield (
            f"the mapping is '{wanted}', the PEF was compiled with '{compiled}': give that when "
            f"tracing, and --mapping {compiled} on the command line"
        )


def _for_inference(
    graphs: Mapping[str, GraphSignature], traced: Iterable[TracedGraph]
) -> Iterator[str]:
    """Find optimizers of graphs that a PEF in which others train has for inference."""
    for graph in traced:
        name = _compiled_as(graphs, graph)
        if graph.optimizers and name and not graphs[name].trains:
            yield f"an optimizer is given for graph '{name}', in the PEF it is for inference"


def _compiled_as(graphs: Mapping[str, GraphSignature], graph: TracedGraph) -> str:
    """Return what the program calls the graph with the outputs of `graph`, empty if there is none.

    Graphs that were traced have no names yet.
    """
    outputs = {output.sn_name for output in graph.traced.outputs}
    return next((name for name, known in graphs.items() if outputs == {*known.outputs}), "")


def _parameters(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for path, parameter in model.named_parameters():
        yield samba_name(model_name(model), path), parameter


def _tensors(
    kind: str, device: SambaDevice, tensors: Iterable[tuple[str, Tensor]]
) -> Iterator[str]:
    """Compare tensors with the symbols that bear their names."""
    for name, tensor in tensors:
        found = device.described(name)
        if found is None:
            left_out = kind == "parameter" and not device.host.keeps_parameters
            if not left_out and name not in device.host.unused:
                yield f"{kind} '{name}' is not in the PEF"
            continue
        dtype, shape = found
        if kind == "output" and _converted(name, tensor, dtype):
            dtype = tensor.dtype
        if shape != tuple(tensor.shape) or dtype is not tensor.dtype:
            yield (
                f"{kind} '{name}' is {spelled(tensor.dtype, tensor.shape)}, in the PEF it is "
                f"{spelled(dtype, shape)}"
            )


def _converted(name: str, tensor: Tensor, dtype: torch.dtype) -> bool:
    """Return whether an output of whole numbers has the type of the region that it shares."""
    shares = isinstance(tensor, SambaTensor) and tensor.sn_region_name != name
    return shares and {dtype, tensor.dtype} == {torch.int32, torch.int64}


def is_inference(device: SambaDevice | None, optimizers: tuple[torch.optim.Optimizer, ...]) -> bool:
    """Return whether a model traced so is only evaluated.

    Without an optimizer it is, unless the PEF has none either: then only its gradients are wanted.
    """
    if device is None:
        return not optimizers
    return not device.host.trains or (device.host.updates and not optimizers)
