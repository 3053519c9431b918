"""Traces of profiled runs: what Perfetto shows of sections, operators and memory."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

import sambac
import sambarun
from pef.costs import Estimate
from sambarun.execution.profiler import Profile
from sambarun.execution.spans import OperatorSpan, Span
from sambarun.linking.nodes import number_in

MEASURED, MODELLED, MEMORY = 1, 2, 3


def _model():
    rng = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8)).astype(np.float32), f"w{at}")
        for at in range(3)
    ]
    nodes = []
    for at in range(3):
        nodes.append(helper.make_node("MatMul", [f"h{at}", f"w{at}"], [f"m{at}"], name=f"mm{at}"))
        nodes.append(helper.make_node("Tanh", [f"m{at}"], [f"h{at + 1}"], name=f"tanh{at}"))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("h0", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("h3", TensorProto.FLOAT, [4, 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def program():
    return sambac.compile(_model(), sambac.CompileOptions(sections=2))


@pytest.fixture(scope="module")
def profile(program):
    with sambarun.load(program) as executable:
        return executable.profile({"h0": np.ones((4, 8), np.float32)}, operators=True)


@pytest.fixture
def events(profile, tmp_path):
    profile.save(tmp_path / "trace.json")
    return json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def _slices(events, process):
    return [event for event in events if event["ph"] == "X" and event["pid"] == process]


def test_processes_and_threads_have_names(events):
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {
        MEASURED: "measured on this host",
        MODELLED: "modelled on sn40l",
        MEMORY: "memory of sn40l (modelled)",
    }
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    assert set(threads.values()) == {"sections"}
    used = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert used == threads.keys()


def test_events_are_in_the_order_of_their_times(events):
    """And what holds others comes before them, as some readers want it."""
    for process in (MEASURED, MODELLED):
        slices = _slices(events, process)
        order = [(e["ts"], -e["dur"]) for e in slices]
        assert order == sorted(order)
    counted = [e["ts"] for e in events if e["ph"] == "C"]
    assert counted == sorted(counted)
    assert len(_slices(events, MEASURED)) > 2


def test_operators_lie_inside_their_sections_and_bear_their_names(events, profile, program):
    sections = {s.call: s for s in profile.spans}
    for each in profile.operators:
        outer = sections[each.call]
        assert outer.start <= each.start
        assert each.start + each.duration <= outer.start + outer.duration
        ops = [op for group in program.sections[each.section].groups for op in group.operators]
        assert each.name in {op.name for op in ops}
    names = {each.name for each in profile.operators}
    assert names == {f"{kind}{at}" for kind in ("mm", "tanh") for at in range(3)}
    slices = _slices(events, MEASURED)
    assert len(slices) == len(profile.spans) + len(profile.operators)


def test_what_is_modelled_stands_beside_what_is_measured(events, program):
    sections = [e for e in _slices(events, MODELLED) if e["cat"] != "modelled"]
    estimates = [section.estimate for section in program.sections]
    nanosecond = 1.1e-3
    times = [1e6 * e.latency for e in estimates]
    assert [e["dur"] for e in sections] == pytest.approx(times, abs=nanosecond)
    assert sections[1]["ts"] == pytest.approx(sections[0]["dur"])
    for outer, estimate in zip(sections, estimates, strict=True):
        end = outer["ts"] + outer["dur"]
        inner = [
            e for e in _slices(events, MODELLED)
            if e["cat"] == "modelled" and outer["ts"] - 1e-9 <= e["ts"] < end - 1e-9
        ]  # fmt: skip
        assert inner[0]["name"] == "launch"
        assert sum(e["dur"] for e in inner) == pytest.approx(outer["dur"])
        assert outer["dur"] == pytest.approx(1e6 * estimate.latency, abs=nanosecond)
    measured = [e for e in _slices(events, MEASURED) if "op_type" not in e["args"]]
    assert [e["args"]["modelled_us"] for e in measured] == times
    products = [e for e in _slices(events, MEASURED) if e["name"].startswith("mm")]
    assert all(e["args"]["flops"] == 2 * 4 * 8 * 8 for e in products)
    assert all(e["args"]["modelled_us"] > 0 for e in products)


def test_counters_say_what_regions_hold_at_each_call(events, profile, program):
    counters = [event for event in events if event["ph"] == "C"]
    by_name = {name: [*found] for name, found in groupby(counters, lambda e: e["name"])}
    assert by_name.keys() == {"HBM in use"}
    assert len(by_name["HBM in use"]) == len(profile.spans)
    for event, span in zip(by_name["HBM in use"], profile.spans, strict=True):
        alive = {
            symbol.allocation
            for symbol in program.symbols
            if symbol.first_call <= span.call <= symbol.last_call
        }
        assert event["args"]["bytes"] == sum(program.allocations[a].size for a in alive)
        assert int(1000.0 * event["ts"]) == span.start  # as readers cut off


def _depth(events, process):
    """Return how deep slices lie inside each other, in whole ns as Perfetto counts them."""
    whole = [
        (int(1000.0 * e["ts"]), int(1000.0 * e["ts"]) + int(1000.0 * e["dur"]))
        for e in _slices(events, process)
    ]
    open_until: list[int] = []
    deepest = 0
    for start, end in sorted(whole, key=lambda each: (each[0], -each[1])):
        while open_until and open_until[-1] <= start:
            open_until.pop()
        assert not open_until or end <= open_until[-1], "a slice ends behind the one around it"
        open_until.append(end)
        deepest = max(deepest, len(open_until))
    return deepest


def test_slices_one_after_another_are_not_taken_for_nested_ones(program):
    # Times that are no whole nanoseconds, and such whose microseconds cut off to one less.
    terms = {"launch": 1.0010004e-6, "held": 1.013e-6 / 3, "streams": 0.7e-9}
    took = Estimate(latency=sum(terms.values()), limited_by="launch", **terms)
    section = replace(program.sections[0], estimate=took)
    changed = replace(program, sections=(section, *program.sections[1:]))
    spans = [Span(at, 0, "s", "FWD", 1001 * at, 1001) for at in range(400)]
    inner = [OperatorSpan(at, 0, "op", "Op", None, 1001 * at, 1001) for at in range(400)]
    trace = Profile({}, tuple(spans), changed, tuple(inner)).trace()
    events = trace["traceEvents"]
    assert _depth(events, MEASURED) == 2
    assert _depth(events, MODELLED) == 2
    sections = [e for e in _slices(events, MEASURED) if "op_type" not in e["args"]]
    for event, span in zip(sections, spans, strict=True):
        assert int(1000.0 * event["ts"]) == span.start
    # Versions of Perfetto take it for the unit of all times, a thousand times too long.
    assert "displayTimeUnit" not in trace


def test_names_that_would_turn_text_around_are_shown(program):
    inner = OperatorSpan(0, 0, "\u202egnp.exe", "\u202eOp", None, 0, 1001)
    named = replace(program, arch="\u202e")
    trace = Profile({}, (Span(0, 0, "\u202e", "FWD", 0, 1001),), named, (inner,)).trace()
    assert "\u202e" not in json.dumps(trace, ensure_ascii=False)
    assert "\\u202egnp.exe" in {event["name"] for event in trace["traceEvents"]}


def test_without_operators_there_are_sections_alone(program):
    with sambarun.load(program) as executable:
        profile = executable.profile({"h0": np.ones((4, 8), np.float32)})
    assert profile.operators == ()
    assert len(_slices(profile.trace()["traceEvents"], MEASURED)) == len(profile.spans)


def test_a_second_profile_has_operators_too(program):
    with sambarun.load(program) as executable:
        feeds = {"h0": np.ones((4, 8), np.float32)}
        first, second = (executable.profile(feeds, operators=True) for _ in range(2))
        np.testing.assert_array_equal(first.outputs["h3"], executable.run(feeds)["h3"])
    names = [each.name for each in first.operators]
    assert names == [each.name for each in second.operators]
    assert len(set(names)) == len(names)  # what is rehearsed is no part of it


def test_times_that_no_disk_had_space_for_are_told(program, monkeypatch):
    whole = InferenceSession.end_profiling

    def cut_off(session):
        path = Path(whole(session))
        path.write_bytes(path.read_bytes()[:400])
        return str(path)

    monkeypatch.setattr(InferenceSession, "end_profiling", cut_off)
    feeds = {"h0": np.ones((4, 8), np.float32)}
    with sambarun.load(program) as executable:
        with pytest.raises(sambarun.RunError, match="could not write how long operators took"):
            executable.profile(feeds, operators=True)
        assert executable.run(feeds).keys() == {"h3"}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("node 3", 3),
        ("node 12/MatMulAddFusion", 12),
        ("gemm_input_reshape", None),
        ("node x", None),
    ],
)
def test_numbers_in_names_of_nodes(name, number):
    assert number_in(name) == number
