"""The models that were traced for the graphs of one PEF, and what they may have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.optim.settings import group_names
from sambaflow.samba.optim.state import KeptState, kept_states
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch
from sambaflow.samba.trace.call import ForwardCall
from sambaflow.samba.trace.tracing import Traced
from sambahost.wording import spelled


@dataclass(frozen=True)
class TracedGraph:
    """A model as it was traced once; `name` is that of the graph, empty before it has one.

    `optimizers` train it; without any it is for inference. `mapping` is that of the
    PEF, if one was given.
    """

    model: nn.Module
    call: ForwardCall
    traced: Traced
    name: str = ""
    optimizers: tuple[torch.optim.Optimizer, ...] = ()
    mapping: str | None = None

    @property
    def inputs(self) -> dict[str, SambaTensor]:
        """The inputs by what the compiler calls them."""
        return {named.port: named.tensor for named in self.call.tensors}

    @property
    def states(self) -> dict[str, Tensor]:
        """The parameters and buffers by their paths."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def kept_states(self) -> Iterator[tuple[KeptState, str]]:
        """Yield the state of the optimizers as the compiler calls it, with names on the device."""
        paths = {id(p): path for path, p in self.model.named_parameters()}
        names = {key: samba_name(model_name(self.model), path) for key, path in paths.items()}
        compiled, called = (kept_states(self.optimizers, known) for known in (paths, names))
        return ((state, there.name) for state, there in zip(compiled, called, strict=True))

    @property
    def optimizer_states(self) -> dict[str, str]:
        """The names of that state on the device, by what the compiler calls it."""
        return {state.name: there for state, there in self.kept_states()}


def require_one_meaning(graphs: Iterable[TracedGraph]) -> None:
    """Raise `SambaError` that lists tensors of one name with different shapes, types or values."""
    problems = []
    first: dict[str, tuple[str, str, Tensor]] = {}
    for graph in graphs:
        for kind, name, tensor in _tensors(graph):
            where = f"graph '{graph.name}'" if graph.name else f"model '{graph.traced.name}'"
            known = first.setdefault(name, (kind, where, tensor))
            problem = _difference(known[2], tensor)
            if problem:
                problems.append(f"{kind} '{name}' of {where} {problem} {known[0]} of {known[1]}")
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise SambaError(
            f"tensors of one name are one in all graphs, and these differ; give them names of "
            f"their own (sn_name of an input, trace_prefix for outputs, model.name for weights):\n"
            f"{listed}"
        )


def _tensors(graph: TracedGraph) -> Iterator[tuple[str, str, Tensor]]:
    for kind, tensors in (("input", graph.inputs.values()), ("output", graph.traced.outputs)):
        yield from ((kind, tensor.sn_name, tensor) for tensor in tensors)
    for path, tensor in graph.states.items():
        yield "parameter", samba_name(model_name(graph.model), path), tensor


def _difference(known: Tensor, tensor: Tensor) -> str:
    if known is tensor:
        return ""
    one, other = (spelled(t.dtype, t.shape) for t in (tensor, known))
    if one != other:
        return f"is {one}, and {other} is the"
    states = isinstance(tensor, nn.Parameter) and not (known.is_meta or tensor.is_meta)
    if states and not torch.equal(to_torch(known), to_torch(tensor)):
        return "has other values than the"
    return ""


def group_optimizers(graphs: Sequence[TracedGraph]) -> tuple[torch.optim.Optimizer, ...]:
    """Return the optimizers of all graphs, each once, with names for their parameter groups.

    Raises `SambaError` where two of them have state for one name.
    """
    found = {id(item): item for graph in graphs for item in graph.optimizers}
    group_names([*found.values()])
    owners: dict[str, torch.optim.Optimizer] = {}
    for graph in graphs:
        for item in graph.optimizers:
            for name in replace(graph, optimizers=(item,)).optimizer_states.values():
                if owners.setdefault(name, item) is not item:
                    raise SambaError(
                        f"two optimizers have a state '{name}' on the device; give one of the "
                        f"models a name of its own (model.name), or both the same optimizer"
                    )
    return tuple(found.values())


def find_traced(
    traced: Iterable[TracedGraph], name: str, stop: Iterable[SambaTensor]
) -> TracedGraph:
    """Return the traced model whose outputs `stop` are, as the graph `name`.

    Raises `SambaError` if there is none.
    """
    wanted = {tensor.sn_name for tensor in stop}
    for graph in traced:
        if wanted <= {output.sn_name for output in graph.traced.outputs}:
            return replace(graph, name=name)
    raise SambaError(
        f"graph '{name}' stops at {sorted(wanted)}, which are not outputs of one traced model; "
        f"trace it first with samba.utils.trace_multigraph(model, inputs, trace_prefix=...)"
    )
