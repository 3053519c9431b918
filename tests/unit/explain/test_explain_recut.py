"""Stages of a file cut anew: as they are where nothing changed, else as a compilation does."""

from __future__ import annotations

import random

import pytest
import torch
from explained import ADAM, Net, device, net

import sambac
from benchmarks.models.build import FLOAT, GraphBuilder
from sambac.explain.changes import twice_the_batch
from sambac.explain.recut import cut_anew
from sambac.reconstruct.rebuilt import rebuild

SMALL = {"pcus": 64, "pmus": 24, "stage_pmus": 2}
LEVELS = ("O0", "O1", "O3")


def _random_model(seed, batch=16):
    """Make products, sums and activations in a few modules, some of which read far behind."""
    rng = random.Random(seed)
    g = GraphBuilder(seed)
    values = ["x"]
    for at in range(rng.randint(12, 40)):
        one, other = rng.choice(values[-4:]), rng.choice(values)
        scope = f"/n{at // 5}"
        kind = rng.choice(("MatMul", "MatMul", "Add", "Relu", "Softmax"))
        if kind == "MatMul":
            read = (one, g.random(f"w{at}", (64, 64), 0.1))
        else:
            read = (one, other) if kind == "Add" else (one,)
        values.append(g.op(kind, *read, scope=scope))
    total = values[0]
    for value in values[1:]:
        total = g.op("Add", total, value, scope="/sum")
    return g.model("random", {"x": (FLOAT, (batch, 64))}, {"y": (total, (batch, 64))})


def _sections(stage):
    return [stage.fusion.ops_of(section.groups) for section in stage.sections.sections]


def _assert_unchanged(program, level):
    rebuilt = rebuild(program)
    assert not rebuilt.differing
    again = [cut_anew(stage.plan, rebuilt.arch, level) for stage in rebuilt.stages]
    for stage, cut in zip(rebuilt.stages, again, strict=True):
        assert _sections(cut) == _sections(stage.plan)
    made, known = rebuilt.costs(stages=again), rebuilt.costs()
    assert [cost.estimate for cost in made] == [cost.estimate for cost in known]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_cut_otherwise_where_nothing_changed(seed, level, tmp_path):
    arch = device(tmp_path, **SMALL)
    options = sambac.CompileOptions(arch=arch, level=level)
    _assert_unchanged(sambac.compile(_random_model(seed), options), level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(4))
def test_nothing_grows_over_a_break(seed, level, tmp_path):
    """On a chip with room for all of it, where nothing else cuts."""
    options = sambac.CompileOptions(
        arch=device(tmp_path), level=level, section_breaks=("/n1/.*", "/sum/.*")
    )
    _assert_unchanged(sambac.compile(_random_model(seed), options), level)


@pytest.mark.parametrize("level", LEVELS)
def test_no_step_whose_gradients_are_reduced_in_parts_is_cut_otherwise(level):
    example = torch.zeros(4, 1200), torch.zeros(4, 1200)
    options = sambac.CompileOptions(
        train=True, optimizers=ADAM, data_parallel=True, level=level, max_grad_norm=1.0
    )
    program = sambac.compile(Net(4, 1200), options, inputs=example)
    assert program.graphs[0].stage_calls
    _assert_unchanged(program, level)


@pytest.mark.parametrize("level", LEVELS)
def test_no_step_is_cut_otherwise(level, tmp_path):
    arch = device(tmp_path, pcus=64, pmus=30, stage_pmus=2)
    _assert_unchanged(net(tmp_path, layers=6, level=level, arch=arch), level)


@pytest.mark.parametrize("breaks", [(), ("/n1/.*", "/sum/.*")], ids=["whole", "parts"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(8))
def test_twice_the_batch_is_cut_as_a_compilation_cuts_it(seed, level, breaks, tmp_path):
    """Values grow from a quarter of what a stage holds beyond it, so that most cuts change."""
    options = sambac.CompileOptions(
        arch=device(tmp_path, **SMALL, pmu_bytes=16384), level=level, section_breaks=breaks
    )
    rebuilt = rebuild(sambac.compile(_random_model(seed, 64), options))
    other = sambac.compile(_random_model(seed, 128), options)
    calls = rebuilt.program.schedule
    said = next(twice_the_batch(rebuilt, calls))
    assert said.sections == pytest.approx(len(other.sections), abs=1)
    took = sum(section.estimate.latency for section in other.sections)
    assert said.seconds == pytest.approx(took, rel=0.02)
