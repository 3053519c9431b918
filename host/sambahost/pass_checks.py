"""Whether passes of the compiler keep numbers: graphs are run after each, and compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from pef import dtypes

from .arrays import from_array, to_array, torch_type
from .golden import Drawn, GoldenRule

if TYPE_CHECKING:
    import onnx_ir as ir
    import onnxruntime as ort

_LARGEST = 2
"""What whole numbers are below that are drawn: they may be indices, or classes."""


@contextmanager
def passes_checked(rule: GoldenRule | None, what: str) -> Iterator[None]:
    """Let what is compiled meanwhile be checked: each pass gives what the one before gave, by rule.

    Without a rule nothing is. `what` is for messages. Inputs, and parameters that are some, are
    drawn. Graphs that onnxruntime does not run, before operators are those that it has or with
    steps of the host among them, are left out. Raises `AssertionError`.
    """
    if rule is None:
        yield
        return
    from sambac.passes.runner import watched_by  # loads the compiler

    with watched_by(PassChecks(rule, what)):
        yield


class PassChecks:
    """Called after each pass with its name and the graph: raises `AssertionError` for others."""

    def __init__(self, rule: GoldenRule, what: str) -> None:
        self._rule = rule
        self._what = what
        self._model: tuple[ir.Model, list[str]] | None = None
        self._before: dict[str, torch.Tensor] = {}
        self._drawn: dict[tuple[object, ...], np.ndarray] = {}

    def __call__(self, name: str, model: ir.Model, _seconds: float) -> None:
        """Run the graph, and compare the outputs that it had before the pass, too."""
        inputs = [str(value.name) for value in model.graph.inputs]
        if self._model is None or self._model[0] is not model or self._model[1] != inputs:
            self._before = {}  # another graph: between passes parameters become inputs
        self._model = (model, inputs)
        found = self._outputs(model)
        for output, tensor in found.items():
            if output in self._before:
                what = f"{self._what}: after the pass {name}, '{output}'"
                self._rule.require(what, self._before[output], tensor)
        self._before = found or self._before

    def _outputs(self, model: ir.Model) -> dict[str, torch.Tensor]:
        """Return what the graph gives by name, nothing where onnxruntime does not run it."""
        # Imported here: the compiler, which has passes to check, has loaded both.
        import onnx_ir as ir

        from sambac.kernels.probe import RefusedError, open_session

        try:
            session = open_session(ir.to_proto(model).SerializeToString())
        except RefusedError:
            return {}
        ports = [(port, dtypes.parse(port.type)) for port in session.get_outputs()]
        found = session.run(None, {port.name: self._input(port) for port in session.get_inputs()})
        return {
            port.name: from_array(array, number)
            for (port, number), array in zip(ports, found, strict=True)
            if number is not None
        }

    def _input(self, port: ort.NodeArg) -> np.ndarray:
        """Return numbers for an input, the same for all graphs that have one like it."""
        number = dtypes.parse(port.type)
        assert number is not None
        key = (port.name, number, *port.shape)
        if key not in self._drawn:
            shape = [size if isinstance(size, int) else 1 for size in port.shape]
            with torch.random.fork_rng(devices=()):
                torch.manual_seed(len(self._drawn))
                kind = torch_type(number)
                numbers = Drawn(uniform=False, centered=False).numbers(shape)
                drawn = numbers if kind.is_floating_point else torch.randint(_LARGEST, shape)
            self._drawn[key] = to_array(drawn.to(kind))
        return self._drawn[key]
