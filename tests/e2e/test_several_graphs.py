"""Several models in one program: names, shared weights, and running a graph by its name."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions, GraphSource
from sambac.reconstruct.verify import check_plans

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((4, 5)).astype("f")
OTHER = RNG.standard_normal((5, 3)).astype("f")
X, H = RNG.standard_normal((2, 4)).astype("f"), RNG.standard_normal((2, 5)).astype("f")


def model(
    kind: str, weights: dict[str, np.ndarray], inputs: dict[str, list[int]]
) -> onnx.ModelProto:
    """Return y = kind(x @ w [@ v] [+ h]), with equal names inside of all models."""
    nodes, last = [], "x"
    for number, name in enumerate(weights):
        nodes.append(helper.make_node("MatMul", [last, name], [f"p{number}"], name=f"n{number}"))
        last = f"p{number}"
    if "h" in inputs:
        nodes.append(helper.make_node("Add", [last, "h"], ["sum"], name="add"))
        last = "sum"
    nodes.append(helper.make_node(kind, [last], ["y"], name="act"))
    size = next(reversed(weights.values())).shape[1]
    given, taken = (
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in infos.items()]
        for infos in (inputs, {"y": [2, size]})
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, kind, given, taken, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


ENCODE = model("Tanh", {"w": TABLE}, {"x": [2, 4]})
DECODE = model("Exp", {"w": TABLE, "v": OTHER}, {"x": [2, 4]})
MIX = model("Tanh", {"w": -TABLE}, {"x": [2, 4], "h": [2, 5]})
SOURCES = [GraphSource("encode", ENCODE), GraphSource("decode", DECODE), GraphSource("mix", MIX)]


def compiled(level: str = "O3", sources: list[GraphSource] | None = None) -> pef.Program:
    return sambac.compile_graphs(sources or SOURCES, CompileOptions(level=level))  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=["O0", "O3"])
def program(request: pytest.FixtureRequest) -> pef.Program:
    return compiled(request.param)


def test_each_graph_runs_by_its_name(program: pef.Program, tmp_path: Path) -> None:
    program.save(tmp_path / "m.pef")
    executable = sambarun.load(tmp_path / "m.pef")
    wanted = {
        "encode": np.tanh(X @ TABLE),
        "decode": np.exp(X @ TABLE @ OTHER),
        "mix": np.tanh(X @ -TABLE + H),
    }
    for _ in range(2):
        for name, expected in wanted.items():
            inputs = {"x": X, "h": H} if name == "mix" else {"x": X}
            executable.prepare(graph=name)
            for found in (
                executable.run(inputs, graph=name),
                executable.profile(inputs, graph=name).outputs,
                executable.run(inputs, graph=name, section_types="FWD"),
            ):
                np.testing.assert_allclose(found["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(executable.run({"x": X})["y"], wanted["encode"], rtol=1e-5)


def test_the_file_is_in_order(program: pef.Program, tmp_path: Path) -> None:
    assert pef.check_program(program) == []
    program.save(tmp_path / "m.pef")
    with pef.open(tmp_path / "m.pef") as file:
        assert check_plans(file.program) == []


def test_names_clash_only_where_they_must(program: pef.Program) -> None:
    symbols = program.symbols
    assert [graph.name for graph in program.graphs] == ["encode", "decode", "mix"]
    for graph in program.graphs:
        assert [port.name for port in graph.outputs] == ["y"]
    ports = [symbols[graph.inputs[0].symbol].name for graph in program.graphs]
    assert ports == ["x", "decode.x", "mix.x"]
    weights = [s.name for s in symbols if s.kind is pef.SymbolKind.WEIGHT]
    assert weights == ["w", "v", "mix.w"]


def test_sections_belong_to_their_graph(program: pef.Program) -> None:
    executable = sambarun.load(program)
    first = program.schedule[program.graphs[1].first_call]
    found = executable.run({"x": X}, section_ids=[first])
    assert found
    with pytest.raises(sambarun.RunError, match="belongs to the graph 'decode', not to 'mix'"):
        executable.run({"x": X}, section_ids=[first], graph="mix")


def test_what_another_graph_reads_is_refused(program: pef.Program) -> None:
    executable = sambarun.load(program)
    for name, value in (("h", H), ("mix.x", X)):
        with pytest.raises(sambarun.RunError, match=f"'{name}' is no input of graph 'decode'"):
            executable.run({"x": X, name: value}, graph="decode")
    with pytest.raises(sambarun.RunError, match="There is no input 'g'"):
        executable.run({"x": X, "g": X}, graph="decode")


def test_unknown_graphs_are_answered_with_all_names(program: pef.Program) -> None:
    with pytest.raises(sambarun.RunError, match=r"'decoder' \(did you mean 'decode'\?\).*'mix'"):
        sambarun.load(program).run({"x": X}, graph="decoder")


def test_equal_programs_are_stored_once() -> None:
    program = compiled(sources=[GraphSource("one", ENCODE), GraphSource("two", ENCODE)])
    assert len(program.programs) == 1
    executable = sambarun.load(program)
    one, two = (executable.run({"x": X}, graph=name)["y"] for name in ("one", "two"))
    np.testing.assert_array_equal(one, two)


def test_reading_and_writing_by_graph(program: pef.Program) -> None:
    executable = sambarun.load(program)
    executable.write({"mix.x": X, "x": 2 * X})
    found = executable.run({"h": H}, graph="mix")["y"]
    np.testing.assert_allclose(found, np.tanh(X @ -TABLE + H), rtol=1e-5)
    np.testing.assert_array_equal(executable.read("mix.y")["mix.y"], found)
    np.testing.assert_allclose(executable.run({})["y"], np.tanh(2 * X @ TABLE), rtol=1e-5)


def test_compiling_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        compiled().save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


class Tower(torch.nn.Module):
    def __init__(self, table: torch.nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.linear(self.table(x)))


class Head(torch.nn.Module):
    def __init__(self, words: torch.nn.Embedding) -> None:
        super().__init__()
        self.words = words

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.words(x).sum(1))


def test_one_parameter_of_two_modules_is_one_weight() -> None:
    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 4)
    modules = {
        "tower": Tower(table).eval(),
        "head": Head(table).eval(),
        "more": Tower(table).eval(),
    }
    x = torch.tensor([[1, 2, 3]])
    program = sambac.compile_graphs(
        [GraphSource(name, module, (x,)) for name, module in modules.items()]
    )
    sizes = [s.size for s in program.symbols if s.kind is pef.SymbolKind.WEIGHT]
    assert sizes.count(20 * 4 * 4) == 1
    assert [alias.name for alias in program.aliases] == ["words.weight"]
    executable = sambarun.load(program)
    for name, module in modules.items():
        (found,) = executable.run({"x": x.numpy()}, graph=name).values()
        np.testing.assert_allclose(found, module(x).detach().numpy(), atol=1e-5)
    found = executable.read("words.weight")["words.weight"]
    np.testing.assert_array_equal(found, table.weight.detach().numpy())


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(CompileError, match="no graph"):
        sambac.compile_graphs([])
    with pytest.raises(CompileError, match="two graphs are called 'a'"):
        sambac.compile_graphs([GraphSource("a", ENCODE), GraphSource("a", MIX)])
    with pytest.raises(CompileError, match="empty name"):
        sambac.compile_graphs([GraphSource("", ENCODE)])


@pytest.mark.parametrize("share", [False, True])
def test_sizes_stay_open_in_each_graph(share: bool) -> None:
    layer = torch.nn.Linear(4, 5)
    rows = torch.export.Dim("rows")
    sources = [
        GraphSource("open", layer, (torch.zeros(3, 4),), dynamic_shapes=({0: rows},)),
        GraphSource("fixed", layer, (torch.zeros(2, 4),)),
    ]
    if share:
        with pytest.raises(CompileError, match="'output' of region 'r' is known only at run time"):
            sambac.compile_graphs(sources, shared={"open.output": "r"})
        return
    executable = sambarun.load(sambac.compile_graphs(sources))
    for size, graph in ((1, "open"), (7, "open"), (2, "fixed")):
        x = torch.randn(size, 4)
        (found,) = executable.run({"input": x.numpy()}, graph=graph).values()
        np.testing.assert_allclose(found, layer(x).detach().numpy(), atol=1e-6)
    with pytest.raises(sambarun.RunError, match="was expected"):
        executable.run({"input": np.zeros((3, 4), "f")}, graph="fixed")


@pytest.mark.parametrize(
    "options",
    [
        CompileOptions(precision="bfloat16"),
        dataclasses.replace(CompileOptions(), precision="bfloat16"),
        pickle.loads(pickle.dumps(CompileOptions(precision="bfloat16"))),
    ],
    ids=["given", "replaced", "pickled"],
)
def test_what_a_graph_is_not_given_is_as_the_program_has_it(options: CompileOptions) -> None:
    own = GraphSource("mix", MIX, options=options)
    program = sambac.compile_graphs([own], CompileOptions(level="O0"))
    alone = sambac.compile(MIX, CompileOptions(precision="bfloat16", level="O0"))
    assert len(program.sections) == len(alone.sections) > 1


@pytest.mark.parametrize("level", ["O1", "O3"])
def test_what_a_graph_is_given_is_not_passed_over(level: Literal["O1", "O3"]) -> None:
    """O3 is the level by default."""
    odd = GraphSource("mix", MIX, options=CompileOptions(level=level))
    with pytest.raises(CompileError, match=f"has level='{level}', and the program level='O0'"):
        sambac.compile_graphs([odd], CompileOptions(level="O0"))


def hollow(classes: int = 4) -> tuple[GraphSource, GraphSource]:
    """Two models that read one layer under different names, all without content."""
    with torch.device("meta"):
        layer = torch.nn.Linear(4, classes)
        first = torch.nn.Sequential(layer, torch.nn.BatchNorm1d(classes)).eval()
        second = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Linear(4, 4)).eval()
    return (
        GraphSource("first", first, (torch.zeros(2, 4),)),
        GraphSource("second", second, (torch.zeros(5, 4),)),
    )


ONE_LAYER = {"first.0.weight": "w", "second.1.weight": "w", "0.bias": "b", "second.1.bias": "b"}


def test_weights_without_content_are_one_where_the_caller_says_so() -> None:
    program = sambac.compile_graphs(hollow(), shared=ONE_LAYER)
    assert pef.check_program(program) == [] == check_plans(program)
    names = {symbol.name for symbol in program.symbols}
    assert {"0.weight", "0.bias", "1.bias"} <= names
    assert "second.1.bias" not in names
    executable = sambarun.load(program)
    weight, bias = RNG.standard_normal((4, 4)).astype("f"), RNG.standard_normal(4).astype("f")
    executable.write({"second.1.weight": weight, "first.0.bias": bias})
    x = RNG.standard_normal((5, 4)).astype("f")
    with pytest.raises(sambarun.RunError, match=r"1\.running_mean"):
        executable.run({"input": x[:2]}, graph="first")
    found = executable.run({"input": x}, graph="second")["output"]
    np.testing.assert_allclose(found, np.tanh(x) @ weight.T + bias, rtol=1e-5, atol=1e-6)
    executable.initialize(0)
    np.testing.assert_array_equal(executable.state()["0.weight"], weight)
    executable.run({"input": x[:2]}, graph="first")


def test_weights_without_content_are_apart_otherwise() -> None:
    one, _ = hollow()
    again = GraphSource("again", one.model, one.inputs)
    program = sambac.compile_graphs([one, again])
    names = {symbol.name for symbol in program.symbols}
    assert {"0.weight", "again.0.weight"} <= names


def test_weights_that_cannot_be_one_are_named() -> None:
    first, second = hollow(3)
    cases = [
        ({"0.weight": "w", "1.weight": "w"}, "several weights of graph 'first'"),
        ({"0.weight": "w", "second.1.weight": "w"}, r"'second.1.weight' is FLOAT\[4, 4\], .*3, 4"),
        ({"0.weight": "w", "second.input": "w"}, "'w' is the region of weights"),
    ]
    for shared, words in cases:
        with pytest.raises(CompileError, match=words):
            sambac.compile_graphs([first, second], shared=shared)
