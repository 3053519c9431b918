"""Tensors of one graph with one `sn_region_name`: a cache that an output leaves for an input.

The input and the output lie at one address. A run that is not given the input reads what the output
of the run before has left there. Anything else that is to share memory is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from pef.program import Program
from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.traced_graph import TracedGraph
from sambaflow.samba.trace.tracing import Traced
from sambahost.wording import spelled

from .compiling import build
from .multigraph import build_graphs
from .requests import CompileRequest


@dataclass(frozen=True)
class _Member:
    """A tensor of a region: an input, an output or a parameter."""

    kind: str
    name: str
    tensor: Tensor

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' {spelled(self.tensor.dtype, self.tensor.shape)}"


def build_in_regions(
    model: nn.Module, call: ForwardCall, traced: Traced, request: CompileRequest
) -> Program:
    """Compile one model, in whose PEF an input and an output of one region share memory.

    Raises `SambaError` for regions that cannot be shared, with the reason for each, and
    `sambac.CompileError` for what cannot be compiled.
    """
    graph = TracedGraph(model, call, traced, name=model_name(model))
    shared = {region: found for region, found in _regions(graph).items() if len(found) > 1}
    problems = [
        f"  '{region}' of {', '.join(map(str, members))}: {problem}"
        for region, members in shared.items()
        if (problem := _problem(members, request))
    ]
    if problems:
        listed = "\n".join(problems)
        raise SambaError(
            f"tensors with one sn_region_name share memory, and these cannot; give them regions "
            f"of their own, or none:\n{listed}"
        )
    if not shared:
        return build(model, call, traced, request)
    return build_graphs([graph], replace(request, loss_indices=None))


def _regions(graph: TracedGraph) -> dict[str, list[_Member]]:
    """Return the tensors in each region, each tensor once."""
    found: dict[str, dict[int, _Member]] = {}
    for region, member in _members(graph):
        found.setdefault(region, {}).setdefault(id(member.tensor), member)
    return {region: list(members.values()) for region, members in found.items()}


def _members(graph: TracedGraph) -> Iterator[tuple[str, _Member]]:
    for kind, tensors in (("input", graph.inputs.values()), ("output", graph.traced.outputs)):
        for tensor in tensors:
            yield tensor.sn_region_name, _Member(kind, tensor.sn_name, tensor)
    for path, state in graph.states.items():
        name = samba_name(model_name(graph.model), path)
        given = state._region_name if isinstance(state, SambaTensor) else ""
        yield given or name, _Member("parameter", name, state)


def _problem(members: list[_Member], request: CompileRequest) -> str:
    """Return why `members` cannot lie in one region, or nothing."""
    kinds = sorted(member.kind for member in members)
    if "parameter" in kinds:
        return "a parameter shares memory with itself alone; let both modules hold one parameter"
    if kinds != ["input", "output"]:
        return "what is written last would be read as all of them; only an input and an output can"
    if request.train:
        return "a graph that trains keeps its inputs for the backward pass; compile for inference"
    one, other = (member.tensor for member in members)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return "they differ in type or shape"
    return ""
