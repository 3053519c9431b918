"""What would help: what is estimated again is what a compilation for that device gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from explained import device, heavy, net

import sambac
from benchmarks.models import language, synthetic
from sambac.explain import explain

SMALL = {"pcus": 64, "pmus": 24, "stage_pmus": 2, "ddr_bandwidth": 2e9}
HELP = "What would help most (modelled, one thing changed at a time)"


def _changes(program, name=None):
    (found,) = explain(program, name)
    facts = [fact for fact in found.facts if fact.topic == HELP]
    return {fact.numbers["change"]: fact.numbers for fact in facts}


def _time(program):
    graph = program.graphs[0]
    calls = program.schedule[graph.first_call : graph.first_call + graph.calls]
    return sum(program.sections[section].estimate.latency for section in calls)


def _compiled(tmp_path, level="O0", **numbers):
    arch = device(tmp_path, **{**SMALL, **numbers})
    model = synthetic.heavy(layers=3, width=64)
    return sambac.compile(model, sambac.CompileOptions(arch=arch, level=level))


@pytest.mark.parametrize(
    ("change", "number", "factor"),
    [
        ("Launches in half the time", "launch", 0.5),
        ("DDR of twice the bandwidth", "ddr_bandwidth", 2.0),
        ("Streams of twice the bandwidth", "stream_bandwidth", 2.0),
    ],
)
def test_a_faster_device_takes_what_was_said(change, number, factor, tmp_path):
    """At O0 sections do not depend on the device, so that the plan stays as it is."""
    streams = {"stream_bandwidth": 1e9} if number == "stream_bandwidth" else {}
    program = _compiled(tmp_path, **streams)
    value = next(each.value for each in program.device if each.name == number)
    other = _compiled(tmp_path, **{**streams, number: factor * value})
    said = _changes(program)[change]
    assert said["before"] == pytest.approx(_time(program))
    assert said["seconds"] == pytest.approx(_time(other))
    assert said["saved_share"] == pytest.approx(1 - _time(other) / _time(program))


def test_another_level_takes_what_was_said(tmp_path):
    said = _changes(_compiled(tmp_path))["Level O3"]
    other = _compiled(tmp_path, level="O3")
    assert said["sections"] == len(other.sections)
    assert said["seconds"] == pytest.approx(_time(other))


def test_more_memory_units_take_what_was_said(tmp_path):
    said = _changes(heavy(tmp_path))["Twice the memory units"]
    other = heavy(tmp_path, numbers={"pmus": 48})
    assert said["sections"] == len(other.sections)
    assert said["seconds"] == pytest.approx(_time(other))


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("chips", [2, 3])
def test_one_chip_alone_takes_what_was_said(chips, level, tmp_path):
    """The log says it, too, where it is faster; one chip has room for fewer sections here."""
    arch = device(tmp_path, "sn40l", pcus=64, pmus=24, stage_pmus=2, link_latency=3e-6)
    model = synthetic.heavy(layers=6, width=64)
    options = sambac.CompileOptions(arch=arch, level=level, n_chips=chips)
    program = sambac.compile(model, options)
    alone = sambac.compile(model, replace(options, n_chips=None))
    assert not any("chips" in text for text in alone.warnings)
    faster = _time(alone) < _time(program)
    assert any("leave out n_chips" in text for text in program.warnings) is faster
    said = _changes(program).get("One chip alone")
    assert (said is not None) is faster
    if said is not None:
        assert said["sections"] == len(alone.sections)
        assert said["seconds"] == pytest.approx(_time(alone))


@pytest.mark.parametrize(("latency", "faster"), [(1e-3, True), (1e-9, False)])
def test_chips_are_of_use_where_links_are_fast(latency, faster, tmp_path):
    arch = device(tmp_path, "sn40l", link_latency=latency)
    model = synthetic.heavy(layers=2, width=1024)
    program = sambac.compile(model, sambac.CompileOptions(arch=arch, n_chips=2))
    assert ("One chip alone" in _changes(program)) is faster
    assert any("leave out n_chips" in text for text in program.warnings) is faster


def test_one_chip_without_room_is_no_change(tmp_path):
    numbers = {"hbm_capacity": 40_000, "ddr_capacity": 40_000}
    arch = device(tmp_path, "sn40l", link_latency=1e-3, **numbers)
    model = synthetic.heavy(layers=4, width=64)
    program = sambac.compile(model, sambac.CompileOptions(arch=arch, n_chips=4))
    assert "One chip alone" not in _changes(program)


def test_twice_the_batch_takes_what_was_said(tmp_path):
    model = synthetic.heavy(layers=3, width=64, batch=32)
    options = sambac.CompileOptions(arch=device(tmp_path, **SMALL), level="O0")
    other = sambac.compile(model, options)
    said = _changes(_compiled(tmp_path))["Twice the batch"]
    assert said["per"] == 2
    assert said["seconds"] == pytest.approx(_time(other))
    assert said["saved_share"] == pytest.approx(1 - _time(other) / 2 / said["before"])


@pytest.mark.parametrize(
    ("level", "dtype"),
    [("O0", torch.bfloat16), ("O3", torch.float32), ("O3", torch.bfloat16)],
)
def test_twice_the_batch_of_a_training_step(level, dtype):
    """Also where the host keeps more bits than the model has; weights that are cast stay."""
    shape = language.Gpt2Shape(hidden=128, layers=1, heads=2, vocabulary=5000, length=128)
    options = sambac.CompileOptions(level=level, arch="sn30", train=True)

    def compiled(batch):
        module, inputs = language.gpt2_step(shape, batch, dtype)
        return sambac.compile(module, options, inputs=inputs)

    program, other = compiled(8), compiled(16)
    assert len(program.sections) == len(other.sections)
    # Sums over the batch that a section casts before they are gradients count twice, too.
    assert _changes(program)["Twice the batch"]["seconds"] == pytest.approx(_time(other), rel=0.01)


def test_twice_the_batch_of_a_step_that_is_cut_otherwise():
    """In more sections it takes longer for each sample, in the same it would take less."""
    shape = language.Gpt2Shape(hidden=256, layers=1, heads=4, vocabulary=5000, length=128)
    options = sambac.CompileOptions(level="O3", arch="sn30", num_tiles=1, train=True)

    def compiled(batch):
        module, inputs = language.gpt2_step(shape, batch, torch.float32)
        return sambac.compile(module, options, inputs=inputs)

    program, other = compiled(8), compiled(16)
    assert len(program.sections) < len(other.sections)
    assert _time(other) > 2 * _time(program)
    assert "Twice the batch" not in _changes(program)


def test_everything_in_hbm_takes_what_a_larger_one_does(tmp_path):
    def compiled(capacity):
        arch = device(tmp_path, base="sn40l", pcus=64, pmus=400, hbm_capacity=capacity)
        return net(tmp_path, arch=arch, width=256)

    said = _changes(compiled(1_000_000))["Everything in HBM"]
    assert said["seconds"] == pytest.approx(_time(compiled(1_000_000_000)))


def test_a_section_is_estimated_by_itself(tmp_path):
    program = _compiled(tmp_path)
    said = _changes(program, "section:/layer.0/MatMul")["Launches in half the time"]
    launch = program.sections[0].estimate.launch
    assert said["before"] - said["seconds"] == pytest.approx(launch / 2)


def test_what_helps_most_comes_first_and_nothing_that_does_not(tmp_path):
    for program in (heavy(tmp_path), net(tmp_path), _compiled(tmp_path)):
        saved = [numbers["saved_share"] for numbers in _changes(program).values()]
        assert saved == sorted(saved, reverse=True)
        assert all(share >= 0.001 for share in saved)


def test_parts_of_the_time_add_up(tmp_path):
    for program in (heavy(tmp_path), net(tmp_path)):
        (found,) = explain(program)
        numbers = found.facts[0].numbers
        parts = ("compute", "memory", "launch", "fill", "link")
        assert sum(numbers[part] for part in parts) == pytest.approx(numbers["seconds"])
        assert numbers["seconds"] == pytest.approx(_time(program))


def test_terms_of_a_section_are_said_as_the_file_has_them(tmp_path):
    program = heavy(tmp_path)
    for number, section in enumerate(program.sections):
        (found,) = explain(program, str(number))
        facts = [fact.numbers for fact in found.facts if "made of" in fact.topic]
        assert facts[0]["latency"] == section.estimate.latency
        assert facts[1]["limited_by"] == section.estimate.limited_by
        moved = {
            fact["term"]: max(fact["together"], fact["alone"])
            for fact in facts[2:]
            if "term" in fact
        }
        assert moved == pytest.approx(
            {"held": section.estimate.held, "streams": section.estimate.streams}
        )
        slowest = next(fact for fact in facts if "slowest" in fact)
        assert slowest["seconds"] == pytest.approx(section.estimate.compute)
