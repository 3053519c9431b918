"""What a session knows of the models that it has traced.

Of each also what lives on the device from run to run, by its names there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pef.wording import did_you_mean
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.options import Optimizers, listed
from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.optim.state import named_states
from sambaflow.samba.tensors.pinned import mark_traced
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch
from sambaflow.samba.tensors.tensor_table import TensorTable
from sambahost.wording import misfit

from .call import ForwardCall, Named, plain_arguments
from .traced_graph import TracedGraph
from .tracing import Traced


@dataclass(eq=False)
class TracedModels:
    """The tensors, models, optimizers and graphs that were traced since the last PEF was loaded.

    `tensors` are all by name, `buffers` those of buffers; `stepped` are models with the optimizers
    that they were traced with; `last` is the model that was traced last, with its call, for
    messages; `graphs` are those of `trace_multigraph`, each behind the prefix of its names.
    """

    tensors: TensorTable = field(default_factory=TensorTable)
    buffers: TensorTable = field(default_factory=TensorTable)
    stepped: list[tuple[nn.Module, Optimizers]] = field(default_factory=list)
    outputs: tuple[SambaTensor, ...] = ()
    last: tuple[nn.Module, ForwardCall] | None = None
    graphs: list[tuple[str, TracedGraph]] = field(default_factory=list)

    def forget(self) -> None:
        """Forget all that was traced."""
        self.__dict__.update(vars(TracedModels()))

    def remember(self, model: nn.Module, traced: Traced, inputs: Iterable[Named]) -> None:
        """Keep the tensors of a traced model, by name."""
        model.__dict__["output_tensors"] = self.outputs = traced.outputs
        self.buffers |= (buffers := {n: SambaTensor(b, name=n) for n, b in buffers_of(model)})
        parameters = {n: p for n, p in parameters_of(model) if isinstance(p, SambaTensor)}
        outputs = {output.sn_name: output for output in traced.outputs}
        named = {item.tensor.sn_name: item.tensor for item in inputs}
        self.tensors |= {**parameters, **buffers, **named, **outputs}
        mark_traced([*named, *(output.sn_grad_name for output in traced.outputs)])

    def follow(
        self, model: nn.Module, call: ForwardCall, traced: Traced, optimizers: Optimizers
    ) -> None:
        """Keep a traced model that runs are of from now on, its call, tensors and optimizers."""
        self.remember(model, traced, call.tensors)
        self.last = model, call
        self.stepped.append((model, optimizers))

    @checked()
    def note_converted(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` stand for the traced one of its name, if it has that one's shape."""
        known = self.tensors.get(name)
        # Others than SambaTensors are what torch traces with.
        if isinstance(tensor, SambaTensor) and known is not None and known.shape == tensor.shape:
            self.tensors[name] = tensor

    @checked()
    def note_buffer(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` be that of the buffer `name` in `buffer_dict`."""
        if isinstance(tensor, SambaTensor):
            self.buffers[name] = tensor

    @checked()
    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Return whether `add_aux_tensor` may be given `name`: a word that no traced tensor has."""
        return bool(name) and name not in self.tensors

    @checked()
    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return the traced tensor `name`; what the device holds of it is not fetched.

        Raises `SambaError` if nothing of that name was traced.
        """
        found = self.tensors.get(name)
        if found is None:
            raise SambaError(f"no tensor '{name}' was traced{did_you_mean(name, self.tensors)}")
        return found

    @checked()
    def update_tensor(self, name: str, tensor: Tensor | None) -> None:
        """Give the traced tensor `name` new values on the host; None forgets the tensor.

        Raises `SambaError` for values of another shape.
        """
        found = self.get_samba_tensor_by_name(name)
        if tensor is None:
            del self.tensors[name]
        elif tensor.shape != found.shape:
            raise SambaError(misfit(name, (found.dtype, found.shape), tensor))
        else:
            found.data = to_torch(tensor)

    def plain_arguments(self) -> list[object]:
        """Return what is no tensor among the arguments that models were traced with."""
        calls = [graph.call for graph in self.traced_graphs()]
        return plain_arguments([*calls, self.last[1]] if self.last else calls)

    def traced_graphs(self) -> list[TracedGraph]:
        """Return the graphs of `trace_multigraph`, in order."""
        return [graph for _, graph in self.graphs]

    def outputs_of(self, returned: frozenset[str] | None) -> tuple[SambaTensor, ...]:
        """Return the traced outputs: of the graph that has those `returned`, if that is given."""
        if returned is None:
            return self.outputs
        found = (graph.traced.outputs for graph in self.traced_graphs())
        return next(each for each in found if returned <= {output.sn_name for output in each})

    def with_values(self) -> list[tuple[str, Tensor]]:
        """Return the traced tensors that have values, by name."""
        return [(name, tensor) for name, tensor in self.tensors.items() if tensor.has_data]

    @property
    def optimizer_states(self) -> TensorTable:
        """The state of the optimizers, by name, in the memory that it has."""
        states = (optimizer_states(model, listed(given)) for model, given in self.stepped)
        return TensorTable({n: SambaTensor(t, name=n) for found in states for n, t in found})


def parameters_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of `model` with their names on the device."""
    return _named(model, model.named_parameters())


def buffers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of `model` with their names on the device."""
    return _named(model, model.named_buffers())


def optimizer_states(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the state of optimizers by name: `<parameter>__<torch's key>`, `<group>__step`.

    What counts steps comes once for each parameter.
    """
    return named_states(optimizers, parameter_names(model))


def parameter_names(model: nn.Module) -> dict[int, str]:
    """Return the names on the device of the parameters of `model`, by their ids."""
    return {id(parameter): name for name, parameter in parameters_of(model)}


def _named(model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    name = model_name(model)
    return ((samba_name(name, path), tensor) for path, tensor in tensors)
