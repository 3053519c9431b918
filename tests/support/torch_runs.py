"""Running what the PyTorch frontend makes of a module, beside the module itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import nn

from sambac.frontend import Source, load
from sambac.graph.nodes import is_stop
from sambac.options import CompileOptions

Arrays = Mapping[str, np.ndarray]

TRAIN = CompileOptions(train=True)


class Lambda(nn.Module):
    """A module whose forward is `function`; it has one parameter, which nobody reads."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function
        self.parameter = nn.Parameter(torch.ones(1))

    def forward(self, *args: object) -> object:
        return self.function(*args)  # type: ignore[operator]


def training_source(module: nn.Module, *inputs: object) -> Source:
    """Load `module` to train it."""
    return load(module, TRAIN, inputs)


def run(model: ir.Model, feeds: Arrays, states: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """Return the outputs of `model` from onnxruntime.

    `states` become inputs, as they are in training. `feeds` may hold more than the inputs.
    """
    model = model.clone()
    content = dict(feeds)
    for name in states:
        value = model.graph.initializers.pop(name)
        assert value.const_value is not None
        content.setdefault(name, value.const_value.numpy().copy())
        value.const_value = None
        model.graph.inputs.append(value)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    names = [port.name for port in session.get_outputs()]
    inputs = {port.name: content[port.name] for port in session.get_inputs()}
    return dict(zip(names, session.run(names, inputs), strict=True))


def run_training(source: Source, *inputs: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the outputs of the graph that trains: public ones and next buffers."""
    assert source.roles is not None
    states = (*source.roles.parameters, *source.roles.buffers)
    return run(source.model, _feeds(source, inputs), states)


def run_evaluation(source: Source, *inputs: torch.Tensor) -> dict[str, np.ndarray]:
    """Return the outputs of the graph that evaluates; without one the other does both."""
    assert source.roles is not None
    states = (*source.roles.parameters, *source.roles.buffers)
    return run(source.evaluation or source.model, _feeds(source, inputs), states)


def _feeds(source: Source, inputs: tuple[torch.Tensor, ...]) -> Arrays:
    names = source.signature.inputs
    return {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}


def stops(model: ir.Model) -> list[ir.Node]:
    """Return the nodes of `model` through which no gradient flows."""
    return [node for node in model.graph if is_stop(node)]


def operators(model: ir.Model) -> list[str]:
    """Return the types of the operators of `model`, in order."""
    return [node.op_type for node in model.graph]


def gradient_reaches(model: ir.Model, output: str, name: str) -> bool:
    """Tell whether a gradient of `output` can flow to the value `name` of `model`."""
    todo = [value for value in model.graph.outputs if value.name == output]
    seen: set[ir.Value] = set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.name == name:
            return True
        node = value.producer()
        if node is not None and not is_stop(node):
            todo += [item for item in node.inputs if item is not None]
    return False
