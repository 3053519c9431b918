"""Equations of Einsum as they are read and spelled."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.graph.equations import equation_of


@pytest.mark.parametrize(
    ("text", "terms", "result", "spelled"),
    [
        ("bij,bjk->bik", ["bij", "bjk"], "bik", "bij,bjk->bik"),
        (" b i j , b j k ", ["bij", "bjk"], None, "bij,bjk"),
        ("ij->", ["ij"], "", "ij->"),
        ("...i,->...", ["...i", ""], "...", "...i,->..."),
    ],
)
def test_equations_are_read_and_spelled(
    text: str, terms: list[str], result: str | None, spelled: str
) -> None:
    equation = equation_of(ir.node("Einsum", [], {"equation": text}))
    assert (equation.terms, equation.result) == (terms, result)
    assert str(equation) == spelled
