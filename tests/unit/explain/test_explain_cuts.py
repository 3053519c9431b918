"""Why sections end: each number is computed again, from the graph before it was planned."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import chain, pairwise

import onnx_ir as ir
import pytest
from explained import device, heavy, net

import sambac
from benchmarks.models.build import FLOAT, GraphBuilder
from sambac.arch import load_arch
from sambac.explain import explain
from sambac.pipeline import lower_model
from sambac.planning.from_model import view_of

HALF_CHIP = 2


def _cut(program, number):
    (found,) = explain(program, str(number))
    return next(f for f in found.facts if f.topic == "Why the section ends there").numbers


def _random_model(seed):
    """A graph of products and sums of rows, which now and then read what is far behind."""
    rng = random.Random(seed)
    g = GraphBuilder(seed)
    values = ["x"]
    for at in range(rng.randint(12, 30)):
        one, other = rng.choice(values[-4:]), rng.choice(values)
        if rng.random() < 0.5:
            weight = g.random(f"w{at}", (64, 64), 0.1)
            values.append(g.op("MatMul", one, weight, scope=f"/n{at}"))
        else:
            values.append(g.op("Add", one, other, scope=f"/n{at}"))
    total = values[0]
    for value in values[1:]:
        total = g.op("Add", total, value, scope="/sum")
    return g.model("random", {"x": (FLOAT, (16, 64))}, {"y": (total, (16, 64))})


def _needs(view, ops, arch):
    """Return PCUs and PMUs of `ops` as the table in docs/concepts.md says, written anew."""
    unit = int(arch.pmu_bytes.value)
    held = {v for op in view.ops.values() if not op.cloned for name in op.holds
            for v in view.behind(name)}  # fmt: skip
    made = {value for op in ops for value in view.ops[op].outputs}
    read = {value for op in ops for value in view.reads[op]}
    pmus = 0
    for value in made | read:
        nbytes = view.values[value].nbytes or 0
        if value in held:
            nbytes = min(nbytes, int(arch.pmus.value) * unit // HALF_CHIP)
        elif value in made and value in read:
            nbytes = min(2 * nbytes, int(arch.stage_pmus.value) * unit)
        else:
            nbytes = unit
        pmus += max(-(-nbytes // unit), 1)
    return sum(view.ops[op].flops > 0 for op in ops), pmus


def _traffic(view, sections):
    """Return the bytes that cross between `sections`, which are lists of operators."""
    home = {op: at for at, ops in enumerate(sections) for op in ops}
    total = 0
    for value, maker in view.producer.items():
        if maker not in home:
            continue
        readers = {home[op] for op in home if value in view.reads[op]} - {home[maker]}
        written = bool(readers) and value not in view.outputs
        total += (len(readers) + written) * (view.values[value].nbytes or 0)
    return total


def _ops(section):
    return [op.name for group in section.groups for op in group.operators]


@pytest.mark.parametrize("seed", range(12))
def test_numbers_of_cuts_are_right(seed, tmp_path):
    arch_file = device(tmp_path, pcus=64, pmus=24, stage_pmus=2)
    arch = load_arch(arch_file)
    model = _random_model(seed)
    options = sambac.CompileOptions(arch=arch_file)
    program = sambac.compile(model, options)
    _, lowered = lower_model(ir.from_proto(model), options, lambda stage: None)
    view = view_of(lowered.graphs[0].model)
    sections = program.sections
    assert len(sections) > 1
    limits = {"pcus": int(arch.pcus.value), "pmus": int(arch.pmus.value)}
    for number, (one, other) in enumerate(pairwise(sections)):
        said = _cut(program, number)
        assert said["cut"] in ("limit", "together")
        more = other.groups[:1] if said["cut"] == "limit" else other.groups
        ops = [*_ops(one), *(op.name for group in more for op in group.operators)]
        needs = dict(zip(("pcus", "pmus"), _needs(view, ops, arch), strict=True))
        over = {unit: need for unit, need in needs.items() if need > limits[unit]}
        assert over
        for unit, need in over.items():
            assert said[f"{unit}_needed"] == need
            assert said[f"{unit}_there"] == limits[unit]
            assert said[f"{unit}_over"] == need - limits[unit]
        if "next_best_bytes" in said:
            _check_places(view, arch, sections, number, said)


def _check_places(view, arch, sections, number, said):
    """Look at every place to cut between two sections."""
    parts = [_ops(section) for section in sections]
    groups = [
        [op.name for op in group.operators]
        for section in sections[number : number + 2]
        for group in section.groups
    ]
    here = len(sections[number].groups)
    now = _traffic(view, parts)
    found = []
    for cut in range(1, len(groups)):
        sides = [[*chain(*groups[:cut])], [*chain(*groups[cut:])]]
        fits = all(
            len(side) == 1 or (pcus <= arch.pcus.value and pmus <= arch.pmus.value)
            for side, ops in ((groups[:cut], sides[0]), (groups[cut:], sides[1]))
            for pcus, pmus in (_needs(view, ops, arch),)
        )
        if cut != here and fits:
            found.append(_traffic(view, [*parts[:number], *sides, *parts[number + 2 :]]) - now)
    assert len(found) + 1 == said["places"]
    assert min(found) == said["next_best_bytes"] >= 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", ["O0", "O3"])
def test_gaps_to_lower_bounds(seed, level, tmp_path):
    arch_file = device(tmp_path, pcus=64, pmus=24, stage_pmus=2)
    options = sambac.CompileOptions(arch=arch_file, level=level)
    program = sambac.compile(_random_model(seed), options)
    _, lowered = lower_model(ir.from_proto(_random_model(seed)), options, lambda stage: None)
    view = view_of(lowered.graphs[0].model, clone_views=level == "O0")
    (found,) = explain(program)
    sections, traffic = (f.numbers for f in found.facts if f.topic.startswith("How near"))
    # Of the memory units no value takes less than one, and a computing operator takes one unit.
    everything, _ = _needs(view, view.ops, load_arch(arch_file))
    assert sections["sections"] == len(program.sections)
    assert -(-everything // 64) <= sections["least"] <= len(program.sections)
    assert traffic["bytes"] == _traffic(view, [_ops(section) for section in program.sections])
    assert 0 < traffic["least"] <= traffic["bytes"]
    assert level == "O3" or traffic["least"] == traffic["bytes"]


def test_a_section_ends_with_its_type(tmp_path):
    program = net(tmp_path)
    kinds = [section.type.name for section in program.sections]
    for number in range(program.graphs[0].calls - 1):
        is_border = kinds[number] != kinds[number + 1]
        assert (_cut(program, number)["cut"] == "type") is is_border
    assert _cut(program, program.graphs[0].calls - 1)["cut"] == "end"


def test_every_level_has_its_reason(tmp_path):
    assert _cut(heavy(tmp_path, level="O0"), 0)["cut"] == "level"
    assert _cut(heavy(tmp_path, level="O1"), 0)["cut"] == "module"
    assert _cut(heavy(tmp_path, sections=4), 1) == {"cut": "count", "sections": 4}
    assert _cut(heavy(tmp_path, mapping="spatial", numbers={"pmus": 400}), 0)["cut"] == "end"


def test_breaks_are_named(tmp_path):
    options = {"section_breaks": ("/layer.4/MatMul",), "numbers": {"pmus": 400}}
    program = heavy(tmp_path, **options)
    assert program.graphs[0].stage_calls == (1,)
    text = _why(program)
    assert "was planned by itself: section_breaks ask for cuts: '/layer.4/MatMul'" in text
    older = replace(program, graphs=(replace(program.graphs[0], stage_calls=()),))
    assert "It fits on the chip together with" in _why(older)
    assert "but section_breaks ask for cuts: '/layer.4/MatMul'" in _why(older)


def test_a_break_counts_before_the_room_that_there_is(tmp_path):
    """Even where the chip does not hold both sections either."""
    program = heavy(tmp_path, section_breaks=("/layer.4/MatMul",))
    (call,) = program.graphs[0].stage_calls
    cuts = [_cut(program, number)["cut"] for number in range(len(program.sections))]
    assert cuts.count("break") == 1
    assert cuts[call - 1] == "break"


def test_chips_begin_with_sections_of_their_own(tmp_path):
    program = heavy(tmp_path, chip_breaks=("/layer.4/MatMul",), numbers={"pmus": 400})
    assert _cut(program, 0)["cut"] == "chip"
    assert "The next chip of the pipeline begins with the next section" in _why(program)


def _why(program):
    (found,) = explain(program, "0")
    return next(f.text for f in found.facts if f.topic == "Why the section ends there")


def test_updates_that_wait_for_parts_of_the_gradients():
    import torch
    from explained import ADAM, Net

    example = torch.zeros(4, 1200), torch.zeros(4, 1200)
    options = sambac.CompileOptions(train=True, optimizers=ADAM, data_parallel=True)
    program = sambac.compile(Net(4, 1200), options, inputs=example)
    reduces = sum(section.type.name == "REDUCE" for section in program.sections)
    assert reduces > 1
    numbers = [n for n, s in enumerate(program.sections) if s.type.name == "OPT"]
    assert _cut(program, numbers[0]) == {"cut": "reductions", "reductions": reduces}
