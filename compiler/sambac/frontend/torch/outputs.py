"""The outputs of an exported graph get their public names, each a value of its own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype

from sambac.graph.names import FreshNames, make_way, value_names

from .names import result_names
from .updates import Results


def name_outputs(model: ir.Model, results: Results) -> Mapping[str, str]:
    """Name the outputs of `model` in place; return the names of the buffers' next values.

    A result that is an input, or the same as another one, passes through an Identity. A result
    that is a Python number becomes an output too. Each has the element type that it has in PyTorch:
    the exporter leaves float32 where a reduction of 16-bit numbers is a result.
    """
    graph = model.graph
    values = [
        _typed(graph, value, dtype)
        for value, dtype in zip(tuple(graph.outputs), results.dtypes, strict=True)
    ]
    names = result_names(results.structure)
    public = dict(zip(results.leaves, values[: len(results.leaves)], strict=True))
    for position, number in results.numbers.items():
        public[position] = _constant(model, number)
    wanted = [(names[position], public[position]) for position in sorted(public)]
    written = zip(results.buffers, values[len(results.leaves) :], strict=True)
    wanted += [(f"{buffer}__next", value) for buffer, value in written]

    fresh = FreshNames(str(value.name) for value in (*graph.inputs, *graph.initializers.values()))
    final = [fresh(name) for name, _ in wanted]
    graph.outputs.clear()
    make_way(model, final)
    for name, (_, value) in zip(final, wanted, strict=True):
        own = value if _is_own(graph, value) else _copy(graph, value)
        own.name = name
        graph.outputs.append(own)
    return dict(zip(results.buffers, final[len(public) :], strict=True))


def _constant(model: ir.Model, number: float) -> ir.Value:
    array = np.asarray(number)
    array = array.astype(np.float32) if array.dtype == np.float64 else array
    value = ir.val(value_names(model)("number"), const_value=ir.Tensor(array))
    model.graph.register_initializer(value)
    return value


def _typed(graph: ir.Graph, value: ir.Value, wanted: torch.dtype | None) -> ir.Value:
    """Return `value` as a tensor of the type `wanted`; what has no known type is left as it is."""
    dtype = None if wanted is None else from_torch_dtype(wanted)
    if dtype is None or value.dtype is None or value.dtype == dtype:
        return value
    result = ir.val("", dtype, value.shape)
    graph.append(ir.node("Cast", [value], {"to": int(dtype)}, outputs=[result]))
    return result


def _is_own(graph: ir.Graph, value: ir.Value) -> bool:
    return value.producer() is not None and value not in graph.outputs


def _copy(graph: ir.Graph, value: ir.Value) -> ir.Value:
    copy = ir.val("", value.dtype, value.shape)
    graph.append(ir.node("Identity", [value], outputs=[copy]))
    return copy
