"""Reading fusion rules, and every mistake that a rules file can have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sambac.arch import load_arch
from sambac.errors import CompileError
from sambac.planning.fusion import plan_fusion
from sambac.planning.matching import variants_of
from sambac.planning.rules import load_rules, parse_rules

SAMBAFLOW_EXAMPLE = """
gpt2_qkv:
    priority: 0
    heuristic: GPT2_QKV
    pattern:
        layer_norm:
            op_type: layer_norm
            child: lin1
        lin1:
            op_type: linear
            children:
                relu0
                relu1
        relu0:
            op_type: relu
        relu1:
            op_type: relu
"""


def test_a_rule_in_sambaflows_form_is_read():
    (rule,) = parse_rules(SAMBAFLOW_EXAMPLE, "here")
    assert (rule.name, rule.priority, rule.heuristic) == ("gpt2_qkv", 0, "GPT2_QKV")
    assert [node.children for node in rule.pattern] == [("lin1",), ("relu0", "relu1"), (), ()]
    assert "MatMul" in rule.pattern[1].op_types
    assert rule.pattern[2].op_types == {"Relu"}


@pytest.mark.parametrize("name", ["max_pool", "MaxPool", "max_pool2d"])
def test_operators_have_several_names(name: str):
    text = (
        f"r: {{priority: 1, pattern: {{a: {{op_type: {name}, child: b}}, b: {{op_type: relu}}}}}}"
    )
    (rule,) = parse_rules(text, "here")
    assert "MaxPool" in rule.pattern[0].op_types


def test_built_in_rules_are_sorted_by_priority():
    priorities = [rule.priority for rule in load_rules(None)]
    assert priorities == sorted(priorities, reverse=True)
    assert len(priorities) > 5


def test_a_rule_of_the_same_name_replaces_a_built_in_one(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "attention: {priority: 7, pattern: {a: {op_type: exp, child: b}, b: {op_type: log}}}"
    )
    rules = {rule.name: rule for rule in load_rules(path)}
    assert rules["attention"].priority == 7
    assert len(rules) == len(load_rules(None))


def rule(pattern: str, head: str = "priority: 1") -> str:
    return f"r: {{{head}, pattern: {{{pattern}}}}}"


GOOD = "a: {op_type: exp, child: b}, b: {op_type: log}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "here: expected rules by name, found a list."),
        ("", "here: expected rules by name, found nothing."),
        ("r: 5", "rule 'r': expected priority and pattern, found a number"),
        (rule(GOOD, "prioritty: 1"), "unknown key 'prioritty' (did you mean 'priority'?)"),
        (rule(GOOD, "priority: high"), "'priority' must be a whole number, found 'high'"),
        (rule(GOOD, "priority: 1, heuristic: [1]"), "'heuristic' must be a name, found a list"),
        ("r: {priority: 1}", "'pattern' must list operators by name, found nothing"),
        (rule("a: 3"), "rule 'r', operator 'a': expected an op_type, found a number"),
        (
            rule("a: {op_type: realu, child: b}, b: {op_type: log}"),
            "rule 'r', operator 'a': 'op_type' 'realu' is no known operator (did you mean 'relu'?)",
        ),
        (rule("a: {child: b}, b: {op_type: log}"), "'op_type' None is no known operator"),
        (
            rule("a: {op_type: exp, child: tial}, tail: {op_type: log}"),
            "'a' has the child 'tial', which is not there (did you mean 'tail'?)",
        ),
        (
            rule("a: {op_type: exp, childs: b}, b: {op_type: log}"),
            "unknown key 'childs' (did you mean 'child'?)",
        ),
        (
            rule("a: {op_type: exp, child: b, children: [b]}, b: {op_type: log}"),
            "has both 'child' and 'children'",
        ),
        (
            rule("a: {op_type: exp, children: {b: 1}}, b: {op_type: log}"),
            "'children' must be a list of names, found a table",
        ),
        (
            rule("a: {op_type: exp, child: b, optional: maybe}, b: {op_type: log}"),
            "'optional' must be true or false, found 'maybe'",
        ),
        (
            rule("a: {op_type: exp, children: [b, b]}, b: {op_type: add}"),
            "operator 'a': lists 'b' twice, expected once for all that it reads",
        ),
        (rule("a: {op_type: exp}"), "the pattern has one operator, expected at least two"),
        (
            rule("a: {op_type: exp, child: b}, b: {op_type: log, child: a}"),
            "the children form a cycle",
        ),
        (
            rule("a: {op_type: exp}, b: {op_type: log}"),
            "the pattern falls into parts without a connection",
        ),
        (rule(GOOD) + "\n" + rule(GOOD), "not a valid YAML file: key 'r' appears twice"),
        ("r: [", "here: not a valid YAML file"),
    ],
)
def test_mistakes_are_named(text: str, message: str):
    with pytest.raises(CompileError) as caught:
        parse_rules(text, "here")
    assert message in str(caught.value)


def test_too_many_optional_operators_are_refused():
    nodes = [f"n{i}: {{op_type: relu, child: n{i + 1}, optional: true}}" for i in range(7)]
    with pytest.raises(CompileError, match="more than 6 operators are optional"):
        parse_rules(rule(", ".join([*nodes, "n7: {op_type: relu}"])), "here")


def test_all_mistakes_are_listed_at_once():
    text = rule("a: {op_type: exq, child: c}, b: {op_type: lok}", "priority: x")
    with pytest.raises(CompileError) as caught:
        parse_rules(text, "here")
    assert str(caught.value).count(";") == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(CompileError, match=r"none\.yaml: cannot read the fusion rules"):
        load_rules(tmp_path / "none.yaml")


def test_optional_operators_are_bridged_and_the_largest_variant_comes_first():
    text = rule(
        "a: {op_type: exp, child: b}, b: {op_type: add, child: c, optional: true}, "
        "c: {op_type: log, optional: true}"
    )
    (read,) = parse_rules(text, "here")
    names = [[(n.name, n.children) for n in variant] for variant in variants_of(read.pattern)]
    assert names == [
        [("a", ("b",)), ("b", ("c",)), ("c", ())],
        [("a", ("c",)), ("c", ())],
        [("a", ("b",)), ("b", ())],
    ]


BUILT_IN = {
    "attention": "a: MatMul(q, k) -> s\nb: Div(s) -> t\nc: Softmax(t) -> p\nd: MatMul(p, v) -> y",
    "conv_silu": "a: Conv(x, w) -> c\nb: Sigmoid(c) -> s\nd: Mul(c, s) -> y",
    "conv_block": "a: Conv(x, w) -> c\nb: Add(c, r) -> s\nd: Relu(s) -> y",
    "linear_erf_gelu": """
        a: MatMul(x, w) -> m
        b: Add(m, w0) -> h
        c: Div(h) -> d
        d: Erf(d) -> e
        e: Add(e) -> f
        f: Mul(h, f) -> g
        g: Mul(g) -> y
    """,
    "linear_heads": "a: MatMul(x, w) -> m\nb: Reshape(m) -> r\nc: Transpose(r) -> y",
    "quantized_linear": """
        a: DynamicQuantizeLinear(x) -> q, s, z
        b: MatMulInteger(q, w, z) -> m
        c: Cast(m) -> f
        d: Mul(f, s) -> g
        e: Add(g, w0) -> h
        f: Relu(h) -> i
        g: Add(i, r) -> y
    """,
    "linear_block": "a: Gemm(x, w) -> m\nb: Gelu(m) -> y",
    "residual_norm": "a: Sum(x, r, w) -> s\nb: LayerNormalization(s, w0) -> y",
    "norm_activation": "a: BatchNormalization(x, w) -> n\nb: Relu(n) -> y",
    "gated_activation": "a: Sigmoid(x) -> s\nb: Mul(x, s) -> y",
    "add_activation": "a: Add(x, r) -> s\nb: Relu(s) -> y",
}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_built_in_rule_fuses_its_pattern(make_view, name: str):
    view = make_view(BUILT_IN[name])
    (group,) = plan_fusion(view, load_arch("sn40l"), "O1").groups
    assert group.rule == name
    assert group.ops == tuple(view.ops)


@pytest.mark.parametrize("kind", ["MatMulNBits", "MatMulIntegerToFloat"])
def test_products_of_codes_have_the_rules_of_others(make_view, kind: str):
    """A model in fewer bits is to have no more sections than in float32."""
    for name in ("linear_block", "linear_heads", "linear_erf_gelu"):
        text = re.sub("a: [A-Za-z]+", f"a: com.microsoft.{kind}", BUILT_IN[name])
        view = make_view(text)
        (group,) = plan_fusion(view, load_arch("sn40l"), "O1").groups
        assert (group.rule, group.ops) == (name, tuple(view.ops))


@pytest.mark.parametrize("widened", [False, True])
@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_rounding_between_operators_hides_no_pattern(make_view, name: str, widened: bool):
    """As in models of few bits, whose kernels on the host give wide results."""
    text, narrow = BUILT_IN[name], dict[str, int]()
    for op, made in re.findall(r"(\w+): .*-> (\w+)$", text, re.MULTILINE):
        low = f"{op}_low: Cast({made}_wide) -> {made}_low"
        up = f"{op}_up*: Cast({made}_low) -> {made}"
        down = [low, up] if widened else [low.removesuffix("_low")]
        text = text.replace(f"-> {made}", "\n".join([f"-> {made}_wide", *down]))
        narrow[f"{made}_low" if widened else made] = 32
    view = make_view(text, sizes=narrow)
    (group,) = plan_fusion(view, load_arch("sn40l"), "O1").groups
    placed = tuple(op for op, facts in view.ops.items() if not facts.cloned)
    assert (group.rule, group.ops) == (name, placed)


def test_every_built_in_rule_is_tested():
    assert {rule.name for rule in load_rules(None)} == set(BUILT_IN)


@pytest.mark.parametrize(
    "text", ["[" * 5000 + "]" * 5000, "{" * 5000, "a: [", "a: 2020-99-99", "\x00", "? {a: 1}\n: 2"]
)
def test_text_that_is_no_yaml(text: str) -> None:
    with pytest.raises(CompileError, match=r"^mine\.yaml: "):
        parse_rules(text, "mine.yaml")
