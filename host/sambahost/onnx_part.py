"""ONNX models as parts of devices: their initializers as tensors, which devices train."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, eq, is_
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from zlib import crc32

import numpy as np
import torch

from pef.dtypes import numpy_dtype

from .arrays import from_array, to_array
from .errors import HostError
from .models import MarkedSource

if TYPE_CHECKING:
    import onnx

_SMALL = 64
"""Elements of weights that are looked at each time."""
_Tensors: TypeAlias = tuple[dict[str, torch.nn.Parameter], dict[str, torch.Tensor]]

_AnyTensor = TypeVar("_AnyTensor", bound=torch.Tensor)


class _Look:
    """The operators, ports and weights of a graph, held so that they are soon looked at again."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._parts = [*_parts(graph)]
        self._large = [item for item in graph.initializer if math.prod(item.dims) > _SMALL]
        self._sizes = [[*item.dims] for item in self._large]
        self._spelled = str(self._sizes)
        large = {*map(id, self._large)}
        self._said = [part.SerializeToString for part in self._parts if id(part) not in large]

    def is_of(self, graph: onnx.GraphProto) -> bool:
        """Return whether a graph is made of these still, and large weights are as large."""
        now = [*_parts(graph)]
        return (
            len(now) == len(self._parts)
            and all(map(is_, now, self._parts))
            # Whoever copies another weight there leaves the old dimensions to those who hold them.
            and all(map(eq, map(_DIMS, self._large), self._sizes))
        )

    def mark(self) -> int:
        """Return what is another number after a change, but for the values of large weights."""
        said = b"".join([says() for says in self._said])
        large = f"{self._spelled}{[*map(_NAME_AND_TYPE, self._large)]}"
        return crc32(large.encode(), crc32(said))


_DIMS = attrgetter("dims")
_NAME_AND_TYPE = attrgetter("name", "data_type")


def _parts(
    graph: onnx.GraphProto,
) -> Iterable[onnx.NodeProto | onnx.ValueInfoProto | onnx.TensorProto]:
    return chain(graph.input, graph.output, graph.node, graph.initializer)


class OnnxPart(MarkedSource):
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
        self._known: tuple[object, _Tensors] | None = None
        self._look: _Look | None = None

    def mark(self) -> int:
        """Return what is another number after operators, ports or small weights have changed.

        Values of large weights are not looked at, which would take as long as to read the model
        anew: whoever asks for one is given a copy. The look takes some 0.3 us for each operator.
        """
        if self._look is None or not self._look.is_of(self.model.graph):
            self._look = _Look(self.model.graph)
        return self._look.mark()

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

    @property
    def _tensors(self) -> _Tensors:
        mark = self.mark()
        if self._known is None or self._known[0] != mark:
            self._known = mark, self._read()
        return self._known[1]

    def _read(self) -> _Tensors:
        from sambac.training.parameters import weights_of  # loads the compiler

        found = weights_of(self.model)
        if self._source is not None:
            known = self._source._tensors
            parameters = {name: known[0][name] for name in found.parameters}
            return parameters, {name: known[1][name] for name in found.buffers}
        parameters, buffers = ({}, {}) if self._known is None else self._known[1]
        own = _kept(parameters, found.parameters, torch.nn.Parameter)
        return own, _kept(buffers, found.buffers, lambda tensor: tensor)


def _kept(
    known: Mapping[str, _AnyTensor],
    arrays: Mapping[str, np.ndarray],
    make: Callable[[torch.Tensor], _AnyTensor],
) -> dict[str, _AnyTensor]:
    """Return tensors by name: those `known` that have the values of `arrays` still, or new ones.

    What was trained is known by them.
    """
    found = {}
    for name, array in arrays.items():
        tensor, old = _tensor(array), known.get(name)
        same = old is not None and old.dtype is tensor.dtype and torch.equal(old, tensor)
        found[name] = old if old is not None and same else make(tensor)
    return found


def _tensor(array: np.ndarray) -> torch.Tensor:
    from onnx import helper  # here: whoever has such a model has imported it

    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    return from_array(array.astype(numpy_dtype(number)), number)  # a copy: what came stays


@contextmanager
def of_one_sample(part: object) -> Iterator[None]:
    """Say in the block why an ONNX model of a fixed batch does not fit a sample."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(part, OnnxPart) or "has shape" not in str(error):
            raise
        raise type(error)(
            f"{error} A TTDevice computes one sample at a time: export the model for a batch of "
            "1, or of any size."
        ) from error
