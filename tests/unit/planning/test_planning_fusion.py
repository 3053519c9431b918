"""Fusion groups at the three levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest

from pef import dtypes
from pef.program import SectionType
from sambac.arch import load_arch
from sambac.planning.check_fusion import check_fusion
from sambac.planning.fusion import Contraction, plan_fusion
from sambac.planning.plans import FusionPlan, Group
from sambac.planning.resources import limits_of, use_of, value_use
from sambac.planning.view import depth_first

ARCH = load_arch("sn40l")

RESIDUAL = """
    conv1: Conv(x, w1) -> a
    relu1: Relu(a) -> b
    conv2: Conv(b, w2) -> c
    add: Add(c, b) -> d
    relu2: Relu(d) -> e
"""


def ops_of(plan: FusionPlan) -> list[tuple[str, ...]]:
    return [group.ops for group in plan.groups]


def test_o0_leaves_every_operator_alone(make_view):
    plan = plan_fusion(make_view(RESIDUAL), ARCH, "O0")
    assert ops_of(plan) == [("conv1",), ("relu1",), ("conv2",), ("add",), ("relu2",)]


def test_cloned_operators_are_in_no_group(make_view):
    view = make_view("shape*: Shape(x) -> s\nreshape: Reshape(x, s) -> y")
    assert [ops_of(plan_fusion(view, ARCH, level)) for level in ("O0", "O1", "O3")] == [
        [("reshape",)]
    ] * 3


def test_o3_builds_groups_around_heavy_operators(make_view):
    plan = plan_fusion(make_view(RESIDUAL), ARCH, "O3")
    assert ops_of(plan) == [("conv1", "relu1"), ("conv2", "add", "relu2")]
    assert [group.name for group in plan.groups] == ["conv1", "conv2"]


def test_o3_fuses_what_comes_before_a_heavy_operator(make_view):
    view = make_view("norm: LayerNormalization(x, w0) -> a\nlinear: MatMul(a, w) -> b")
    assert ops_of(plan_fusion(view, ARCH, "O3")) == [("norm", "linear")]


def test_o3_groups_are_of_one_type(make_view):
    view = make_view("one: Relu(x) -> a\ntwo: Relu(a) -> b", types={"two": SectionType.OPT})
    assert ops_of(plan_fusion(view, ARCH, "O3")) == [("one",), ("two",)]


def test_o3_groups_fit_the_chip(make_view):
    tiny = replace(ARCH, pmus=replace(ARCH.pmus, value=4))
    view = make_view("one: Relu(x) -> a\ntwo: Relu(a) -> b\nthree: Relu(b) -> c")
    assert ops_of(plan_fusion(view, tiny, "O3")) == [("one", "two"), ("three",)]


def test_o3_groups_stay_readable(make_view):
    chain = "\n".join(f"n{i}: Relu(v{i}) -> v{i + 1}" for i in range(70))
    assert [len(ops) for ops in ops_of(plan_fusion(make_view(chain), ARCH, "O3"))] == [32, 32, 6]


def test_o3_leaves_as_many_groups_as_are_wanted(make_view):
    plan = plan_fusion(make_view(RESIDUAL), ARCH, "O3", at_least=4)
    assert ops_of(plan) == [("conv1", "relu1"), ("conv2",), ("add",), ("relu2",)]


def test_o3_does_not_fuse_across_a_way_around(make_view):
    """`last` reads the first group directly and through a heavy operator outside of it."""
    view = make_view(
        """
        first: Conv(x, w1) -> a
        heavy: Conv(a, w2) -> b
        last: Add(a, b) -> c
        """,
        sizes={"a": 4096},
    )
    plan = plan_fusion(view, ARCH, "O3")
    assert ops_of(plan) == [("first",), ("heavy", "last")]
    assert check_fusion(view, plan) == []


def test_o1_follows_the_built_in_rules(make_view):
    plan = plan_fusion(make_view(RESIDUAL), ARCH, "O1")
    assert ops_of(plan) == [("conv1", "relu1"), ("conv2", "add", "relu2")]
    assert [group.rule for group in plan.groups] == ["conv_block", "conv_block"]


def test_o1_leaves_what_no_rule_matches(make_view):
    plan = plan_fusion(make_view("one: Relu(x) -> a\ntwo: Neg(a) -> b"), ARCH, "O1")
    assert [(group.ops, group.rule) for group in plan.groups] == [(("one",), ""), (("two",), "")]


@pytest.mark.parametrize(("priority", "winner"), [(99, "mine"), (1, "conv_block")])
def test_the_higher_priority_wins(make_view, tmp_path: Path, priority: int, winner: str):
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        f"""
        mine:
          priority: {priority}
          pattern:
            activation: {{op_type: relu, child: conv}}
            conv: {{op_type: conv}}
        """
    )
    plan = plan_fusion(make_view(RESIDUAL), ARCH, "O1", rules)
    assert next(group.rule for group in plan.groups if "relu1" in group.ops) == winner


def test_a_rule_never_makes_groups_wait_for_each_other(make_view, tmp_path: Path):
    """The pattern wants `first` and `last`, but `middle` lies between them."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "skip: {priority: 99, pattern: {a: {op_type: exp, child: b}, b: {op_type: mul}}}"
    )
    view = make_view("first: Exp(x) -> a\nmiddle: Neg(a) -> b\nlast: Mul(a, b) -> c")
    plan = plan_fusion(view, ARCH, "O1", rules)
    assert ops_of(plan) == [("first",), ("middle",), ("last",)]


