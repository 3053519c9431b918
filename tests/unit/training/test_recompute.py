"""Recomputation: what is kept, what is computed again, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from pef.program import SectionType
from sambac.passes.legalize.check_legal import check_legal
from sambac.training.recompute import Recompute

Parse = Callable[[str], ir.Model]
FORWARD = {"loss": SectionType.FWD}


def again(model: ir.Model) -> list[str]:
    """Run the pass; return the names of the operators that run twice."""
    modified = Recompute(FORWARD)(model).modified
    assert check_legal(model) == []
    copies = [str(node.name) for node in model.graph if str(node.name).startswith("again/")]
    assert modified == bool(copies)
    return copies


def test_of_values_of_one_size_the_last_is_kept(parse: Parse) -> None:
    """The backward pass reads b and c: with b, c needs one operator, with a it would need two."""
    model = parse("""
        g (float[8,8] x, float[8,8] w) => (float loss, float[8,8] grad)
        { a = MatMul(x, w)  b = Exp(a)  c = Sin(b)  loss = ReduceSum<keepdims=0>(c)
          d = Cos(b)  grad = Mul(d, c) }""")
    assert again(model) == ["again/n2"]


def test_products_and_random_numbers_never_run_again(parse: Parse) -> None:
    model = parse("""
        g (float[8,8] x, float[8,8] w) => (float loss, float[8,8] grad)
        { a = MatMul(x, w)  b = RandomNormalLike(a)  c = Add(a, b)
          loss = ReduceSum<keepdims=0>(c)  grad = Mul(a, b) }""")
    assert again(model) == []


def test_a_small_value_is_kept_instead_of_two_large_ones(parse: Parse) -> None:
    model = parse("""
        g (float[64,8] x, float[8,64] w) => (float loss, float[64,64] grad)
        <int64[1] axes = {1}, int64[2] shape = {64, 64}>
        { a = MatMul(x, w)  b = ReduceSum(a, axes)  c = Expand(b, shape)  d = Exp(c)
          loss = ReduceSum<keepdims=0>(d)  grad = Mul(c, d) }""")
    assert again(model) == ["again/n2", "again/n3"]


def test_what_the_backward_pass_does_not_read_runs_once(parse: Parse) -> None:
    model = parse("""
        g (float[8] x) => (float loss, float[8] grad)
        { a = Exp(x)  loss = ReduceSum<keepdims=0>(a)  grad = Neg(x) }""")
    assert again(model) == []
