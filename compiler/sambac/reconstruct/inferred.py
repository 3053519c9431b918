"""What a PEF does not hold of its section programs, found as the compiler found it.

Types and sizes of the values inside follow from those of the ports, and what operators keep on chip
follows from sizes. Both are asked of the compiler's own functions, on the stored graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from pef.errors import PefError
from pef.foreign import reading, why
from pef.program import Program, Shape, Symbol
from sambac.graph.value_types import parse as parse_type
from sambac.ops import held_whole
from sambac.passes.infer_shapes import ask_runtime, infer
from sambac.planning.from_model import value_facts
from sambac.planning.view import ValueFacts, ValueRole

from .programs import parse


@dataclass(frozen=True)
class InferredGraph:
    """Values that a section program makes, by formal name, and for each node what it holds."""

    values: Mapping[str, ValueFacts]
    holds: Sequence[tuple[str, ...]]


class Inference:
    """Infers programs of one file, each once for all sections that bind it to equal weights."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[tuple[int, tuple[tuple[str, Shape], ...]], InferredGraph] = {}

    def graph(self, number: int, weights: Sequence[int]) -> InferredGraph:
        """Return what is inferred of program `number`, which reads these symbols as weights.

        Raises `PefError` for a program of which nothing can be inferred.
        """
        symbols = [self._program.symbols[index] for index in weights]
        key = number, tuple((symbol.type, symbol.shape) for symbol in symbols)
        if key not in self._known:

            def refuse(error: Exception) -> PefError:
                return PefError(f"nothing can be inferred of program {number}: {why(error)}")

            with reading(refuse):
                self._known[key] = self._infer(number, symbols)
        return self._known[key]

    def _infer(self, number: int, weights: Sequence[Symbol]) -> InferredGraph:
        stored = self._program.programs[number]
        proto = parse(self._program.segments[stored.graph.segment].content(stored.graph))
        if proto is None:
            raise PefError("it is no ONNX model")
        for name in stored.weights:
            proto.graph.input.add(name=name)
        model = ir.serde.deserialize_model(proto)
        given = {value.name: value for value in model.graph.inputs}
        for name, symbol in zip(stored.weights, weights, strict=True):
            given[name].type = parse_type(symbol.type)
            given[name].shape = None if symbol.shape is None else ir.Shape(symbol.shape)
        infer(model)
        made = [value for node in model.graph for value in node.outputs if value.name]
        if open_ones := [value for value in made if not _is_static(value)]:
            ask_runtime(model, open_ones)
        return InferredGraph(
            {
                str(value.name): value_facts(value, str(value.name), ValueRole.ACTIVATION)
                for value in made
            },
            [tuple(str(value.name) for value in held_whole(node)) for node in model.graph],
        )


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()
