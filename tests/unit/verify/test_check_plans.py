"""Plans rebuilt from a program: right ones pass, and each planted fault is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import onnx
import pytest
from onnx import parser

import pef
import sambac
from pef import DataRef, FusionGroup, Piece, Program, Variant
from sambac.options import Level
from sambac.reconstruct.verify import check_plans, device_of

_MODELS = {
    "residual": """residual (float[8,16] x) => (float[8,16] y)
        { a = MatMul(x, w)  r = Relu(a)  s = Sigmoid(r)  y = Add(a, s) }""",
    # Arithmetic on shapes and views, which sections copy, at a size that the model leaves open.
    "shapes": """shapes (float[n,16] x) => (float[m] y, float[n,16] z)
        { a = MatMul(x, w)  size = Shape(a)  rest = ReduceProd<keepdims=0>(size)  axes = Shape(rest)
          flat = Flatten<axis=0>(a)  two = Concat<axis=0>(size, size)  b = Relu(flat)
          y = Squeeze(b)  wide = Expand(x, size)  z = Add(wide, a) }""",
    # Subgraphs read what stands outside, weights among it, and have constants of their own.
    "branches": """branches (float[8,16] x, bool c) => (float[8,16] y, float[8,16] a)
        { a = MatMul(x, w)
          b = If (c) <
              then_branch = g1 () => (float[8,16] t) { one = Constant<value = float {2.0}>()
                                                      t = Mul(a, one) },
              else_branch = g2 () => (float[8,16] e) { e = MatMul(x, w) }>
          y = Tanh(b) }""",
    # Outputs that no operator makes, and one output twice.
    "odd outputs": """odd (float[8,16] x) => (float[8,16] x, float[16,16] w, float[8,16] y)
        { y = Relu(x) }""",
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "O0": {"level": "O0"},
    "O1": {"level": "O1"},
    "O3": {"level": "O3"},
    "three sections": {"sections": 3},
    "host memory": {"level": "O1", "io_host_memory": True},
    "spatial on an old chip": {"level": "O1", "mapping": "spatial", "arch": "sn10"},
}


@cache
def _compiled(model: str = "residual", options: str = "O1") -> Program:
    head, body = _MODELS[model].split("\n", 1)
    weight = f"<float[16,16] w = {{{','.join(['0.5'] * 256)}}}>"
    text = f'<ir_version: 8, opset_import: ["": 17]>\n{head}\n{weight}\n{body}'
    return sambac.compile(parser.parse_model(text), sambac.CompileOptions(**_OPTIONS[options]))


@pytest.mark.parametrize("options", _OPTIONS)
@pytest.mark.parametrize("model", _MODELS)
def test_what_the_compiler_makes_passes(model: str, options: str) -> None:
    assert check_plans(_compiled(model, options)) == []


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"optimizers": (sambac.SGD(lr=0.1),)},
        {"accumulate": True},
        {"max_grad_norm": 1.0},
        {"recompute": True},
    ],
)
def test_steps_that_reduce_gradients_pass(level: Level, more: dict[str, Any]) -> None:
    """Without an optimizer nothing but the reduction reads what the backward pass gives."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        net (float[4,2] x) => (float[4,2] y)
        <float[2,3] a = {1, 2, 3, 4, 5, 6}, float[3,2] b = {1, 2, 3, 4, 5, 6}>
        { h = MatMul(x, a)  r = Relu(h)  y = MatMul(r, b) }"""
    options = sambac.CompileOptions(
        train=True, loss=("mse:y,t",), data_parallel=True, level=level, **more
    )
    assert check_plans(sambac.compile(parser.parse_model(text), options)) == []


def test_a_file_passes_as_its_program_does(tmp_path: Any) -> None:
    path = tmp_path / "a.pef"
    _compiled("shapes", "O1").save(path)
    assert check_plans(pef.verify(path)) == []


def _row(program: Program, table: str, index: int, **changes: Any) -> Program:
    rows = list(getattr(program, table))
    rows[index] = replace(rows[index], **changes)
    return replace(program, **{table: tuple(rows)})


def _operators(program: Program) -> dict[str, pef.Operator]:
    (section,) = program.sections
    return {op.op_type: op for group in section.groups for op in group.operators}


def _regrouped(*groups: str) -> Program:
    """The program of one section, its operators in other groups: one for each of `groups`."""
    program = _compiled("residual", "O3")
    operators = _operators(program)
    rows = tuple(
        FusionGroup(f"group {number}", tuple(operators[word] for word in words.split()))
        for number, words in enumerate(groups)
    )
    return _row(program, "sections", 0, groups=rows)


def _with_operator(index: int, **changes: Any) -> Program:
    """The program of one section, one of its operators changed."""
    program = _compiled("residual", "O3")
    (group,) = program.sections[0].groups
    operators = list(group.operators)
    operators[index] = replace(operators[index], **changes)
    group = replace(group, operators=tuple(operators))
    return _row(program, "sections", 0, groups=(group,))


def _with_graph(edit: Callable[[onnx.GraphProto], None], section: int = 0) -> Program:
    """The program of several sections, the graph of one edited."""
    program = _compiled()
    number = program.sections[section].variants[0].program
    ref = program.programs[number].graph
    (piece,) = (p for p in program.segments[0].pieces if p.offset == ref.offset)
    model = onnx.load_from_string(bytes(piece.data))
    edit(model.graph)
    return _with_bytes(model.SerializeToString(), section)


def _with_bytes(data: bytes, section: int = 0) -> Program:
    program = _compiled()
    number = program.sections[section].variants[0].program
    segment = program.segments[0]
    pieces = (*segment.pieces, Piece(segment.size, data))
    segment = replace(segment, size=segment.size + len(data), pieces=pieces)
    changed = replace(program, segments=(segment, *program.segments[1:]))
    ref = DataRef(0, segment.size - len(data), len(data))
    return _row(changed, "programs", number, graph=ref)


def _swap_nodes(graph: onnx.GraphProto) -> None:
    nodes = [graph.node[1], graph.node[0]]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _rename_input(graph: onnx.GraphProto) -> None:
    graph.input[0].name = graph.node[0].input[0] = "other"


def _read_nothing(graph: onnx.GraphProto) -> None:
    """Make Add(a, s) an Add(a, a)."""
    graph.node[0].input[1] = graph.node[0].input[0]


def _read_unknown(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "nowhere"


def _make_twice(graph: onnx.GraphProto) -> None:
    graph.node.append(graph.node[0])


def _symbol(name: str, **changes: Any) -> Program:
    program = _compiled()
    (index,) = (i for i, symbol in enumerate(program.symbols) if symbol.name == name)
    return _row(program, "symbols", index, **changes)


def _moved(address: int, name: str = "y") -> Program:
    program = _compiled()
    (index,) = (s.allocation for s in program.symbols if s.name == name)
    return _row(program, "allocations", index or 0, address=address)


def _estimate(**changes: Any) -> Program:
    program = _compiled()
    estimate = replace(program.sections[1].estimate, **changes)
    return _row(program, "sections", 1, estimate=estimate)


def _option(program: Program, **changes: Any) -> Program:
    options = json.loads(program.producer.options) | changes
    return replace(program, producer=replace(program.producer, options=json.dumps(options)))


def _group_names(name: str) -> Program:
    program = _compiled()
    for index, section in enumerate(program.sections):
        groups = tuple(replace(group, name=name) for group in section.groups)
        program = _row(program, "sections", index, groups=groups)
    return program


def _only_for_some_hosts() -> Program:
    number = _compiled().sections[0].variants[0].program
    return _row(_compiled(), "programs", number, requires=("avx512",))


_FAULTS: list[tuple[Callable[[], Program], str]] = [
    # fusion groups
    (lambda: _regrouped("MatMul Sigmoid", "Relu Add"), "groups wait for each other: 'group 0'"),
    (lambda: _regrouped("MatMul Sigmoid Add", "Relu"), "groups wait for each other: 'group 0'"),
    (lambda: _regrouped("Relu MatMul Sigmoid Add"), "does not list its operators in topological"),
    (lambda: _regrouped("MatMul Relu Add"), "node 2 of section 'section_0' (Sigmoid) is in no"),
    (lambda: _regrouped("MatMul Relu Sigmoid"), "section 0 has wrong outputs, see ['y']"),
    (lambda: _regrouped("MatMul Relu Sigmoid Add", ""), "group 'group 1' is empty"),
    (lambda: _group_names("twin"), "3 groups are named 'twin'"),
    # operators
    (lambda: _with_operator(1, op_type="Conv"), "is said to be Conv, but is Relu"),
    (lambda: _with_operator(3, node=4), "is said to be node 4 of 4"),
    (lambda: _with_operator(2, name="Relu"), "two operators are named 'Relu'"),
    # programs
    (lambda: _with_bytes(b"\xff" * 9), "program 0 is no ONNX model"),
    (lambda: _with_graph(_swap_nodes), "node 0 of program 0 (Relu) reads 'o0', which nothing"),
    (lambda: _with_graph(_read_unknown), "(MatMul) reads 'nowhere', which nothing before it makes"),
    (lambda: _with_graph(_make_twice), "(MatMul) makes 'o0', which is there already"),
    (lambda: _with_graph(_rename_input), "program 0 is said to have the inputs ('i0',), its graph"),
    (_only_for_some_hosts, "section 'MatMul' has no program for every host"),
    # sections
    (lambda: _with_graph(_read_nothing, section=2), "section 2 has wrong inputs, see ['s']"),
    (
        lambda: _estimate(bytes_in=0),
        "the traffic between sections is 3072 bytes, the plan says 2560",
    ),
    (lambda: _estimate(pcus=10**6), "section 'Sigmoid' needs 1000000 PCUs and 2 PMUs"),
    (lambda: _estimate(pmus=10**6), "section 'Sigmoid' needs 20 PCUs and 1000000 PMUs"),
    # memory
    (lambda: _symbol("r", last_call=2), "'r' is said to live from call 0 to 2, but is used from"),
    (lambda: _symbol("y", allocation=None), "buffer y is not placed"),
    (lambda: _moved(1537), "y lies at 1537, no multiple of 64"),
    (lambda: _moved(1 << 14), "HBM: used is said to be 2560, but is"),
    (lambda: _moved(1536, "s"), "s and r overlap while both live"),
    (lambda: _row(_compiled(), "regions", 0, peak_live=2048), "peak_live is said to be 2048"),
    (lambda: _row(_compiled(), "regions", 0, capacity=4096), "capacity is said to be 4096"),
    (lambda: _option(_compiled(), io_host_memory=True), "x lies in HBM, but HOST was asked for"),
]


@pytest.mark.parametrize(("plant", "message"), _FAULTS)
def test_a_planted_fault_is_named(plant: Callable[[], Program], message: str) -> None:
    problems = check_plans(plant())
    assert any(message in problem for problem in problems), problems


def test_the_file_alone_does_not_show_a_wrong_group() -> None:
    """What the rules of the format cannot see is what the rebuilt plans are for."""
    program = _regrouped("MatMul Sigmoid", "Relu Add")
    assert pef.check_program(program) == []


def test_limits_of_a_device_that_is_not_known_are_left_out() -> None:
    program = _option(_estimate(pcus=10**6), arch="mine.toml")
    assert device_of(_compiled()) is not None
    assert device_of(program) is None
    assert check_plans(program) == []


def test_a_warning_excuses_what_the_chip_does_not_hold() -> None:
    told = "section Sigmoid is larger than the chip"
    assert check_plans(replace(_estimate(pcus=10**6), warnings=(told,))) == []


def test_programs_for_some_hosts_are_passed_over() -> None:
    program = _compiled()
    special = replace(program.programs[0], graph=DataRef(0, 0, 0), requires=("avx512",))
    program = replace(program, programs=(*program.programs, special))
    variants = (Variant(len(program.programs) - 1), *program.sections[0].variants)
    assert check_plans(_row(program, "sections", 0, variants=variants)) == []


def test_names_of_the_model_may_be_like_those_made_up() -> None:
    """A copied node and a value inside a section bear names that nothing else has."""
    program = _compiled("shapes", "O3")
    (section,) = program.sections
    operators = [op for group in section.groups for op in group.operators]
    copied = min(set(range(10)) - {op.node for op in operators})
    first = replace(operators[0], name=f"node {copied} of section '{section.name}'")
    groups = (
        replace(
            section.groups[0],
            operators=(first, *section.groups[0].operators[1:]),
        ),
        *section.groups[1:],
    )
    program = _row(program, "sections", 0, groups=groups)
    program = _row(program, "symbols", 0, name=f"{section.name}:t0")
    assert check_plans(program) == []
