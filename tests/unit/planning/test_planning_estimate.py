"""The cost model: what limits a section, and what a byte costs in each region."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from pef.costs import Estimate
from pef.symbols import RegionKind
from sambac.arch import load_arch
from sambac.planning.estimate import estimate_sections, limits
from sambac.planning.fusion import plan_fusion
from sambac.planning.liveness import live_sets_of
from sambac.planning.plans import PlannedStage
from sambac.planning.sections import SectionRequest, plan_sections
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


def report(view, arch=SN40L, level="O3", homes=None):
    """Estimate sections; values lie in main memory but for those in `homes`."""
    fusion = plan_fusion(view, arch, level)
    plan = plan_sections(view, fusion, arch, SectionRequest(level))
    stage = PlannedStage(view, fusion, plan, live_sets_of(view, fusion, plan))
    everywhere = dict.fromkeys(view.values, arch.main_memory)
    costs = estimate_sections([stage], arch, everywhere | (homes or {}))
    return tuple(cost.estimate for cost in costs)


def test_bytes_and_work_are_counted_at_the_border():
    (section,) = report(chain(3))
    assert (section.flops, section.bytes_in, section.bytes_out) == (3000, 64, 64)
    assert section.bytes_weights == 3 * 64
    assert section.sram == 2 * 2 * 64
    assert section.pmus == 2 + 2 + 3


def test_a_tiny_section_is_limited_by_its_launch():
    (section,) = report(chain(1))
    assert section.limited_by == "launch"
    assert section.latency == pytest.approx(SN40L.launch.value, rel=1e-3)


def test_a_section_of_much_data_is_limited_by_memory():
    (section,) = report(chain(1, nbytes=10**9))
    assert section.limited_by == "memory"
    seconds = 3e9 / (1.8e12 * 0.85)
    assert section.latency == pytest.approx(seconds + SN40L.launch.value, rel=1e-3)
    assert section.pcus == 1


def test_a_section_of_much_work_is_limited_by_compute():
    (section,) = report(chain(2, flops=10**12))
    assert section.limited_by == "compute"
    assert section.pcus == 1040
    seconds = 2e12 / (SN40L.peak_flops.value * SN40L.compute_efficiency.value)
    assert section.latency == pytest.approx(seconds, rel=1e-2)


def test_a_deep_pipeline_has_to_fill():
    shallow, deep = (report(chain(n))[0].latency for n in (1, 101))
    assert deep - shallow == pytest.approx(100 * SN40L.fill.value, rel=1e-2)


def test_fusing_saves_launches_and_traffic():
    view = chain(8, nbytes=10**6)
    apart, together = (
        sum(section.latency for section in report(view, level=level)) for level in ("O0", "O3")
    )
    assert together < apart / 4


def test_few_streams_bound_the_bandwidth_of_sn10():
    sn10 = load_arch("sn10")
    (section,) = report(chain(1, nbytes=10**9), sn10)
    seconds = 1e9 / sn10.stream_bandwidth.value + sn10.launch.value
    assert section.latency == pytest.approx(seconds)


def test_several_kernels_have_more_streams_for_each_tensor():
    sn30, view = load_arch("sn30"), chain(2, nbytes=10**9)
    apart, together = report(view, sn30, "O0"), report(view, sn30)
    alone = 1e9 / sn30.stream_bandwidth.value
    assert [each.latency for each in apart] == pytest.approx([alone + sn30.launch.value] * 2)
    (section,) = together
    rest = sn30.launch.value + sn30.fill.value
    assert section.latency == pytest.approx(alone / sn30.fused_streams.value + rest)


def test_what_is_kept_on_chip_is_moved_before_anything_streams():
    sn10, view = load_arch("sn10"), chain(1, nbytes=10**9)
    kept = replace(view, ops={"n0": replace(view.ops["n0"], holds=("w0",))})
    seconds = [report(each, sn10)[0].latency - sn10.launch.value for each in (view, kept)]
    assert seconds[1] == pytest.approx(2 * seconds[0])


@pytest.mark.parametrize("held", [True, False])
def test_what_is_rounded_as_it_is_read_costs_what_it_would_unrounded(held: bool):
    plain = chain(1, nbytes=10**9)
    values = plain.values | {"x": replace(plain.values["v1"], name="x", nbytes=5 * 10**8)}
    cast = OpFacts("cast", "Cast", "", ("w0",), ("x",))
    product = replace(plain.ops["n0"], inputs=("v0", "x"), holds=("x",) * held)
    rounded = replace(plain, values=values, ops={"cast": cast, "n0": product})
    plain = replace(plain, ops={"n0": replace(plain.ops["n0"], holds=("w0",) * held)})
    (found,), (wanted,) = (report(each, SN40L, "O0") for each in (rounded, plain))
    assert (found.held, found.streams) == (wanted.held, wanted.streams)
    assert (found.held > 0.0) is held
    assert found.latency == pytest.approx(wanted.latency)


def test_of_a_table_only_the_rows_that_are_picked_are_moved():
    view = chain(1, nbytes=10**6)
    values = {**view.values, "w0": replace(view.values["w0"], nbytes=10**12)}
    ops = {"n0": replace(view.ops["n0"], op_type="Gather", inputs=("w0", "v0"), flops=0)}
    (section,) = report(replace(view, ops=ops, values=values))
    assert section.latency == pytest.approx(3e6 / (1.8e12 * 0.85) + SN40L.launch.value)
    assert section.bytes_weights == 10**12


def test_what_is_picked_from_and_leaves_the_section_is_written_whole():
    """n0 writes v1, an output too, of which n1 picks a few rows in the same section."""
    view = chain(2, nbytes=10**8)
    pick = replace(view.ops["n1"], op_type="Gather", inputs=("v1", "w1"), flops=0)
    sizes = {name: replace(view.values[name], nbytes=8) for name in ("w1", "v2")}
    view = replace(
        view,
        ops=view.ops | {"n1": pick},
        values=view.values | sizes,
        outputs=("v1", "v2"),
    )
    (section,) = report(view)
    # v0 and w0 are read, v1 is written: each as a whole.
    assert section.held + section.streams == pytest.approx(3e8 / (1.8e12 * 0.85), rel=1e-3)


def test_each_byte_counts_at_the_speed_of_its_region():
    """The weight alone is moved; a constant of the arch says how much slower each region is."""
    view = chain(1, nbytes=10**9)
    times = {
        kind: report(view, homes={"w0": kind})[0].latency - SN40L.launch.value
        for kind in (RegionKind.HBM, RegionKind.DDR, RegionKind.HOST)
    }
    rest = 2e9 / (1.8e12 * 0.85)
    assert times[RegionKind.HBM] == pytest.approx(rest + 1e9 / (1.8e12 * 0.85))
    assert times[RegionKind.DDR] == pytest.approx(rest + 1e9 / 200e9)
    assert times[RegionKind.HOST] == pytest.approx(rest + 1e9 / 128e9)


def test_few_streams_bound_each_region_by_itself():
    sn10 = load_arch("sn10")
    (section,) = report(chain(1, nbytes=10**9), sn10, homes={"w0": RegionKind.HOST})
    one = 1e9 / sn10.stream_bandwidth.value
    assert section.latency == pytest.approx(one + one + sn10.launch.value)


def test_a_region_of_unknown_speed_costs_nothing():
    sn30 = replace(load_arch("sn30"), stream_bandwidth=None)
    (section,) = report(chain(1, nbytes=10**9), sn30)
    assert section.latency < 1e-3


def test_more_operators_than_compute_units_share_nothing():
    arch = replace(SN40L, pcus=replace(SN40L.pcus, value=2))
    (first, *_) = report(chain(2, flops=10**12), arch)
    assert first.pcus == 2


@pytest.mark.parametrize("dim", ["n", None])
def test_open_dimensions_count_as_one(dim: str | None):
    """A model with an open batch costs what it costs for one sample; the remedy is named."""
    import sambac

    def cost(batch: int | str | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
        info, nodes = onnx.helper.make_tensor_value_info, onnx.helper.make_node
        graph = onnx.helper.make_graph(
            [nodes("Conv", ["x", "k"], ["c"], pads=[1] * 4), nodes("Relu", ["c"], ["y"])],
            "g",
            [info("x", 1, [batch, 3, 8, 8])],
            [info("y", 1, None)],
            [onnx.numpy_helper.from_array(np.ones((4, 3, 3, 3), np.float32), "k")],
        )
        opsets = [onnx.helper.make_opsetid("", 17)]
        program = sambac.compile(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8))
        (section,) = program.sections
        found = section.estimate
        return (found.flops, found.bytes_in, found.bytes_out, found.pcus), program.warnings

    fixed, silent = cost(1)
    assert fixed[0] == 2 * 4 * 8 * 8 * 27 + 4 * 8 * 8
    assert not silent
    found, (warning,) = cost(dim)
    assert found == fixed
    assert warning == (
        "the size of 3 values is known only at run time; the modelled costs take 1 for every open "
        "dimension; fix them for costs of a real run, for instance with --input x=8x3x8x8"
    )


@pytest.mark.parametrize(
    ("compute", "streams", "memory"), [(10.0, 9.0, 2.0), (9.0, 10.0, 12.0), (9.0, 9.0, 2.0)]
)
def test_what_hides_behind_something_longer_limits_nothing(compute, streams, memory):
    parts = limits(Estimate(held=2.0, compute=compute, streams=streams, launch=1.0))
    assert (parts["memory"], sum(parts.values())) == (memory, 3.0 + max(compute, streams))
