"""Sums of products as matrix products: the same numbers, whatever they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from near import assert_near

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.simplify.lower_einsum import LowerEinsum
from sambac.passes.simplify.remove_no_ops import RemoveNoOps

SIZES = {"b": 2, "h": 3, "i": 5, "j": 4, "k": 6, "l": 1, "z": 0}


def _model(equation: str, open_axis: str = "", dtype: str = "float") -> onnx.ModelProto:
    terms, _, result = equation.replace(" ", "").partition("->")

    def port(name: str, term: str) -> str:
        sizes = [c if c == open_axis else str(SIZES.get(c, 2)) for c in term]
        return f"{dtype}[{','.join(sizes)}] {name}"

    operands = terms.split(",")
    given = ", ".join(port(f"x{at}", term) for at, term in enumerate(operands))
    names = ", ".join(f"x{at}" for at in range(len(operands)))
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({given}) => ({port("y", result)}) '
        f'{{ y = Einsum<equation = "{equation}">({names}) }}'
    )


def _lowered(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    for step in (InferShapes(), LowerEinsum(), RemoveNoOps()):
        step(made)
    return ir.to_proto(made)


def _operands(equation: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    return {
        f"x{at}": rng.standard_normal([SIZES[c] for c in term]).astype(np.float32)
        for at, term in enumerate(terms)
    }


@pytest.mark.parametrize(
    ("equation", "operators"),
    [
        ("ij,jk->ik", ["MatMul"]),
        ("bhij,bhjk->bhik", ["MatMul"]),
        ("bhik,bhjk->bhij", ["Transpose", "MatMul"]),
        ("bij,hjk->bhik", ["Transpose", "Reshape", "Reshape", "MatMul", "Reshape", "Transpose"]),
        ("bhik,hkj -> bij", None),
        ("ij,kj->ki", None),
        ("ibj,bjk->kib", None),
        ("ij,j->i", ["Reshape", "MatMul", "Reshape"]),
        ("j,jk->k", ["Reshape", "MatMul", "Reshape"]),
        ("j,j->", ["Reshape", "Reshape", "MatMul", "Reshape"]),
        ("ijkb,kjb->", None),
        ("hil,lj->hij", None),
        ("bij,bij->b", None),
    ],
)
def test_the_same_numbers(
    equation: str, operators: list[str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    lowered = _lowered(_model(equation))
    assert not caplog.messages  # as about an order of no axes, of a number
    kinds = [node.op_type for node in lowered.graph.node]
    if equation == "ijkb,kjb->":  # a letter of one term alone is summed
        assert kinds == ["Einsum"]
        return
    assert "Einsum" not in kinds
    assert operators is None or kinds == operators
    feeds = _operands(equation)
    (found,) = ort.InferenceSession(lowered.SerializeToString()).run(None, feeds)
    exact = [value.astype(np.float64) for value in feeds.values()]
    assert_near(found, np.einsum(equation.replace(" ", ""), *exact))


def test_what_is_not_finite_is_where_it_was() -> None:
    equation = "bij,hjk->bhik"
    feeds = _operands(equation)
    feeds["x0"][1, 2, 3], feeds["x1"][0, 1, 2], feeds["x1"][2, 0] = np.nan, np.inf, 0
    feeds["x0"][0, 4, 0] = -np.inf
    model = _model(equation)
    found, wanted = (
        ort.InferenceSession(each.SerializeToString()).run(None, feeds)[0]
        for each in (_lowered(model), model)
    )
    assert not np.isfinite(wanted).all()
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(wanted))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(wanted))


@pytest.mark.parametrize(
    ("model"),
    [
        _model("ij->ji"),
        _model("ii,ik->ik"),
        _model("i,j->ij"),
        _model("ij,jk,kl->il"),
        _model("ij,jk->k"),
        _model("...ij,...jk->...ik"),
        _model("ij,jk->ik", open_axis="i"),
        _model("ij,jk->ik", dtype="double"),
        _model("iz,zk->ik"),
        _model("ij,jk->ik"[:5]),
    ],
    ids=[
        "one term", "a diagonal", "nothing summed", "three terms", "summed in one alone", "dots",
        "an open axis", "of other numbers", "empty", "no result written",
    ],
)  # fmt: skip
def test_others_stay(model: onnx.ModelProto) -> None:
    assert [node.op_type for node in _lowered(model).graph.node] == ["Einsum"]
