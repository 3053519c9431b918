"""Why operators are in their groups, and symbols at their places: numbers against the program."""

from __future__ import annotations

import numpy as np
from explained import PROGRAMS, device, heavy, net
from onnx import TensorProto, helper, numpy_helper

import sambac
from benchmarks.models import synthetic
from pef import PlacementReason
from sambac.explain import explain


def _numbers(program, name, topic):
    (found,) = explain(program, name)
    return [fact.numbers for fact in found.facts if fact.topic.startswith(topic)]


def test_every_operator_has_a_reason(tmp_path):
    for program in (heavy(tmp_path), net(tmp_path)):
        for number, section in enumerate(program.sections):
            for group in section.groups:
                names = {op.name for op in group.operators}
                for op in group.operators:
                    said = _numbers(program, f"operator:{op.name}", "Why it is in this section")
                    assert said[0]["section"] == number
                    assert said[0]["group"] == group.name
                    assert said[0]["operators"] == len(names)
                    reasons = [fact["reason"] for fact in said[1:]]
                    assert reasons
                    assert "unknown" not in reasons
                    joined = [fact for fact in said[1:] if fact["reason"] == "joined"]
                    assert all(0 <= fact["bytes"] <= fact["bytes_read"] for fact in joined)


def test_groups_that_would_have_two_heavy_operators(tmp_path):
    said = _numbers(heavy(tmp_path), "/layer.3/MatMul", "Why it is in this section")
    assert said[1] == {"reason": "heavy", "group": "/layer.2/MatMul", "heavy": 2, "limit": 1}


def test_work_follows_from_the_shapes_that_are_said(tmp_path):
    (sizes, work, *_) = _numbers(heavy(tmp_path), "/layer.3/MatMul", "What it does there")
    (rows, inner), (again, columns) = (
        map(int, shape.split("x")) for shape in sizes["reads"].split(", ")
    )
    assert inner == again
    assert sizes["makes"] == f"{rows}x{columns}"
    assert work["flops"] == 2 * rows * inner * columns


def test_groups_that_would_be_too_long():
    program = sambac.compile(_long(), sambac.CompileOptions())
    groups = [group for section in program.sections for group in section.groups]
    assert len(groups) > 1
    first = groups[1].operators[0]
    said = _numbers(program, f"operator:{first.name}", "Why it is in this section")[1]
    together = len(groups[0].operators) + len(groups[1].operators)
    assert said == {
        "reason": "long", "group": groups[0].name, "operators": together, "limit": 32,
        "over": together - 32,
    }  # fmt: skip


