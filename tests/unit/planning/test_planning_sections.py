"""Sections at the three levels, their live_sets, and what the checker finds."""

from __future__ import annotations

import re
from dataclasses import replace

import onnx
import pytest

import sambac
from pef import dtypes
from pef.program import SectionType
from sambac.arch import arch_text, load_arch
from sambac.errors import CompileError
from sambac.planning.check_sections import check_sections
from sambac.planning.fusion import plan_fusion
from sambac.planning.liveness import live_sets_of
from sambac.planning.plans import LiveSets
from sambac.planning.resources import Limits, Use, use_of, value_use
from sambac.planning.sections import SectionRequest, lower_bound, plan_sections, traffic_of
from sambac.planning.view import contracted

ARCH = load_arch("sn40l")


def chip(*, pcus: int = 1000, pmus: int = 1000, pmu_bytes: int = 64):
    return replace(
        ARCH,
        pcus=replace(ARCH.pcus, value=pcus),
        pmus=replace(ARCH.pmus, value=pmus),
        pmu_bytes=replace(ARCH.pmu_bytes, value=pmu_bytes),
    )


def chain(length: int) -> str:
    return "\n".join(f"n{i}: MatMul(v{i}, w{i}) -> v{i + 1}" for i in range(length))


def planned(view, arch, level="O3", **options):
    fusion = plan_fusion(view, arch, level, at_least=options.get("count", 0))
    plan = plan_sections(view, fusion, arch, SectionRequest(level, **options))
    live_sets = live_sets_of(view, fusion, plan)
    assert check_sections(view, fusion, plan, live_sets, arch) == []
    return plan, live_sets


def ops_of(live_sets):
    return [sets.ops for sets in live_sets]


def test_o0_has_a_section_for_each_operator(make_view):
    plan, live_sets = planned(make_view(chain(3)), ARCH, "O0")
    assert [section.name for section in plan.sections] == ["n0", "n1", "n2"]
    assert live_sets[1] == LiveSets(("n1",), ("v1",), ("w1",), ("v2",))
    assert plan.traffic == plan.lower_bound == 4 * 64


def test_o1_lines_groups_up_so_that_modules_stay_together(make_view):
    """What turns a weight over is needed as late as what is looked up, and as far from its end."""
    text = """
        look: Gather(w1, x) -> a
        turn: Neg(y) -> b
        turn2: Neg(b) -> c
        layer: MatMul(a, c) -> d
    """
    modules = {"look": "table", "turn": "layer", "turn2": "layer", "layer": "layer"}
    plan, live_sets = planned(make_view(text, modules=modules), ARCH, "O1")
    assert ops_of(live_sets) == [("look",), ("turn", "turn2", "layer")]
    assert [section.name for section in plan.sections] == ["table", "layer"]


def test_o3_has_one_section_where_the_chip_holds_all(make_view):
    plan, live_sets = planned(make_view(chain(5)), ARCH)
    assert (len(plan.sections), plan.traffic) == (1, 0)
    assert live_sets[0].live_in == ("v0",)
    assert live_sets[0].live_out == ("v5",)


def test_o3_cuts_where_least_crosses(make_view):
    """Four buffers of four units and streams do not fit; the smallest value is cut."""
    view = make_view(chain(4), sizes={"v1": 128, "v2": 16, "v3": 128})
    plan, live_sets = planned(view, chip(pmus=8))
    assert ops_of(live_sets) == [("n0", "n1"), ("n2", "n3")]
    assert plan.traffic == 2 * 16


def test_compute_units_bound_a_section(make_view):
    _, live_sets = planned(make_view(chain(4)), chip(pcus=2))
    assert [len(ops) for ops in ops_of(live_sets)] == [2, 2]


def test_a_single_operator_is_legal_and_flagged_with_numbers(make_view):
    view = make_view("join: Concat(a, b, c, d) -> e")
    plan, _ = planned(view, chip(pmus=3))
    assert plan.warnings == (
        "section section_0 is larger than the chip: it needs 1 of 1000 PCUs and 5 of 3 PMUs",
    )


