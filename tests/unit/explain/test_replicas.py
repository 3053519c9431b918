"""Steps of replicas: times by hand, and what has to hold of every program and link."""

from __future__ import annotations

import pytest
import torch
from explained import ADAM, Net, net

import sambac
from sambac.errors import CompileError
from sambac.replicas import MODES, Link, parse_bandwidth, parse_seconds, scale, simulate
from sambac.replicas.plot import plot


@pytest.fixture(scope="module")
def program():
    """Four layers whose gradients are reduced in several parts."""
    example = torch.zeros(4, 1200), torch.zeros(4, 1200)
    options = sambac.CompileOptions(train=True, optimizers=ADAM, data_parallel=True)
    return sambac.compile(Net(4, 1200), options, inputs=example)


def _kinds(program):
    return [program.sections[section].type.name for section in program.schedule]


def _by_hand(program, seconds, link, mode):
    """Play a step through in the order of the schedule; the two modes that need no more."""
    graph = program.graphs[0]
    calls = range(graph.first_call, graph.first_call + graph.calls)
    kinds = _kinds(program)
    reduces = [call for call in calls if kinds[call] == "REDUCE"]
    sent = {call: sum(map(link, _sizes(program, call))) for call in reduces}
    others = [call for call in calls if call not in reduces]
    if mode == "normal":
        return sum(seconds[call] for call in others) + sum(sent.values())
    now = free = 0.0
    arrived = {}
    for call in calls:
        if call in reduces:
            for index, size in zip(_inputs(program, call), _sizes(program, call), strict=True):
                arrived[index] = free = max(free, now) + link(size)
            continue
        section = program.sections[program.schedule[call]]
        packs = {program.symbols[index].pack for index in (*section.inputs, *section.outputs)}
        needed = {*section.inputs, *section.outputs, *packs} & arrived.keys()
        now = max([now, *(arrived[index] for index in needed)]) + seconds[call]
    return max([now, *arrived.values()])


def _inputs(program, call):
    return program.sections[program.schedule[call]].inputs


def _sizes(program, call):
    return [program.symbols[index].size for index in _inputs(program, call)]


@pytest.mark.parametrize("mode", ["normal", "inorder"])
@pytest.mark.parametrize("bandwidth", [1e8, 1e10, 1e12])
def test_times_by_hand(mode, bandwidth, program):
    assert _kinds(program).count("REDUCE") > 1
    graph = program.graphs[0]
    seconds = {
        call: program.sections[section].estimate.latency
        for call, section in enumerate(program.schedule)
    }
    step = simulate(program, graph, seconds, lambda nbytes: nbytes / bandwidth, mode)
    expected = _by_hand(program, seconds, lambda nbytes: nbytes / bandwidth, mode)
    assert step.seconds == pytest.approx(expected)


def test_gradients_that_arrive_during_updates(program):
    """Sections of a second, a link as fast: what is hidden can be counted."""
    graph = program.graphs[0]
    kinds = _kinds(program)
    calls = range(graph.first_call, graph.first_call + graph.calls)
    seconds = {call: float(kinds[call] != "REDUCE") for call in calls}
    last = max(call for call in calls if kinds[call] == "REDUCE")
    gradients = sum(len(_inputs(program, call)) for call in calls if kinds[call] == "REDUCE")
    each = 0.25 / gradients
    step = simulate(program, graph, seconds, lambda nbytes: each, "inorder")
    behind = len(_inputs(program, last)) * each
    # Only what reads the last gradients waits for them, and is not the first to run.
    assert step.sections <= step.seconds <= step.sections + behind + 1e-9
    normal = simulate(program, graph, seconds, lambda nbytes: each, "normal")
    assert normal.seconds == pytest.approx(step.sections + 0.25)


@pytest.mark.parametrize("bandwidth", [1e7, 1e9, 1e11, 1e13])
@pytest.mark.parametrize("latency", [0.0, 1e-5])
def test_what_holds_of_every_link(bandwidth, latency, program):
    graph, link = program.graphs[0], Link(bandwidth, latency)
    steps = scale(program, graph, (1, 2, 8, 64), link)
    by = {(step.replicas, step.mode): step for step in steps}
    alone = sum(
        program.sections[program.schedule[call]].estimate.latency
        for call in range(graph.first_call, graph.first_call + graph.calls)
    )
    for (count, mode), step in by.items():
        assert step.sections == pytest.approx(alone)
        assert step.seconds >= max(alone, step.network) - 1e-12
        assert step.seconds <= by[count, "normal"].seconds + 1e-12
        assert 0 <= step.waited <= step.network + 1e-12
        assert 0 <= step.hidden <= 1
        if mode == "normal":
            assert step.seconds == pytest.approx(alone + step.network)
    for mode in MODES:
        assert by[1, mode].seconds == pytest.approx(alone)
        times = [by[count, mode].seconds for count in (1, 2, 8, 64)]
        assert times == sorted(times)


def test_the_ring_is_the_formula_of_the_page():
    link = Link(bandwidth=1e9, latency=2e-6)
    assert link.reduction(1_000_000, 4) == pytest.approx(2e-6 + 1.5e-3)
    assert link.reduction(1_000_000, 1) == 0.0


@pytest.mark.parametrize(
    ("text", "value"),
    [("25GB/s", 25e9), ("200Gbit/s", 25e9), ("1e9B/s", 1e9), ("4 MB", 4e6), ("10Gbps", 1.25e9)],
)
def test_bandwidths(text, value):
    assert parse_bandwidth(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("3us", 3e-6), ("0", 0.0), ("2e-6s", 2e-6), ("1 ms", 1e-3)]
)
def test_latencies(text, value):
    assert parse_seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "GB/s", "1 XB/s", "nan", "inf", "-1", "1e400", "0"])
def test_what_is_no_bandwidth(text):
    with pytest.raises(CompileError, match="is no bandwidth"):
        parse_bandwidth(text)


def test_a_plot_of_hostile_titles_and_of_one_count(tmp_path):
    import xml.etree.ElementTree as ET

    small = net(tmp_path, layers=1, data_parallel=True)
    steps = scale(small, small.graphs[0], (8,), Link(1e9, 0.0))
    root = ET.fromstring(plot(steps, "<script>&\"'"))
    texts = (element.text for element in root.iter() if element.tag.endswith("}text"))
    assert next(texts) == "<script>&\"'"
    assert "\u202e" not in plot(steps, "\u202egnp.exe")
