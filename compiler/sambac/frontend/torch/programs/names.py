"""Names of values: what the caller knows, and what the exporter must not take.

Public are what `forward` calls its arguments, and the keys of what it returns: each output gets its
own, as a value of its own. The exporter gives some names to two values, or takes them from one;
while it runs, here, it does not.

What a translation has nothing to do for is its input, and is then called by the name of the result:
`x.t()` of a vector, `x.repeat(())`. Rules of the optimizer call constants after what they are for,
so that the second clamp of a tensor takes the limits of the first away.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from onnxscript.rewriter import RewriterContext
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, TensorArgument
from torch.onnx._internal.exporter import _core
from torch.utils import _pytree as pytree

from sambac.frontend.torch.patching import replaced
from sambac.graph.names import FreshNames, make_way, value_names

from .writes import Results

_RESULT = "output"
"""The name of the only result, and how those of a tuple begin."""


def result_names(structure: pytree.TreeSpec) -> tuple[str, ...]:
    """Return a name for each leaf of what a module returns.

    The keys of a dict, the fields of a dataclass or of a named tuple are names; elements of tuples
    and lists are numbered: `logits`, `past_0_1`; `output_0` in a tuple; `output` alone.
    """
    return tuple(
        "_".join(path) if path and not path[0].isdigit() else "_".join((_RESULT, *path))
        for path in _paths(structure)
    )


def _paths(structure: pytree.TreeSpec) -> Iterator[tuple[str, ...]]:
    if structure.is_leaf():
        yield ()
        return
    for label, child in zip(_labels(structure), structure.children(), strict=True):
        for path in _paths(child):
            yield (label, *path)


def _labels(structure: pytree.TreeSpec) -> Sequence[str]:
    """Return what the children of a node are called; the contexts are those of torch's pytrees."""
    context, count = structure.context, structure.num_children
    if hasattr(context, "_fields"):
        return tuple(context._fields)
    return field_names(context, count) or tuple(str(index) for index in range(count))


def field_names(context: object, count: int) -> tuple[str, ...] | None:
    """Return what the `count` parts of a node are called, of which `context` is what pytrees keep.

    Mappings keep their keys, registered dataclasses a pair of the fields with and without value.
    None where parts have no names.
    """
    first = context[0] if isinstance(context, (list, tuple)) and context else None
    for names in (context, first):
        if isinstance(names, (list, tuple)) and [type(name) for name in names] == [str] * count:
            return tuple(names)
    return None


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


_Values = dict[str, ir.Value | Sequence[ir.Value]]

_KEPT = frozenset({"placeholder", "get_attr"})
"""Where values come from whose names say what they are: inputs, parameters, constants."""


@contextmanager
def kept_names() -> Iterator[None]:
    """Let what goes into translations keep its name, whatever comes out."""
    translate = _core._handle_call_function_node_with_lowering

    def translated(model: ir.Model, node: fx.Node, values: _Values, **others: Any) -> None:
        translate(model, node, values, **others)
        for source in node.all_input_nodes:
            if source.op in _KEPT and isinstance(value := values.get(source.name), ir.Value):
                value.name = source.name

    with replaced(_core, translate.__name__, translated):
        yield


@contextmanager
def new_names(model: ir.Model) -> Iterator[None]:
    """Let what rules of the optimizer add to `model` have names of its own."""
    fresh, add = value_names(model), RewriterContext.initializer

    def added(
        context: RewriterContext, tensor: ir.TensorProtocol, name: str | None = None
    ) -> ir.Value:
        return add(context, tensor, fresh(name or str(tensor.name)))

    with replaced(RewriterContext, "initializer", added):
        yield


def renamed(signature: ExportGraphSignature, graph: fx.Graph) -> ExportGraphSignature:
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


def copied_graph(program: ExportedProgram) -> fx.GraphModule:
    """Return a copy of the graph of `program`, whose inputs keep their names whatever these are."""
    result: fx.GraphModule = copy.deepcopy(program.graph_module)
    inputs = (graph.find_nodes(op="placeholder") for graph in (program.graph, result.graph))
    for old, new in zip(*inputs, strict=True):
        new.name = new.target = old.name
    return result
