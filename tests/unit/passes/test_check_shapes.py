"""Operands that cannot fit are refused when a model is compiled, by the name of the operator."""

from __future__ import annotations

import pytest
from onnx import parser

import sambac

# Inputs and an operator -> what the message says.
_WRONG = {
    "float[1,3,8,8] x, float[4,2,3,3] w) => (float y) { y = Conv(x, w)": "has 3 channels",
    "float[1,4,8] x, float[4,4,3] w) => (float y) { y = Conv<group=2>(x, w)": "are for 8",
    "float[1,4,8] x, float[3,2,3] w) => (float y) { y = Conv<group=2>(x, w)": "do not divide",
    "float[N,2,8] x, float[4,2,3] w, float[3] b) => (float y) { y = Conv(x, w, b)": r"bias \[3\]",
    "float[1,3,8] x, float[2,4,3] w) => (float y) { y = ConvTranspose(x, w)": "are for 2",
    "float[1,2,8] x, float[2,4,3] w, float[3] b) => (float y) { y = ConvTranspose(x, w, b)": "4",
    "float[2,3] x, float[3,5] w, float[4] c) => (float y) { y = Gemm(x, w, c)": r"result \[2, 5\]",
    "float[3,2] x, float[5,3] w, float[3,5] c) => (float y)"
    " { y = Gemm<transA=1, transB=1>(x, w, c)": r"\[3, 5\] does not broadcast",
    "float[2,3] x, float[2] w) => (float y) { y = PRelu(x, w)": r"slope \[2\]",
    "float[1,3] x) => (float y) <int64[0] a = {}> { y = Squeeze(x, a)": "axes are empty",
    "float b) => (float y) <float a = {1}, float c = {0}> { y = Range(a, b, c)": "step is 0",
    "int64 b) => (int64 y) <int64 a = {1}, int64 c = {0}> { y = Range(a, b, c)": "step is 0",
    "float x) => (float y) <float a = {1}, float b = {nan}> { y = Range(a, b, a)": "of steps",
    "float x) => (float y) <float a = {1}, float b = {inf}> { y = Range(a, b, a)": "of steps",
    "float[2,3] x, float[4,5] w) => (float y) { y = MatMul(x, w)": "Incompatible",
    "float[2,3] x, float[4,5] w) => (float y) { y = Concat<axis=0>(x, w)": "Inferred=5",
    "float[2,3] x, float[4,5] w) => (float y) { y = Add(x, w)": "Incompatible",
}
_RIGHT = (
    "float[N,C,8,8] x, float[4,2,3,3] w) => (float y) { y = Conv(x, w)",
    "float[1,4,8] x, float[6,2,3] w, float[6] b) => (float y) { y = Conv<group=2>(x, w, b)",
    "float[2,3] x, float[3,5] w, float[2,1] c) => (float y) { y = Gemm(x, w, c)",
    "float[2,3,4] x, float[3,1] w) => (float y) { y = PRelu(x, w)",
    "float b) => (float y) <float a = {1}> { y = Range(a, b, a)",
    "float[1,3] x) => (float y) { y = Squeeze(x)",
    "float[1,3] x) => (float y) <int64[1] a = {0}> { y = Squeeze(x, a)",
)


def _compile(text: str) -> None:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g ({text} }}')
    model.graph.node[0].name = "wrong"
    sambac.compile(model)


@pytest.mark.parametrize("text", _WRONG)
def test_what_cannot_fit_is_refused(text: str) -> None:
    with pytest.raises(sambac.CompileError, match=f"wrong[^!]*{_WRONG[text]}"):
        _compile(text)


@pytest.mark.parametrize("text", _RIGHT)
def test_what_may_fit_is_compiled(text: str) -> None:
    _compile(text)