def _long():
    nodes = [
        helper.make_node(("Tanh", "Exp")[at % 2], [f"h{at}"], [f"h{at + 1}"], name=f"n{at}")
        for at in range(40)
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 4]) for n in ("h0", "h40")]
    graph = helper.make_graph(nodes, "long", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_rules_and_updates_are_named(tmp_path):
    options = sambac.CompileOptions(level="O1")
    from benchmarks.models.transformers import Shape, bert

    program = sambac.compile(bert(Shape(1, 32, 2, 8, 40)), options)
    groups = [g for s in program.sections for g in s.groups if len(g.operators) > 1]
    reasons = [
        _numbers(program, f"operator:{g.operators[0].name}", "Why it is in")[1]["reason"]
        for g in groups
    ]
    assert {"rule"} <= set(reasons) <= {"rule", "cast"}
    training = net(tmp_path, level="O0")
    update = max(
        (g for s in training.sections for g in s.groups if s.type.name == "OPT"),
        key=lambda group: len(group.operators),
    )
    said = _numbers(training, f"operator:{update.operators[0].name}", "Why it is in")
    assert said[1]["reason"] == "update"


def test_every_symbol_has_a_place_and_a_reason(tmp_path):
    for make in PROGRAMS.values():
        program = make(tmp_path)
        for symbol in program.symbols[::3]:
            if symbol.allocation is None:
                continue
            place = program.allocations[symbol.allocation]
            region, *more = _numbers(program, f"symbol:{symbol.name}", "Why it is in this region")
            assert region["region"] == place.region.name
            assert region["reason"] != "unknown"
            by_cost = place.reason is PlacementReason.COST
            assert [fact["seconds"] for fact in more] == ([place.cost] if by_cost else [])
            said = _numbers(program, f"symbol:{symbol.name}", "Why it is at this address")
            assert any(fact.get("address") == place.address for fact in said)


def test_what_lies_below_is_alive_at_the_same_time(tmp_path):
    program = heavy(tmp_path, level="O0")
    by_name = {symbol.name: symbol for symbol in program.symbols}
    found = 0
    for symbol in program.symbols:
        for fact in _numbers(program, f"symbol:{symbol.name}", "Why it is at this address"):
            if "gap" in fact and isinstance(fact.get("below"), str):
                other = by_name[fact["below"]]
                place = program.allocations[other.allocation]
                assert place.address + place.size + fact["gap"] == fact["address"]
                assert other.first_call <= symbol.last_call
                assert symbol.first_call <= other.last_call
                found += 1
    assert found


def test_what_moves_counts_its_calls(tmp_path):
    model = synthetic.heavy(layers=2, width=64)
    arch = device(tmp_path, ddr_bandwidth=1e9)
    program = sambac.compile(model, sambac.CompileOptions(arch=arch, level="O0"))
    what = _numbers(program, "x", "What it is")
    assert what[0] == {"bytes": 4096, "written_by": 0, "read_by": 2}
    assert what[1] == {"moves": 2, "bytes_moved": 8192, "seconds": 8192 / 1e9}


def test_of_a_table_only_the_rows_that_are_picked_move(tmp_path):
    """As in the estimate of the section, so that both say the same time."""
    table = np.ones((1000, 16), np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="pick"),
        helper.make_node("Tanh", ["rows"], ["y"], name="tanh"),
    ]
    ports = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [4]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 16]),
    ]
    graph = helper.make_graph(
        nodes, "picks", ports[:1], ports[1:], [numpy_helper.from_array(table, "table")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    arch = device(tmp_path, ddr_bandwidth=1e9)
    program = sambac.compile(model, sambac.CompileOptions(arch=arch, level="O0"))
    picked = 4 * 16 * 4
    what = _numbers(program, "table", "What it is")
    assert what[0]["bytes"] == table.nbytes
    assert what[1] == {"moves": 1, "bytes_moved": picked, "seconds": picked / 1e9}


def test_what_moves_a_pack_moves_its_parts(tmp_path):
    program = net(tmp_path)
    packed = [at for at in program.symbols if at.pack is not None and at.kind.name == "GRADIENT"]
    assert packed
    for symbol in packed:
        said = _numbers(program, f"symbol:{symbol.name}", "What it is")
        times = said[0]["written_by"] + said[0]["read_by"]
        assert [fact["bytes_moved"] for fact in said[1:]] in ([], [times * symbol.size])


def test_regions_by_cost_say_what_the_other_one_costs(tmp_path):
    model = synthetic.tangled(30, 1)
    whole = sambac.compile(model, sambac.CompileOptions(level="O0"))
    need = next(region.peak_live for region in whole.regions if region.kind.name == "HBM")
    arch = device(tmp_path, "sn40l", hbm_capacity=need // 128 * 64)
    program = sambac.compile(model, sambac.CompileOptions(level="O0", arch=arch))
    left = [s for s in program.symbols if program.allocations[s.allocation].spilled]
    stayed = [
        s
        for s in program.symbols
        if program.allocations[s.allocation].reason.name == "COST" and s not in left
    ]
    assert left
    assert stayed
    for symbol in (*left[:3], *stayed[:3]):
        said = _numbers(program, f"symbol:{symbol.name}", "Why it is in this region")
        assert said[0]["reason"] == ("spilled" if symbol in left else "main")
        assert said[1] == {"seconds": program.allocations[symbol.allocation].cost}


def _why(program, op_type):
    """Return why the first operator of a type is in its group, and what types are beside it."""
    groups = [group for section in program.sections for group in section.groups]
    found = next(g for g in groups if op_type in {op.op_type for op in g.operators})
    (told,) = explain(program, f"operator:{found.operators[0].name}")
    facts = [f for f in told.facts if f.topic.startswith("Why") and "reason" in f.numbers]
    return facts[0].numbers["reason"], facts[0].text, [op.op_type for op in found.operators]


def test_rounding_is_with_its_product(tmp_path):
    program = net(tmp_path, layers=1, level="O0", precision="mixed")
    reason, text, types = _why(program, "Gemm")
    assert (reason, types) == ("cast", ["Cast", "Cast", "Gemm"])
    assert "as it reads" in text
    assert "as it writes" not in text


def test_a_bias_is_with_its_product():
    weights = [np.ones(shape, np.float32) for shape in ((8, 4), (4,))]
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w0"], ["a"], name="product"),
                helper.make_node("Add", ["a", "w1"], ["y"], name="bias"),
            ],
            "linear",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4])],
            [numpy_helper.from_array(each, f"w{at}") for at, each in enumerate(weights)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    reason, text, types = _why(sambac.compile(model, sambac.CompileOptions(level="O0")), "MatMul")
    assert (reason, types) == ("bias", ["MatMul", "Add"])
    assert "bias" in text