def test_fusion_sees_through_clones(make_view):
    """`last` waits for `middle` only because the clone it reads does."""
    view = make_view(
        """
        first: Conv(x, w1) -> a
        middle: Conv(a, w2) -> b
        shape*: Shape(b) -> s
        last: Expand(a, s) -> c
        """
    )
    plan = plan_fusion(view, ARCH, "O3")
    assert check_fusion(view, plan) == []
    assert ("first", "last") not in ops_of(plan)


def test_clones_are_seen_through_transitively(make_view):
    view = make_view(
        """
        shape*: Shape(x) -> s
        one*: Gather(s) -> t
        reshape: Reshape(y, t) -> z
        """
    )
    assert view.reads == {"reshape": ("y", "x")}


def test_producers_stay_close_to_their_readers(make_view):
    """In the model's order both branches alternate; depth first finishes one, then the other."""
    view = make_view(
        """
        a1: Relu(x) -> a
        b1: Relu(y) -> b
        a2: Relu(a) -> aa
        b2: Relu(b) -> bb
        a3: Relu(aa) -> aaa
        join: Add(aaa, bb) -> c
        """
    )
    assert depth_first(view.placed) == ["a1", "a2", "a3", "b1", "b2", "join"]


def contraction(edges: str, nodes: str = "abcd", reach: int = 256) -> Contraction:
    """Return the contraction of a graph of letters, in order; `ab cd` are two edges."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges.split())
    return Contraction(graph, list(nodes), reach)


def test_the_work_around_a_merge_is_put_in_order():
    """b and c lie between; b leads to d and must come before, c does not and may come behind."""
    groups = contraction("ad bd")
    assert groups.merge(["a", "d"]) == "a"
    assert groups.in_order() == [["b"], ["a", "d"], ["c"]]


def test_a_merge_that_makes_a_cycle_is_refused():
    groups = contraction("ab ac bc", "abc")
    assert groups.merge(["a", "c"]) is None
    assert groups.in_order() == [["a"], ["b"], ["c"]]


def test_a_cycle_between_merged_groups_is_refused():
    """a -> d and c -> b are no cycle until both pairs are merged."""
    groups = contraction("cb ad", "acbd")
    assert groups.merge(["a", "b"]) == "a"
    assert groups.merge(["c", "d"]) is None


def test_a_cycle_through_several_groups_is_refused():
    groups = contraction("ab bc cd", "abcd")
    assert groups.merge(["a", "d"]) is None
    assert groups.merge(["b", "c"]) == "b"
    assert groups.merge(["a", "d"]) is None
    assert groups.merge(["a", "b", "d"]) == "a"
    assert groups.in_order() == [["a", "b", "c", "d"]]


def test_groups_too_far_apart_are_not_merged():
    groups = contraction("", "abcdefghij", reach=3)
    assert groups.merge(["a", "e"]) is None
    assert groups.merge(["a", "d"]) == "a"


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([("one",)], "operator 'two' is in 0 groups, expected 1"),
        ([("one", "two"), ("two",)], "operator 'two' is in 2 groups, expected 1"),
        ([("one",), ("two",), ("shape",)], "operator 'shape' is cloned and must be in no group"),
        ([("one",), ("two",), ("three",)], "operator 'three' is not in the model"),
        ([("one",), ("two",), ()], "group 'g2' is empty"),
        ([("two", "one")], "group 'g0' does not list its operators in topological order"),
    ],
)
def test_the_checker_names_what_is_wrong(make_view, groups, problem):
    view = make_view("shape*: Shape(x) -> s\none: Reshape(x, s) -> a\ntwo: Relu(a) -> b")
    plan = FusionPlan(tuple(Group(f"g{i}", ops) for i, ops in enumerate(groups)))
    assert problem in check_fusion(view, plan)


def test_the_checker_shows_groups_that_wait_for_each_other(make_view):
    view = make_view("one: Exp(x) -> a\ntwo: Neg(a) -> b\nthree: Mul(a, b) -> c")
    plan = FusionPlan((Group("ends", ("one", "three")), Group("middle", ("two",))))
    assert check_fusion(view, plan) == ["groups wait for each other: 'ends' -> 'middle'"]


# O0


def sized(view, **changes):
    """Return `view` with other facts of some operators, by name."""
    ops = {name: replace(op, **changes.get(name, {})) for name, op in view.ops.items()}
    return replace(view, ops=ops)


def test_o0_puts_a_narrowing_cast_to_what_it_narrows(make_view):
    view = make_view(
        "one: MatMul(x, w) -> a\ndown: Cast(a) -> b\nup: Cast(b) -> c\nlast: Relu(c) -> d",
        sizes={"b": 32},
    )
    assert ops_of(plan_fusion(view, ARCH, "O0")) == [("one", "down"), ("up",), ("last",)]


def typed(view, **kinds):
    """Return `view` with other element types of some values, by name."""
    named = {name: dtypes.BY_NAME[kind].number for name, kind in kinds.items()}
    changed = {name: replace(view.values[name], dtype=number) for name, number in named.items()}
    return replace(view, values={**view.values, **changed})


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_a_cast_of_what_comes_from_memory_is_with_who_reads_it_first(make_view, level):
    text = """
        down: Cast(w) -> b
        up*: Cast(b) -> c
        one: MatMul(x, c) -> d
        two: MatMul(d, c) -> e
    """
    view = make_view(text, sizes={"b": 32})
    assert view.loads == {"down": "one"}
    assert ops_of(plan_fusion(view, ARCH, level)) == [("down", "one"), ("two",)]
    limits = limits_of(ARCH)
    values = value_use(view, limits)
    alone, both = (use_of(view, ops, limits, values) for ops in (("one",), ("down", "one")))
    assert (both.pmus, both.sram) == (alone.pmus + 1, alone.sram), "no buffer, one more stream"


@pytest.mark.parametrize(
    ("source", "size"), [("float64", 32), ("int32", 32), ("float32", 64), ("float32", 128)]
)
def test_other_casts_of_what_comes_from_memory_stay_apart(make_view, source, size):
    view = make_view("down: Cast(x) -> b\none: Relu(b) -> c", sizes={"b": size})
    view = typed(view, x=source)
    assert ops_of(plan_fusion(view, ARCH, "O0")) == [("down",), ("one",)]


def test_a_cast_of_a_later_stage_stays_in_it(make_view):
    types = {"one": SectionType.BCKWD}
    view = make_view("down: Cast(x) -> b\none: Relu(b) -> c", sizes={"b": 32}, types=types)
    assert ops_of(plan_fusion(view, ARCH, "O0")) == [("down",), ("one",)]


@pytest.mark.parametrize(("kind", "together"), [("bfloat16", True), ("bool", False)])
def test_halves_that_are_given_out_in_more_bits_are_with_who_makes_them(make_view, kind, together):
    text = "one: MatMul(x, w) -> a\ndown: Cast(a) -> b\nup: Cast(b) -> c"
    view = typed(make_view(text, sizes={"b": 32}), b=kind)
    groups = [("one", "down", "up")] if together else [("one", "down"), ("up",)]
    assert ops_of(plan_fusion(view, ARCH, "O0")) == groups


@pytest.mark.parametrize(
    ("bias", "factor", "more", "together"),
    [
        ((4,), (3, 4), "", True),
        ((1, 4), (3, 4), "", True),
        ((2, 4), (3, 4), "", False),  # a matrix
        ((4,), (2, 3, 4), "", False),  # a batch of matrices
        ((1,), (3, 4), "", False),
        (None, (3, 4), "", False),
        ((4,), (3, 4), "\nother: Neg(a) -> c", False),  # somebody else reads the product
    ],
)
@pytest.mark.parametrize("kind", ["MatMul", "com.microsoft.FusedMatMul"])
def test_o0_has_a_bias_with_its_product(make_view, bias, factor, more, together, kind):
    view = make_view(f"one: {kind}(x, w) -> a\nbias: Add(a, w2) -> b{more}", outputs="b")
    shapes = {"a": (2, 4), "b": (2, 4), "w2": bias, "w": factor}
    values = {name: replace(facts, shape=shapes.get(name)) for name, facts in view.values.items()}
    view = replace(view, values=values)
    assert (("one", "bias") in ops_of(plan_fusion(view, ARCH, "O0"))) is together


def test_o0_has_a_bias_with_its_product_of_codes(make_view):
    """Codes are in blocks: an operand of three axes is one matrix."""
    view = make_view("one: com.microsoft.MatMulNBits(x, w, w3) -> a\nbias: Add(a, w2) -> b")
    shapes = {"a": (2, 4), "b": (2, 4), "w2": (4,), "w": (4, 2, 16), "w3": (8,)}
    values = {name: replace(facts, shape=shapes.get(name)) for name, facts in view.values.items()}
    plan = plan_fusion(replace(view, values=values), ARCH, "O0")
    assert ops_of(plan) == [("one", "bias")]


def test_o0_has_a_residual_of_one_row_apart(make_view):
    view = make_view("first: Neg(y) -> r\none: MatMul(x, w) -> a\nadd: Add(a, r) -> b")
    shapes = {"a": (1, 4), "b": (1, 4), "r": (1, 4), "w": (3, 4)}
    values = {name: replace(facts, shape=shapes.get(name)) for name, facts in view.values.items()}
    plan = plan_fusion(replace(view, values=values), ARCH, "O0")
    assert sorted(ops_of(plan)) == [("add",), ("first",), ("one",)]


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_light_parts_of_one_gradient_stay_together(make_view, level):
    text = """
        heavy: MatMul(x, w) -> a
        one: Mul(a, y) -> b
        sums: MatMul(b, w2) -> c
        two: Sub(b, c) -> d
        other: Neg(d) -> e
    """
    parts = {name: {"part_of": "softmax"} for name in ("heavy", "one", "two")}
    parts["sums"] = {"part_of": "softmax", "flops": 64}
    view = sized(make_view(text), **parts)
    found = [("heavy",), ("one", "sums", "two"), ("other",)]
    assert ops_of(plan_fusion(view, ARCH, level)) == found


@pytest.mark.parametrize("level", ["O0", "O1"])
def test_rounding_is_no_border_between_the_parts_of_a_gradient(make_view, level):
    text = """
        heavy: MatMul(x, w) -> a
        low: Cast(a) -> a16
        one: Mul(a16, y) -> b
        down: Cast(b) -> c
        two: Neg(c) -> d
    """
    parts = {name: {"part_of": "softmax"} for name in ("heavy", "one", "two")}
    view = sized(make_view(text, sizes={"a16": 32, "c": 32}), **parts)
    found = [("heavy", "low"), ("one", "down", "two")]
    assert ops_of(plan_fusion(view, ARCH, level)) == found


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_what_only_rounds_is_with_what_it_rounds_on_any_chip(make_view, level):
    """Even where neither fits: the wide numbers are nowhere but in the unit that makes them."""
    view = make_view(
        "one: MatMul(x, w) -> a\nview*: Reshape(a) -> v\ndown: Cast(v) -> b\ntwo: Neg(a) -> c",
        sizes={"a": 640, "v": 640, "b": 320},
    )
    arch = replace(ARCH, pmus=replace(ARCH.pmus, value=4), pmu_bytes=replace(ARCH.pmus, value=64))
    assert ops_of(plan_fusion(view, arch, level))[0] == ("one", "down")
