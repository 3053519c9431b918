"""Whole numbers in regions that graphs share: outputs get the type that inputs read there.

PyTorch makes int64 of int32 and a Python number; a graph that reads the region expects int32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from sambac.frontend import Source
from sambac.graph.names import value_names

_WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def settle_types(sources: Sequence[Source], regions: Mapping[tuple[int, str], str]) -> None:
    """Convert outputs in regions whose inputs have all one other type of whole numbers, in place.

    `regions` are those of inputs and outputs, by the number of their source and their name.
    """
    types: dict[str, set[ir.DataType | None]] = {}
    for number, source in enumerate(sources):
        inputs = zip(source.signature.inputs, source.model.graph.inputs, strict=False)
        for region, value in _placed(number, inputs, regions):
            types.setdefault(region, set()).add(value.dtype)
    for number, source in enumerate(sources):
        models = (source.model, source.evaluation)
        for model in (model for model in models if model is not None):
            outputs = [*zip(source.signature.outputs, model.graph.outputs, strict=False)]
            for region, value in _placed(number, outputs, regions):
                wanted = types.get(region, set())
                if len(wanted) == 1 and {value.dtype, *wanted} == _WHOLE:
                    _convert(model, value, next(iter(wanted)))


def _placed(
    number: int,
    ports: Iterable[tuple[str, ir.Value]],
    regions: Mapping[tuple[int, str], str],
) -> Iterator[tuple[str, ir.Value]]:
    """Yield the values of inputs, or outputs, that are in regions, with these."""
    for name, value in ports:
        region = regions.get((number, name))
        if region is not None:
            yield region, value


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
