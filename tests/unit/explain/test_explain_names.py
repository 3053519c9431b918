"""What names mean, those that no writer of a model would choose included."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from explained import heavy, net
from onnx import TensorProto, helper, numpy_helper

import sambac
from pef.costs import DeviceNumber
from pef.errors import PefError
from sambac.explain import explain
from sambac.explain.names import find


def _kinds(program, name):
    return [each.kind for each in find(program, name)]


def test_sections_operators_and_symbols_are_found(tmp_path):
    program = heavy(tmp_path)
    assert _kinds(program, "section_1") == _kinds(program, "1") == ["section"]
    assert _kinds(program, "/layer.0/Add") == ["operator"]
    assert _kinds(program, "layer.0.weight") == ["symbol"]
    assert _kinds(program, "x") == _kinds(program, "main.x") == ["symbol"]


def test_an_operator_with_a_section_of_its_own_is_both(tmp_path):
    program = heavy(tmp_path, level="O0")
    assert _kinds(program, "/layer.0/Add") == ["section", "operator"]
    assert _kinds(program, "operator:/layer.0/Add") == ["operator"]
    assert len(explain(program, "/layer.0/Add")) == 2


def test_graphs_are_explained_by_themselves(tmp_path):
    program = net(tmp_path)
    for graph in program.graphs:
        (found,) = explain(program, graph.name)
        assert (found.kind, found.facts[0].numbers["calls"]) == ("graph", graph.calls)
    told = explain(program)[0].facts[2].text
    assert "graph:eval explains it" in told


def test_public_names_mean_their_symbols(tmp_path):
    program = net(tmp_path)
    for graph in program.graphs:
        for port in (*graph.inputs, *graph.outputs):
            (found,) = find(program, f"{graph.name}.{port.name}")
            assert found.name == program.symbols[port.symbol].name


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("sectoin_0", "section_0"),
        ("/layer.0/MatMull", "/layer.0/MatMul"),
        ("layer.0.wieght", "layer.0.weight"),
    ],
)
def test_unknown_names_get_a_suggestion(name, meant, tmp_path):
    with pytest.raises(
        PefError, match=rf"no graph, section, operator or symbol .*did you mean '{meant}'"
    ):
        find(heavy(tmp_path), name)


@pytest.mark.parametrize("name", ["", "section:", "99", "-1", "symbol:section_0", "?" * 5000])
def test_what_is_like_nothing_is_refused(name, tmp_path):
    with pytest.raises(PefError, match=r"there is no graph, section, operator or symbol"):
        find(heavy(tmp_path), name)


HOSTILE = (
    "section_0",
    "a:b",
    "symbol:x",
    "0",
    "\x1b[31mred",
    "two  blanks",
    "line\nbreak",
    "'",
    '"',
    "é",
)


def _hostile():
    """A graph whose operators and values are called alike, and as nobody would."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), HOSTILE[0])
    nodes = [helper.make_node("MatMul", ["x", HOSTILE[0]], [HOSTILE[1]], name=HOSTILE[1])]
    nodes += [
        helper.make_node(("Tanh", "Exp")[at % 2], [one], [other], name=other)
        for at, (one, other) in enumerate(pairwise(HOSTILE[1:]))
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4])
        for name in ("x", HOSTILE[-1])
    ]
    graph = helper.make_graph(nodes, "hostile", ports[:1], ports[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_hostile_names_are_explained_and_steer_no_terminal(level):
    program = sambac.compile(_hostile(), sambac.CompileOptions(level=level))
    kinds = {"section": program.sections, "symbol": program.symbols}
    operators = [op for s in program.sections for g in s.groups for op in g.operators]
    for kind, things in {**kinds, "operator": operators}.items():
        for thing in things:
            (found,) = explain(program, f"{kind}:{thing.name}")
            assert (found.kind, found.name) == (kind, thing.name)
            for line in found.lines(80):
                assert line.isprintable()


def test_a_name_of_several_things_is_refused_with_their_names():
    program = sambac.compile(_hostile(), sambac.CompileOptions())
    with pytest.raises(PefError, match=r"did you mean section:section_0 or symbol:section_0\?"):
        find(program, "section_0")
    assert _kinds(program, "symbol:section_0") == ["symbol"]
    assert _kinds(program, "section:section_0") == ["section"]
    assert _kinds(program, "operator:symbol:x") == ["operator"]


@pytest.mark.parametrize("options", ["[]", "nonsense", "3", '{"level": 7, "sections": "x"}'])
@pytest.mark.parametrize("number", ["pcus", "stream_bandwidth", "ddr_capacity", "chips"])
def test_forged_facts_do_no_harm(options, number, tmp_path):
    """What a file says of its options and its device is not believed."""
    program = heavy(tmp_path)
    producer = replace(program.producer, options=options)
    others = [each for each in program.device if each.name != number]
    zero = (*others, DeviceNumber(number, 0.0))
    for forged in (replace(program, producer=producer), replace(program, device=zero)):
        for name in (None, "section_0", "/layer.3/MatMul", "x"):
            with suppress(PefError):
                explain(forged, name)


def test_a_program_that_is_wrong_is_refused(tmp_path):
    program = heavy(tmp_path)
    first, *others = program.sections
    wrong = replace(first, estimate=replace(first.estimate, latency=float("nan")))
    with pytest.raises(PefError, match="this file is damaged"):
        explain(replace(program, sections=(wrong, *others)))
