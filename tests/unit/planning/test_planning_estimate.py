"""The cost model: what limits a section, and what it says of unknowns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sambac.arch import load_arch
from sambac.planning.borders import borders_of
from sambac.planning.estimate import estimate
from sambac.planning.fusion import plan_fusion
from sambac.planning.sections import Wish, plan_sections
from sambac.planning.view import DataflowView, OpFacts, ValueFacts, ValueRole

SN40L = load_arch("sn40l")


def chain(count: int, *, flops: int = 1000, nbytes: int | None = 64) -> DataflowView:
    """Return `count` products in a row, each with a weight."""
    values, ops = {}, {}
    for index in range(count + 1):
        role = ValueRole.ACTIVATION if index else ValueRole.INPUT
        for name, kind in ((f"v{index}", role), (f"w{index}", ValueRole.WEIGHT)):
            values[name] = ValueFacts(name, kind, 1, None, "tensor(float)", nbytes)
    for index in range(count):
        name = f"n{index}"
        ins, outs = (f"v{index}", f"w{index}"), (f"v{index + 1}",)
        ops[name] = OpFacts(name, "MatMul", "", ins, outs, flops=flops)
    return DataflowView(ops, values, ("v0",), (f"v{count}",))


def report(view, arch=SN40L, level="O3"):
    fusion = plan_fusion(view, arch, level)
    plan = plan_sections(view, fusion, arch, Wish(level))
    return estimate(view, fusion, plan, borders_of(view, fusion, plan), arch)


def test_bytes_and_work_are_counted_at_the_border():
    (section,) = report(chain(3)).sections
    assert (section.flops, section.bytes_in, section.bytes_out) == (3000, 64, 64)
    assert section.bytes_weights == 3 * 64
    assert section.sram == 2 * 2 * 64
    assert section.pmus == 2 + 2 + 3


def test_a_tiny_section_is_limited_by_its_launch():
    (section,) = report(chain(1)).sections
    assert section.limited_by == "launch"
    assert section.latency == pytest.approx(SN40L.launch.value, rel=1e-3)


def test_a_section_of_much_data_is_limited_by_memory():
    (section,) = report(chain(1, nbytes=10**9)).sections
    assert section.limited_by == "memory"
    seconds = 3e9 / (1.8e12 * 0.85)
    assert section.latency == pytest.approx(seconds + SN40L.launch.value, rel=1e-3)
    assert section.pcus == 1


def test_a_section_of_much_work_is_limited_by_compute():
    (section,) = report(chain(2, flops=10**12)).sections
    assert section.limited_by == "compute"
    assert section.pcus == 1040
    seconds = 2e12 / (SN40L.peak_flops.value * SN40L.compute_efficiency.value)
    assert section.latency == pytest.approx(seconds, rel=1e-2)


def test_a_deep_pipeline_has_to_fill():
    shallow, deep = (report(chain(n)).sections[0].latency for n in (1, 101))
    assert deep - shallow == pytest.approx(100 * SN40L.fill.value, rel=1e-2)


def test_fusing_saves_launches_and_traffic():
    view = chain(8, nbytes=10**6)
    apart, together = (
        sum(section.latency for section in report(view, level=level).sections)
        for level in ("O0", "O3")
    )
    assert together < apart / 4


def test_few_streams_bound_the_bandwidth_of_sn10():
    sn10 = load_arch("sn10")
    (section,) = report(chain(1, nbytes=10**9), sn10).sections
    assert section.latency == pytest.approx(3e9 / (3 * 28e9), rel=1e-3)


def test_an_unknown_bandwidth_is_said():
    result = report(chain(1, nbytes=10**9), load_arch("sn30"))
    assert result.sections[0].latency < 1e-3
    assert result.warnings == (
        (
            "sn30: the bandwidth of DDR is not published, so the modelled latencies leave out the "
            "time of memory"
        ),
    )


def test_unknown_sizes_are_said():
    result = report(chain(2, nbytes=None))
    assert "leave out 6 values whose size is known only at run time" in result.warnings[0]


def test_more_operators_than_compute_units_share_nothing():
    arch = replace(SN40L, pcus=replace(SN40L.pcus, value=2))
    (first, *_) = report(chain(2, flops=10**12), arch).sections
    assert first.pcus == 2