def test_sections_are_of_one_type(make_view):
    view = make_view(chain(4), types={"n2": SectionType.OPT, "n3": SectionType.OPT})
    plan, live_sets = planned(view, ARCH)
    assert [section.type for section in plan.sections] == [SectionType.FWD, SectionType.OPT]
    assert ops_of(live_sets) == [("n0", "n1"), ("n2", "n3")]


def test_o1_makes_sections_of_modules(make_view):
    modules = {"n0": "layer.0", "n1": "layer.0", "n2": "layer.1", "n3": "layer.0"}
    plan, live_sets = planned(make_view(chain(5), modules=modules), ARCH, "O1")
    assert ops_of(live_sets) == [("n0", "n1"), ("n2",), ("n3",), ("n4",)]
    names = [section.name for section in plan.sections]
    assert names == ["layer.0", "layer.1", "layer.0 (2)", "n4"]


def test_o1_cuts_a_module_that_the_chip_does_not_hold(make_view):
    modules = {f"n{i}": "m" for i in range(4)}
    _, live_sets = planned(make_view(chain(4), modules=modules), chip(pcus=3), "O1")
    assert len(live_sets) == 2


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_a_number_of_sections_is_followed(make_view, count: int):
    plan, live_sets = planned(make_view(chain(12)), ARCH, count=count)
    lengths = [len(ops) for ops in ops_of(live_sets)]
    assert len(lengths) == count
    assert max(lengths) <= 2 * min(lengths) + 1
    assert plan.warnings == ()


def test_even_cuts_move_to_where_least_crosses(make_view):
    sizes = {f"v{i}": 1000 for i in range(17)} | {"v7": 8}
    _, live_sets = planned(make_view(chain(16), sizes=sizes), ARCH, count=2)
    assert [len(ops) for ops in ops_of(live_sets)] == [7, 9]


def test_more_sections_than_operators_are_not_possible(make_view):
    plan, _ = planned(make_view(chain(3)), ARCH, count=20)
    assert plan.warnings == ("20 sections were asked for, the graph gives 3",)


@pytest.mark.parametrize(
    ("level", "options", "message"),
    [
        ("O3", {"count": 0}, "Cannot cut a model into 0 sections"),
        ("O0", {"count": 3}, "only at O3"),
        ("O3", {"count": 3, "mapping": "spatial"}, "only at O3 with the mapping 'section'"),
    ],
)
def test_impossible_numbers_of_sections_are_refused(make_view, level, options, message):
    view = make_view(chain(3))
    with pytest.raises(CompileError, match=message):
        plan_sections(view, plan_fusion(view, ARCH, level), ARCH, SectionRequest(level, **options))


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_spatial_mapping_wants_everything_resident(make_view, level: str):
    view = make_view(chain(4))
    plan, _ = planned(view, chip(), level, mapping="spatial")
    assert len(plan.sections) == (1 if level == "O3" else 4)
    refused = r"does not fit sn40l.*would take 4 of 3 PCUs and \d+ of 1000 PMUs"
    with pytest.raises(CompileError, match=refused):
        planned(view, chip(pcus=3), level, mapping="spatial")


