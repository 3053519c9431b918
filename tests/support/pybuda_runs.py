"""Modules that tests of `pybuda` place, and what they must give."""

from __future__ import annotations

import copy
import threading

import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

import pybuda

ONE = torch.ones(1, 2)


def tanh(size: int) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["y"])],
        "tanh",
        [info("x", TensorProto.FLOAT, [1, size])],
        [info("y", TensorProto.FLOAT, [1, size])],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def evaluated(module: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """What a copy gives: a device may compile the module in a thread of its own meanwhile."""
    with torch.no_grad():
        found: torch.Tensor = copy.deepcopy(module).eval()(*inputs)
    return found


def near(found: object, expected: list[torch.Tensor]) -> None:
    assert isinstance(found, list)
    assert len(found) == len(expected)
    for tensor, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(tensor.value(), wanted, rtol=1e-5, atol=1e-5)


def at_work(device: str) -> bool:
    """Whether the thread of a device is there; others begin threads, too, as exports may."""
    return any(thread.name == device for thread in threading.enumerate())


def later(module: nn.Module, name: str) -> pybuda.PyTorchModule:
    return pybuda.PyTorchModule(name, module)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor
