"""Whole numbers in regions that graphs share: outputs get the type that inputs read there.

PyTorch makes int64 of int32 and a Python number; a graph that reads the region expects int32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from .frontend import Source
from .graph.names import value_names

_WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def settle_types(
    names: Sequence[str], sources: Sequence[Source], shared: Mapping[str, str]
) -> None:
    """Convert outputs in regions whose inputs have all one other type of whole numbers, in place.

    `names` are those of the graphs, `shared` maps inputs and outputs to regions.
    """
    types: dict[str, set[ir.DataType | None]] = {}
    for region, value in _ports(names, sources, shared, outputs=False):
        types.setdefault(region, set()).add(value.dtype)
    for number, source in enumerate(sources):
        models = (source.model, source.evaluation)
        for model in (model for model in models if model is not None):
            one = ([names[number]], [source])
            for region, value in [*_ports(*one, shared, outputs=True, model=model)]:
                wanted = types.get(region, set())
                if len(wanted) == 1 and {value.dtype, *wanted} == _WHOLE:
                    _convert(model, value, next(iter(wanted)))


def _ports(
    names: Iterable[str],
    sources: Iterable[Source],
    shared: Mapping[str, str],
    *,
    outputs: bool,
    model: ir.Model | None = None,
) -> Iterator[tuple[str, ir.Value]]:
    """Yield the values of inputs, or outputs, that are in regions, with these."""
    for name, source in zip(names, sources, strict=True):
        graph = (model or source.model).graph
        public = source.signature.outputs if outputs else source.signature.inputs
        for port, value in zip(public, graph.outputs if outputs else graph.inputs, strict=False):
            spelled = next((s for s in (f"{name}.{port}", port) if s in shared), None)
            if spelled is not None:
                yield shared[spelled], value


def _convert(model: ir.Model, value: ir.Value, wanted: ir.DataType | None) -> None:
    """Let `model` put out `value` as `wanted`, under its name."""
    assert wanted is not None
    graph, name = model.graph, str(value.name)
    result = ir.val("", wanted, value.shape)
    places = [place for place, output in enumerate(graph.outputs) if output is value]
    value.name = value_names(model)(f"{name}_{value.dtype}".lower())
    result.name = name
    graph.append(ir.node("Cast", [value], {"to": int(wanted)}, outputs=[result]))
    for place in places:
        graph.outputs[place] = result
