"""A name that may mean two tensors is refused wherever names are given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import commands
import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from pef import PefError
from sambac import CompileError, CompileOptions, GraphSource
from sambac.explain import explain
from sambac.reconstruct.verify import check_plans


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
    regions = regions_of(program)
    assert (regions["weight"], regions["layer.weight"]) == ("HBM", "DDR")


def regions_of(program: pef.Program) -> dict[str, str]:
    return {
        symbol.name: program.allocations[symbol.allocation].region.name
        for symbol in program.symbols
        if symbol.allocation is not None
    }


SAME_NAME = [
    GraphSource("first", product("weight")),
    GraphSource("second", product("weight", scale=2.0)),
]


@pytest.mark.parametrize(
    ("name", "moved"), [("first.weight", "weight"), ("second.weight", "second.weight")]
)
@pytest.mark.parametrize("beside", [1, 2])
def test_the_name_of_a_graph_may_stand_in_front(name: str, moved: str, beside: int) -> None:
    """Of the first graph, whose weights have none in their own names, and of a graph alone."""
    if beside == 1 and name.startswith("second"):
        moved = "weight"
    sources = SAME_NAME if beside == 2 else [s for s in SAME_NAME if name.startswith(s.name)]
    program = sambac.compile_graphs(sources, CompileOptions(memory={name: "DDR"}))
    found = regions_of(program)
    assert [symbol for symbol, region in found.items() if region == "DDR"] == [moved]
    assert check_plans(program) == []
    with sambarun.load(program) as executable:
        content = executable.read(name)[name]
    np.testing.assert_array_equal(content, np.full((3, 3), 2 if "second" in name else 1, "f"))


def renamed(**names: str) -> onnx.ModelProto:
    """Return `product`, whose tensors have other names."""
    model = product("weight")
    (node,), graph = model.graph.node, model.graph
    for of in (node.input, node.output):
        of[:] = [names.get(name, name) for name in of]
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    return model


@pytest.mark.parametrize("turned", [False, True])
def test_a_name_may_not_be_taken_apart_in_two_ways(turned: bool) -> None:
    """`a.b.x` is `b.x` of one graph, and `x` of the other."""
    found = [GraphSource("a", renamed(x="b.x")), GraphSource("a.b", product("weight"))]
    sources = found[::-1] if turned else found
    words = r"'a.b.x' may be '(b\.)?x' of graph 'a(\.b)?', or '(b\.)?x' of graph 'a(\.b)?'"
    for options in (
        {"options": CompileOptions(memory={"a.b.x": "DDR"})},
        {"shared": {"a.b.x": "r"}},
    ):
        with pytest.raises(CompileError, match=words):
            sambac.compile_graphs(sources, **options)  # type: ignore[arg-type]
    program = sambac.compile_graphs(sources)
    with pytest.raises(PefError, match=words):
        explain(program, "a.b.x")
    with sambarun.load(program) as executable, pytest.raises(sambarun.RunError, match=words):
        executable.write({"a.b.x": np.ones((3, 3), "f")})


def test_what_is_inside_of_several_graphs_is_named_by_its_graph() -> None:
    with pytest.raises(CompileError, match=r"'weight' is a tensor of several graphs \('second.w"):
        sambac.compile_graphs(SAME_NAME, CompileOptions(memory={"weight": "DDR"}))


@pytest.mark.parametrize("name", ["first.weight__grad", "first.weight__momentum_buffer"])
def test_so_it_is_for_what_belongs_to_a_weight(name: str) -> None:
    sources = [GraphSource(n, torch.nn.Linear(4, 3), (torch.ones(2, 4),)) for n in ("first", "b")]
    options = CompileOptions(
        train=True,
        loss=("mse:output,target",),
        optimizers=(sambac.SGD(momentum=0.9),),
        memory={name: "DDR"},
    )
    program = sambac.compile_graphs(sources, options)
    moved = [symbol for symbol, region in regions_of(program).items() if region == "DDR"]
    assert moved == [name.removeprefix("first.")]


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("weight", "weight"),
        ("net.layer.weight", "layer.weight"),
        ("symbol:layer.weight", "layer.weight"),
        ("layer.y", "y"),
    ],
)
def test_explanations_know_the_same_names(name: str, meant: str) -> None:
    (found,) = explain(sambac.compile_graphs(WEIGHTS), name)
    assert (found.kind, found.name) == ("symbol", meant)


def test_explanations_refuse_it() -> None:
    program = sambac.compile_graphs(WEIGHTS)
    with pytest.raises(PefError, match=r"'layer.weight' may be .* ask for symbol: and a name"):
        explain(program, "layer.weight")


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


def products(scale: float, *weights: str) -> onnx.ModelProto:
    """Return y = x @ weight, or tanh(x @ weight) @ weight of two weights."""
    model = product(weights[0], scale=scale)
    for weight in weights[1:]:
        content = numpy_helper.from_array(scale * np.eye(3, dtype="f"), weight)
        model.graph.initializer.append(content)
        model.graph.node[-1].output[0] = "before"
        model.graph.node.append(helper.make_node("Tanh", ["before"], ["between"]))
        model.graph.node.append(helper.make_node("MatMul", ["between", weight], ["y"]))
    return model


@pytest.mark.parametrize("first", [("weight", "layer.weight"), ("weight",)])
@pytest.mark.parametrize("second", [("weight", "layer.weight"), ("weight",)])
def test_a_weight_is_not_read_in_place_of_another(
    first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """`weight` of the second graph would be `layer.weight`, if nothing else were called so."""
    sources = [GraphSource("net", products(1, *first)), GraphSource("layer", products(2, *second))]
    if len(first) == len(second) == 1:
        assert sambac.compile_graphs(sources)
        return
    with pytest.raises(CompileError, match=r"'layer.weight' would be 'weight' of graph 'layer'"):
        sambac.compile_graphs(sources)


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


BOTH = [
    GraphSource("layer", product("weight", given=True)),
    GraphSource("net", product("layer.weight", given=True)),
]


@pytest.mark.parametrize("turned", [False, True])
def test_a_tensor_is_given_under_one_name(turned: bool) -> None:
    """The input `x` of the second graph is the symbol `net.x`, by which it can be given too."""
    ones = np.ones((3, 3), "f")
    given = {"x": ones, "net.x": 2 * ones, "layer.weight": ones}
    with sambarun.load(sambac.compile_graphs(BOTH)) as executable:
        for name in ("x", "net.x"):
            found = executable.run({name: ones, "layer.weight": ones}, graph="net")["y"]
            np.testing.assert_array_equal(found, 3 * ones)
        words = dict(reversed(given.items())) if turned else given
        with pytest.raises(sambarun.RunError, match=r"'(net\.)?x' and '(net\.)?x' are one tensor"):
            executable.run(words, graph="net")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PEFs of the graphs above."""
    folder = tmp_path_factory.mktemp("several")
    sambac.compile_graphs(BOTH).save(folder / "both.pef")
    sambac.compile_graphs(BOTH, shared={"x": "region"}).save(folder / "shared.pef")
    sambac.compile_graphs(WEIGHTS).save(folder / "weights.pef")
    return folder


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--graph layer --input x=ones --input weight=ones", 0, "3x3"),
        ("--graph net --input x=ones --input layer.weight=ones", 0, "3x3"),
        ("--graph net --input net.x=ones --input layer.weight=ones", 0, "3x3"),
        ("--graph net --input net.x=ones --input *=ones", 0, "3x3"),
        ("--graph net --input x=ones --input net.x=ones --input *=ones", 2, "are one tensor"),
        ("--graph layer --input x=ones --input layer.weight=ones", 2, "Input 'weight'"),
        ("--graph net --input x=ones --input weight=ones", 2, "Input 'layer.weight'"),
        ("--graph net --input *=ones --input net.y=ones", 2, "'net.y' cannot be given"),
    ],
)
def test_the_command_knows_which_tensor_is_meant(
    several: Path, words: str, code: int, said: str
) -> None:
    command = [sys.executable, "-c", "from samba_cli.sambarun import main; main()"]
    done = subprocess.run(
        [*command, several / "both.pef", *words.split()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stderr


def test_commands_tell_tensors_and_their_memory_apart(several: Path, tmp_path: Path) -> None:
    report = json.loads(sambac_command("inspect", several / "weights.pef", "--json", cwd=tmp_path))
    names = {row["name"] for row in report["symbols"]}
    assert names >= {"weight", "layer.weight"}
    lines = sambac_command("diff", several / "both.pef", several / "shared.pef", cwd=tmp_path)
    assert '  x: allocation.name: "" -> "region"' in lines.splitlines()
    assert '  net.x: allocation.name: "" -> "region"' in lines.splitlines()
    for number, weight in enumerate(("weight", "layer.weight")):
        words = ("--section", number, "-o", "section.onnx")
        sambac_command("extract", several / "weights.pef", *words, cwd=tmp_path)
        model = onnx.load(tmp_path / "section.onnx")
        assert [tensor.name for tensor in model.graph.initializer] == [weight]


def sambac_command(*words: object, cwd: Path) -> str:
    done = commands.sambac(*words, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
