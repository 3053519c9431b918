"""Which weights of ONNX files are said to be constants, or copies."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from sambac.graph.origins import note_role
from sambac.training.parameters import frozen_by, roles_of
from sambac.training.suspects import told_of_suspects

Parse = Callable[[str], ir.Model]

WEIGHTS = "<float[3] m = {1, 2, 3}, float[3] d = {1, 2, 3}, float[3,3] w = {1,2,3,4,5,6,7,8,9}>"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("c = Sub(x, m)  n = Div(c, d)  y = MatMul(n, w)", "'m', 'd'"),
        ("c = Sub(x, m)  h = MatMul(c, w)  y = Add(h, d)", "'m'"),
        ("t = Tanh(x)  c = Mul(m, t)  h = MatMul(c, w)  y = Add(h, m)  z = Add(x, d)", "'d'"),
        ("h = MatMul(x, w)  c = Sub(h, m)  y = Div(c, d)", ""),
        ("k = Mul(m, d)  h = MatMul(x, w)  y = Add(h, k)", ""),
        ("c = Sub(x, m)  y = Div(c, d)", ""),
    ],
)
def test_what_only_shifts_and_scales_inputs_is_told(parse: Parse, body: str, names: str) -> None:
    model = parse(f"g (float[2,3] x) => (float[2,3] y) {WEIGHTS} {{ {body} }}")
    told = "".join(told_of_suspects(model, roles_of(model)))
    assert told.partition(" will be trained")[0] == names


def test_what_is_frozen_or_noted_to_be_a_parameter_is_not_told(parse: Parse) -> None:
    body = "c = Sub(x, m)  n = Div(c, d)  y = MatMul(n, w)"
    model = parse(f"g (float[2,3] x) => (float[2,3] y) {WEIGHTS} {{ {body} }}")
    note_role(model.graph.initializers["d"], "parameter")
    assert told_of_suspects(model, frozen_by(roles_of(model), ["m"])) == ()


MATRICES = (
    "<float[2,3] w = {1, 2, 3, 4, 5, 6}, float[3,2] t = {1, 4, 2, 5, 3, 6},"
    " float[3,2] o = {1, 2, 3, 4, 5, 6}, float[2,3] f = {7, 7, 7, 7, 7, 7},"
    " float[3,2] g = {7, 7, 7, 7, 7, 7}, float[2,2] i = {1, 0, 0, 1}, float[2,2] j = {1, 0, 0, 1}>"
)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("h = MatMul(x, t)  y = MatMul(h, w)", "'t' and 'w'"),
        ("h = MatMul(x, o)  y = MatMul(h, w)", ""),
        ("h = MatMul(x, g)  y = MatMul(h, f)", ""),
        ("h = MatMul(x, o)  k = MatMul(h, i)  l = MatMul(k, j)  y = MatMul(l, f)", ""),
    ],
)
def test_a_matrix_that_is_another_one_turned_is_told(parse: Parse, body: str, told: str) -> None:
    model = parse(f"g (float[2,3] x) => (float[2,3] y) {MATRICES} {{ {body} }}")
    found = "".join(told_of_suspects(model, roles_of(model)))
    assert found.partition(" are the same")[0] == told
