"""ONNX models as parts of devices: their initializers as tensors, which devices train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from pef.dtypes import numpy_dtype

from .arrays import from_array, to_array
from .errors import HostError

if TYPE_CHECKING:
    import onnx


class OnnxPart:
    """An ONNX model whose weights are known as tensors, by the names of its initializers.

    `keeps` are the names of nodes whose results come behind the outputs. One that is made of a
    `source`, or is a piece of it, has tensors of that.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        keeps: tuple[str, ...] = (),
        source: OnnxPart | None = None,
    ) -> None:
        self.model = model
        self.keeps = keeps
        self._source = source

    def keeping(self, names: Sequence[str]) -> OnnxPart:
        """Return one that gives, behind the outputs, the results of the nodes with these names."""
        import onnx  # here: whoever has such a model has imported it

        nodes = {node.name: node.output[0] for node in self.model.graph.node if node.output}
        wanted = {name: nodes[name] for name in names if name in nodes}
        if not wanted:
            return self
        model, inferred = onnx.ModelProto(), onnx.shape_inference.infer_shapes(self.model).graph
        model.CopyFrom(self.model)
        known = {info.name: info for info in (*inferred.value_info, *inferred.output)}
        for number, result in enumerate(wanted.values()):
            info = onnx.ValueInfoProto()
            info.CopyFrom(known.get(result, info))
            info.name = f"{result}__kept_{number}"
            model.graph.node.append(onnx.helper.make_node("Identity", [result], [info.name]))
            model.graph.output.append(info)
        return OnnxPart(model, tuple(wanted), self)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of what the model takes, in order."""
        weights = {item.name for item in self.model.graph.initializer}
        return tuple(port.name for port in self.model.graph.input if port.name not in weights)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what the model gives, in order."""
        return tuple(port.name for port in self.model.graph.output)

    def ports(self, names: Sequence[str], count: int) -> tuple[str, ...]:
        """Return the inputs in the order of `names`, or in their own where there are none.

        Raises `HostError` unless there are `count`, and for names that are others.
        """
        own = self.inputs
        if names and sorted(names) != sorted(own):
            came = ", ".join(names)
            raise HostError(f"inputs called {came} came; the model has {', '.join(own)}")
        if len(own) != count:
            raise HostError(f"{count} inputs came; the model has {len(own)}: {', '.join(own)}")
        return tuple(names) or own

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield what trains, by name: the same tensors each time."""
        yield from self._tensors[0].items()

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the statistics of normalisations, by name: the same tensors each time."""
        yield from self._tensors[1].items()

    def valued(self, values: Mapping[int, torch.Tensor]) -> onnx.ModelProto:
        """Return the model, with other values for the tensors whose ids are in `values`."""
        if not values:
            return self.model
        named = (*self.named_parameters(), *self.named_buffers())
        changed = {name: values[id(tensor)] for name, tensor in named if id(tensor) in values}
        if not changed:
            return self.model
        from onnx import numpy_helper  # here: whoever has such a model has imported it

        from sambac.training.parameters import untied  # loads the compiler

        model = untied(self.model)
        for item in model.graph.initializer:
            if item.name in changed:
                item.CopyFrom(numpy_helper.from_array(to_array(changed[item.name]), item.name))
        return model

    @cached_property
    def _tensors(self) -> tuple[dict[str, torch.nn.Parameter], dict[str, torch.Tensor]]:
        from sambac.training.parameters import weights_of  # loads the compiler

        found = weights_of(self.model)
        if self._source is not None:
            known = self._source._tensors
            parameters = {name: known[0][name] for name in found.parameters}
            return parameters, {name: known[1][name] for name in found.buffers}
        parameters = {
            name: torch.nn.Parameter(_tensor(array)) for name, array in found.parameters.items()
        }
        return parameters, {name: _tensor(array) for name, array in found.buffers.items()}


def _tensor(array: np.ndarray) -> torch.Tensor:
    from onnx import helper  # here: whoever has such a model has imported it

    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    return from_array(array.astype(numpy_dtype(number)), number)  # a copy: what came stays
