"""The comparison with measured devices: its rows, its fit, and the models that it compiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from near import assert_near

import sambac
from benchmarks.device import Compared, rank_correlation
from benchmarks.device_fit import (
    FITTED,
    descend,
    device,
    distinct,
    planned,
    require_same,
    seconds,
    with_constants,
)
from benchmarks.device_points import Prediction, options, predict, predicted, read_points
from benchmarks.models import language
from sambac.arch import arch_text, parse_arch

TINY = language.LlamaShape(hidden=32, layers=2, heads=4, kv_heads=2, inner=48, vocabulary=50)


def test_every_row_can_be_compiled_for_and_names_its_fold():
    points = read_points()
    assert {point.arch for point in points} == set(FITTED)
    assert all(point.seconds > 0 and point.fold for point in points)
    assert all(options(point).arch == point.arch for point in points)
    for arch in FITTED:
        folds = {point.fold for point in points if point.arch == arch and point.fits}
        assert len(folds) > 1


@pytest.mark.parametrize("arch", FITTED)
def test_what_is_fitted_is_marked_calibrated(arch: str):
    found = parse_arch(arch_text(arch), arch)
    assert {getattr(found, key).origin for key in FITTED[arch]} == {"calibrated"}


def test_constants_are_written_into_a_description():
    text = with_constants(arch_text("sn10"), {"launch": 0.00125, "stream_bandwidth": 3e10})
    found = parse_arch(text, "sn10")
    assert (found.launch.value, found.stream_bandwidth.value) == (0.00125, 3e10)
    assert found.peak_flops == parse_arch(arch_text("sn10"), "sn10").peak_flops
    with pytest.raises(ValueError, match="no table"):
        with_constants(text, {"hbm_efficiency": 0.5})


def test_a_descent_finds_the_constants_of_a_sum():
    best, least = descend(
        lambda c: abs(c["compute_efficiency"] - 0.6) + abs(c["launch"] - 2.0),
        {"compute_efficiency": 0.1, "launch": 9.0},
    )
    assert least < 0.05
    assert best == pytest.approx({"compute_efficiency": 0.6, "launch": 2.0}, rel=0.03)


def test_a_descent_goes_along_a_ridge():
    """Where one constant makes up for another, neither helps alone."""
    best, least = descend(
        lambda c: abs(c["launch"] * c["fill"] - 1) + 0.01 * abs(c["fill"] - 4.0),
        {"launch": 1.0, "fill": 1.0},
    )
    assert least < 0.01
    assert best == pytest.approx({"launch": 0.25, "fill": 4.0}, rel=0.05)


def test_a_share_stays_a_share():
    best, _ = descend(lambda c: -c["compute_efficiency"], {"compute_efficiency": 0.1})
    assert best == {"compute_efficiency": 1.0}


@pytest.mark.parametrize(
    ("second", "tau"), [([1, 2, 3, 4], 1), ([4, 3, 2, 1], -1), ([1, 3, 2, 4], 4 / 6)]
)
def test_rank_correlation(second, tau):
    assert rank_correlation([10, 20, 30, 40], second) == pytest.approx(tau)


def test_a_prediction_is_what_the_pef_says_of_its_first_graph():
    point = replace(read_points()[-1], hidden=64)
    found = predict(point)
    module, inputs = language.product(64, 64, 64)
    program = sambac.compile(module, options(point), inputs=inputs)
    assert found == predicted(program) == Prediction(program.sections[0].estimate.latency, 1)
    assert Compared(point, found).error == found.seconds / point.seconds - 1
    assert seconds(point, planned(point), {}) == pytest.approx(found.seconds)


def test_sections_that_ask_the_same_are_estimated_once(monkeypatch):
    class Chain(torch.nn.Module):
        def forward(self, a, b):
            for _ in range(3):
                a = torch.relu(a @ b)
            return a @ b

    with torch.device("meta"):
        chain = Chain(), (torch.zeros(64, 32), torch.zeros(32, 32))
    monkeypatch.setattr("benchmarks.device_fit.example", lambda _: chain)
    point = replace(read_points()[-1], level="O0")
    plan = planned(point)
    apart = distinct(point, plan)
    assert sorted(apart.runs) == [3, 4]
    for constants in ({}, {"compute_efficiency": 1e-7}, {"stream_bandwidth": 1e4}):
        whole = seconds(point, plan, constants)
        require_same(point, apart.seconds(device(point, constants)), whole)
    with pytest.raises(ValueError, match="the fit takes"):
        require_same(point, 1.001 * whole, whole)


def test_a_step_leaves_out_the_sections_of_the_evaluation():
    shape = language.Gpt2Shape(hidden=32, layers=1, heads=2, vocabulary=40, length=8)
    module, inputs = language.gpt2_step(shape, 2)
    chosen = sambac.CompileOptions(train=True, level="O0", arch="sn30", num_tiles=4)
    program = sambac.compile(module, chosen, inputs=inputs)
    assert predicted(program).sections == program.graphs[0].calls < len(program.sections)


def test_the_next_token_is_what_gpt2_is_compared_with():
    torch.manual_seed(0)
    shape = language.Gpt2Shape(hidden=8, layers=1, heads=2, vocabulary=9, length=5)
    module = language.Gpt2(shape).double()
    ids = torch.randint(0, 9, (2, 5))
    last = ids.clone()
    last[:, 0] = (last[:, 0] + 1) % 9  # no token comes before the first
    assert_near(module(ids, last).detach(), module(ids, ids).detach())
    last[:, -1] = (last[:, -1] + 1) % 9
    assert abs(module(ids, ids).item() - module(ids, last).item()) > 1e-3


def test_decoding_is_the_last_token_of_a_longer_prompt():
    torch.manual_seed(0)
    module = language.Llama(TINY).double()
    ids = torch.randint(0, 50, (2, 5))
    angles = torch.arange(5)[:, None] / torch.tensor([1.0, 10, 100, 1000] * 2)
    cosines, sines = angles.cos().double(), angles.sin().double()
    whole = module(ids, cosines, sines)
    _, *caches = module(ids[:, :4], cosines[:4], sines[:4])
    last, *new = module(ids[:, 4:], cosines[4:], sines[4:], *caches)
    assert_near(last.detach(), whole[0].detach())
    assert_near(new[0].detach(), whole[1][:, :, 4:].detach())


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("make", [language.prefill, language.decode])
def test_a_llama_compiles_from_shapes_at_every_level(make, level):
    module, inputs = make(TINY, 2, 6)
    chosen = sambac.CompileOptions(level=level, n_chips=4)
    program = sambac.compile(module, chosen, inputs=inputs)
    assert sum(section.estimate.latency for section in program.sections) > 0


def test_a_llama_trains_from_shapes():
    module, inputs = language.llama_step(TINY, 2, 6)
    program = sambac.compile(module, sambac.CompileOptions(train=True), inputs=inputs)
    assert {section.type.name for section in program.sections} == {"FWD", "BCKWD"}
