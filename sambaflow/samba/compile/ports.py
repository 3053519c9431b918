"""What the compiler calls the outputs of a traced model."""

from __future__ import annotations

from torch import nn

from sambac.frontend.torch.names import result_names
from sambac.graph.names import FreshNames
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.traced_graph import TracedGraph
from sambaflow.samba.trace.tracing import Traced


def output_ports(model: nn.Module, call: ForwardCall, traced: Traced) -> tuple[str, ...]:
    """Return what the compiler calls the outputs: not as inputs and parameters are called."""
    states = (*dict(model.named_parameters()), *dict(model.named_buffers()))
    fresh = FreshNames((*(named.port for named in call.tensors), *states))
    names = result_names(traced.structure)
    return tuple(fresh(names[leaf]) for leaf in traced.leaves)


def outputs_by_port(graph: TracedGraph) -> dict[str, SambaTensor]:
    """Return the outputs of a traced model by what the compiler calls them."""
    ports = output_ports(graph.model, graph.call, graph.traced)
    return dict(zip(ports, graph.traced.outputs, strict=True))