def test_spatial_mapping_counts_all_stages_and_graphs(tmp_path):
    """A graph, and the largest stage of a step, fit a chip that does not hold what all take."""
    weight = ",".join(["1"] * 16)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        net (float[4,4] x) => (float[4,4] y) <float[4,4] w = {{{weight}}}> {{ y = MatMul(x, w) }}"""
    )

    def options(pcus: int, **others) -> sambac.CompileOptions:
        text = re.sub(r"(\[pcus\]\nvalue =) \d+", rf"\g<1> {pcus}", arch_text("sn40l"), count=1)
        (tmp_path / "small.toml").write_text(text)
        return sambac.CompileOptions(mapping="spatial", arch=str(tmp_path / "small.toml"), **others)

    assert len(sambac.compile(model, options(pcus=1)).sections) == 1
    graphs = [sambac.GraphSource(name, model) for name in "abcd"]
    with pytest.raises(CompileError, match="its 4 sections would take 4 of 1 PCUs"):
        sambac.compile_graphs(graphs, options(pcus=1))
    # Each of the three stages takes four.
    with pytest.raises(CompileError, match="its 3 sections would take 12 of 4 PCUs"):
        sambac.compile(model, options(pcus=4, train=True, loss=("mse:y,target",)))


def test_a_model_without_operators_has_no_sections(make_view):
    plan, live_sets = planned(make_view(""), ARCH)
    assert (plan.sections, live_sets) == ((), ())


# Borders


def test_clones_run_where_they_are_read(make_view):
    view = make_view(
        """
        shape*: Shape(x) -> s
        size*: Gather(s) -> t
        one: Relu(x) -> a
        two: Reshape(a, t) -> b
        """
    )
    _, live_sets = planned(view, ARCH, "O0")
    assert live_sets == (
        LiveSets(("one",), ("x",), (), ("a",)),
        LiveSets(("shape", "size", "two"), ("x", "a"), (), ("b",)),
    )


def test_what_a_clone_reads_crosses_the_border(make_view):
    view = make_view("one: Relu(x) -> a\nshape*: Shape(a) -> s\ntwo: Expand(y, s) -> b")
    plan, live_sets = planned(view, ARCH, "O0")
    assert live_sets[1].live_in == ("a", "y")
    assert live_sets[0].live_out == ("a",)
    assert plan.traffic == 128


def test_constant_clones_need_nothing(make_view):
    view = make_view("fill*: ConstantOfShape() -> k\none: Add(x, k) -> a\ntwo: Add(a, k) -> b")
    _, live_sets = planned(view, ARCH, "O0")
    assert [(sets.ops, sets.live_in) for sets in live_sets] == [
        (("fill", "one"), ("x",)),
        (("fill", "two"), ("a",)),
    ]


def test_outputs_are_what_others_or_the_caller_read(make_view):
    view = make_view(
        "one: Split(x) -> a, b, c\ntwo: Relu(a) -> d\nthree: Neg(c) -> e", outputs="c e x"
    )
    _, live_sets = planned(view, ARCH, "O0")
    assert live_sets[0].live_out == ("a", "c")
    assert [sets.live_out for sets in live_sets] == [("a", "c"), (), ("e",)]


# Resources and traffic


@pytest.mark.parametrize(
    ("nbytes", "pmus"), [(None, 1), (0, 1), (32, 1), (33, 2), (64, 2), (65, 3)]
)
def test_a_buffer_is_double_and_rounded_to_memory_units(make_view, nbytes, pmus):
    view = make_view("one: Relu(x) -> a", sizes={"a": nbytes})
    assert value_use(view, Limits(10, 10, 64)).inside["a"] == pmus


def test_a_stage_holds_tiles_of_what_streams(make_view):
    view = make_view("one: Relu(x) -> a", sizes={"x": 64, "a": 10**6})
    values = value_use(view, Limits(10, 100, 64, stage_pmus=3))
    assert values.inside == {"x": 2, "a": 3}
    assert values.outside == {"x": 1, "a": 1}


def test_what_a_product_keeps_is_on_chip_as_a_whole_or_in_blocks(make_view):
    view = make_view(
        "turn*: Transpose(w) -> t\none: MatMul(x, t) -> a\ntwo: MatMul(a, w2) -> b",
        sizes={"w": 640, "t": 640, "w2": 64_000},
    )
    held = {"one": ("t",), "two": ("w2",)}
    ops = {name: replace(op, holds=held.get(name, ())) for name, op in view.ops.items()}
    view = replace(view, ops=ops)
    limits = Limits(10, 100, 64, stage_pmus=3)
    values = value_use(view, limits)
    assert (values.inside["w"], values.outside["w"], values.outside["w2"]) == (10, 10, 50)
    use = use_of(view, ["one", "two"], limits, values)
    assert use == Use(pcus=2, pmus=1 + 10 + 2 + 50 + 1, sram=640 + 128 + 3200)


def test_use_counts_buffers_inside_and_streams_at_the_border(make_view):
    view = make_view(
        "one: MatMul(x, w) -> a\ntwo: Reshape(a) -> b", sizes={"a": 128}, flops={"two": 0}
    )
    limits = Limits(10, 10, 64)
    use = use_of(view, ["one", "two"], limits, value_use(view, limits))
    assert use == Use(pcus=1, pmus=1 + 1 + 4 + 1, sram=256)


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_rounding_takes_no_buffer_though_others_read_the_wide_numbers(make_view, level):
    text = "one: MatMul(x, w) -> a\ndown: Cast(a) -> b"
    sizes = {"a": 640, "b": 320}
    alone = make_view(text, sizes=sizes, outputs="b")
    plan, _ = planned(alone, chip(pmus=4), level)
    assert (len(plan.sections), plan.traffic, plan.warnings) == (1, 0, ())
    use = use_of(alone, ["one", "down"], Limits(10, 10, 64), value_use(alone, Limits(10, 10, 64)))
    assert use == Use(pcus=2, pmus=4, sram=0)
    shared = make_view(f"{text}\ntwo: Neg(a) -> c", sizes=sizes, outputs="b c")
    plan, live_sets = planned(shared, chip(pmus=4), level)
    assert ops_of(live_sets) == [("one", "down"), ("two",)]
    assert (plan.traffic, plan.warnings) == (2 * 640, ())


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("text", "kind", "sizes"),
    [
        ("one: MatMul(x, w) -> a\nup: Cast(a) -> b", "float16", {"a": 320, "b": 640}),
        ("one: MatMul(x, w) -> a\nup: Cast(a) -> b", "bfloat16", {"a": 320, "b": 640}),
        ("down: Cast(w) -> a\none: MatMul(x, a) -> b", "float16", {"w": 640, "a": 320}),
    ],
)
def test_a_section_with_casts_beside_its_product_fits_as_planned(
    make_view, level, text, kind, sizes
):
    view = make_view(text, sizes=sizes, outputs="b")
    halves = replace(view.values["a"], dtype=dtypes.BY_NAME[kind].number)
    view = replace(view, values={**view.values, "a": halves})
    plan, _ = planned(view, chip(pmus=4), level)
    assert (len(plan.sections), plan.traffic, plan.warnings) == (1, 0, ())


def traffic(view, parts):
    return traffic_of(view, contracted(view.placed, parts, view.sizes))


def test_traffic_counts_each_reading_section_and_one_write(make_view):
    view = make_view("a: Exp(x) -> u\nb: Neg(u) -> v\nc: Abs(u) -> w_\nd: Add(v, w_) -> z")
    assert traffic(view, [["a"], ["b"], ["c", "d"]]) == 3 * 64 + 2 * 64
    assert traffic(view, [["a", "b"], ["c", "d"]]) == 2 * 64 + 2 * 64


def test_a_model_output_is_written_anyway(make_view):
    view = make_view("a: Exp(x) -> u\nb: Neg(u) -> v", outputs="u v")
    assert traffic(view, [["a"], ["b"]]) == 64


def test_the_lower_bound_knows_what_the_chip_cannot_hold(make_view):
    view = make_view(chain(4), sizes={"v1": 640, "v2": 640, "v3": 640})
    limits = Limits(10, 20, 64)  # two sections buffer 640 bytes each
    assert lower_bound(view, 2, limits, value_use(view, limits)) == 2 * 640


def test_the_lower_bound_knows_the_cheapest_links(make_view):
    view = make_view(chain(4), sizes={"v1": 10, "v2": 30, "v3": 20})
    limits = Limits(10, 1000, 64)
    values = value_use(view, limits)
    assert [lower_bound(view, n, limits, values) for n in (1, 2, 3, 4)] == [0, 20, 60, 120]
