"""A name that may mean two tensors is refused wherever names are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions, GraphSource


def product(weight: str, *, given: bool = False, scale: float = 1.0) -> onnx.ModelProto:
    """Return y = x @ weight; the weight is an input if it is `given`."""
    values = helper.make_tensor_value_info
    shape = [3, 3]
    content = numpy_helper.from_array(np.full(shape, scale, "f"), weight)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", weight], ["y"], name="product")],
        "product",
        [values(n, onnx.TensorProto.FLOAT, shape) for n in ("x", *([weight] * given))],
        [values("y", onnx.TensorProto.FLOAT, shape)],
        [] if given else [content],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


WEIGHTS = [
    GraphSource("layer", product("weight")),
    GraphSource("net", product("layer.weight", scale=2.0)),
]
INPUT = [
    GraphSource("layer", product("weight", given=True)),
    GraphSource("net", product("layer.weight", scale=2.0)),
]


@pytest.mark.parametrize("sources", [WEIGHTS, INPUT], ids=["weights", "input"])
@pytest.mark.parametrize("option", ["memory", "shared"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_compiler_refuses_it(sources: list[GraphSource], option: str, turned: bool) -> None:
    found: dict[str, Any] = {"options": CompileOptions(memory={"layer.weight": "DDR"})}
    if option == "shared":
        found = {"shared": {"layer.weight": "region"}}
    with pytest.raises(CompileError, match=rf"{option}: 'layer.weight' may be .* graph 'layer'"):
        sambac.compile_graphs(sources[::-1] if turned else sources, **found)


def test_names_that_mean_one_thing_are_taken() -> None:
    """The same graphs, under names that leave no doubt."""
    options = CompileOptions(memory={"layer.weight": "DDR"})
    sources = [GraphSource("first", WEIGHTS[0].model), WEIGHTS[1]]
    program = sambac.compile_graphs(sources, options)
    regions = {
        symbol.name: program.allocations[symbol.allocation].region.name
        for symbol in program.symbols
        if symbol.allocation is not None
    }
    assert (regions["weight"], regions["layer.weight"]) == ("HBM", "DDR")


def test_the_runtime_refuses_it() -> None:
    program = sambac.compile_graphs(INPUT)
    with sambarun.load(program) as executable:
        for call in (
            lambda: executable.read("layer.weight"),
            lambda: executable.write({"layer.weight": np.ones((3, 3), "f")}),
            lambda: executable.input_buffer("layer.weight"),
        ):
            with pytest.raises(sambarun.RunError, match=r"'layer.weight' may be"):
                call()


@pytest.mark.parametrize("turned", [False, True])
def test_states_whose_full_names_collide(turned: bool) -> None:
    """Checkpoints know states by their full names: two of one name could not be told apart."""

    class Net(torch.nn.Module):
        def __init__(self, inner: bool) -> None:
            super().__init__()
            linear = torch.nn.Linear(2, 1, bias=False)
            if inner:
                self.layer = linear
            else:
                self.weight = linear.weight
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = self.layer.weight if self.inner else self.weight
            return torch.nn.functional.linear(x, weight).square().mean()

    options = CompileOptions(train=True)
    sources = [
        GraphSource("layer", Net(inner=False), (torch.ones(3, 2),), options),
        GraphSource("net", Net(inner=True), (torch.ones(3, 2),), options),
    ]
    with pytest.raises(CompileError, match=r"'layer.weight' would be 'weight' of graph 'layer'"):
        sambac.compile_graphs(sources[::-1] if turned else sources)


def test_full_names_of_one_tensor_are_no_collision() -> None:
    """A part of a module and the whole have one weight: `layer.weight` is the same by both."""
    net = torch.nn.Sequential()
    net.add_module("layer", torch.nn.Linear(2, 2, bias=False))
    inputs = (torch.ones(3, 2),)
    program = sambac.compile_graphs(
        [GraphSource("layer", net.layer, inputs), GraphSource("net", net, inputs)],
        CompileOptions(memory={"layer.weight": "DDR"}),
    )
    assert pef.check_program(program) == []
