"""A product of two matrices that a program makes, in the form that suits its sizes.

    y[m, n] = scale * (sum over k of left[m, k] * right[k, n]) + added

Either operand may lie in memory as its transpose. onnxruntime's product copies its right operand
into panels of columns, which is dear where few rows are multiplied with a large matrix, and turns a
transposed left one anew for every block of columns. So the transpose of the result may be the
faster product, or an operand turned by an operator of its own. Constants onnxruntime puts into
panels once, and there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .formulations import ChoicePoint, Formulation, Sizes, product
from .rules import reshape, transpose

FIELDS = ("rows", "terms", "columns", "turned")
_TURN = [1, 0]

_LEAST = 1 << 18
"""Multiplications from which on there is a choice: fewer take microseconds whatever is done."""

_PANEL = 16  # columns that a product works on at once
_PACKED = 0.2  # for each element that lies as its transpose and is put into panels
_UNPACKED = 1.14  # how much longer a product takes that reads the larger operand as it lies
_MOVED = 1.0  # for each element of a result that is turned
_CALL = 1000  # for one operator more

_LEAST_TURNED = 1 << 20
"""Multiplications from which on it gains to turn an operand: fewer are done before a Transpose."""
_NARROWEST, _WIDEST = 64, 128
"""Rows and columns of the result from which on it gains to turn the left operand."""
_TURNS_ANEW = 1.25  # how much longer a product takes that turns its left operand for each block
_SECOND = 1.02  # decides between forms that take about as long


@dataclass(frozen=True)
class MatrixProduct:
    """Sizes of a product of matrices, which operands lie as their transposes, and its numbers.

    `scale` is what the product is multiplied with, which costs nothing.
    """

    rows: int
    terms: int
    columns: int
    turned: tuple[bool, bool]
    dtype: ir.DataType
    scale: float = 1.0

    @property
    def left(self) -> tuple[int, int]:
        """The shape of the left operand, as it lies."""
        return (self.terms, self.rows) if self.turned[0] else (self.rows, self.terms)

    @property
    def right(self) -> tuple[int, int]:
        """The shape of the right operand, as it lies."""
        return (self.columns, self.terms) if self.turned[1] else (self.terms, self.columns)

    @property
    def count(self) -> int:
        """The multiplications of two numbers."""
        return self.rows * self.terms * self.columns

    @property
    def sizes(self) -> Sizes:
        """What makes these sizes again, without what is as usual."""
        sizes = {"rows": (self.rows,), "terms": (self.terms,), "columns": (self.columns,)}
        return sizes | ({"turned": tuple(map(int, self.turned))} if any(self.turned) else {})


def product_of(sizes: Sizes, dtype: ir.DataType) -> MatrixProduct:
    """Return the product with these sizes; raise `ValueError` where they do not go together."""
    lengths = [sizes.get(name, ()) for name in FIELDS[:3]]
    turned = sizes.get("turned", (0, 0))
    if any(len(each) != 1 for each in lengths):
        raise ValueError("its sizes are not one each of rows, terms and columns")
    if len(turned) != 2 or set(turned) - {0, 1}:
        raise ValueError("turned is 1 or 0 for each of two operands, such as 'turned 0x1'")
    (rows,), (terms,), (columns,) = lengths
    if 0 in (rows, terms, columns):
        raise ValueError("a size is 0")
    return MatrixProduct(rows, terms, columns, (turned[0] == 1, turned[1] == 1), dtype)


def _multiply(
    b: Editor, of: MatrixProduct, left: ir.Value, right: ir.Value, *added: ir.Value
) -> ir.Value:
    """Return the product, as its operands lie."""
    return _gemm(b, of, (left, right, *added), of.turned)


def _left_first(
    b: Editor, of: MatrixProduct, left: ir.Value, right: ir.Value, *added: ir.Value
) -> ir.Value:
    """Return the product of a transposed left operand that is turned before."""
    return _gemm(b, of, (transpose(b, left, _TURN), right, *added), (False, of.turned[1]))


def _transposed(
    b: Editor, of: MatrixProduct, left: ir.Value, right: ir.Value, *added: ir.Value
) -> ir.Value:
    """Return the transpose of y^T = right^T left^T."""
    return _turned_back(b, of, (right, left), (not of.turned[1], not of.turned[0]), *added)


def _transposed_right_first(
    b: Editor, of: MatrixProduct, left: ir.Value, right: ir.Value, *added: ir.Value
) -> ir.Value:
    """Return the transpose of y^T, of a right operand that is turned before."""
    operands = transpose(b, right, _TURN), left
    return _turned_back(b, of, operands, (False, not of.turned[0]), *added)


def _gemm(
    b: Editor, of: MatrixProduct, inputs: Sequence[ir.Value], turned: tuple[bool, bool]
) -> ir.Value:
    left, right = (int(flag) or None for flag in turned)
    alpha = None if of.scale == 1.0 else of.scale
    return b.op("Gemm", *inputs, alpha=alpha, transA=left, transB=right)


def _turned_back(
    b: Editor,
    of: MatrixProduct,
    operands: tuple[ir.Value, ir.Value],
    turned: tuple[bool, bool],
    *added: ir.Value,
) -> ir.Value:
    """Return the transpose of a product, and what is added; of a row its product adds a column."""
    rows = [each for each in added if shape_of(each)[-1:] == (prod(shape_of(each)),)]
    columns = [reshape(b, row, (prod(shape_of(row)), 1)) for row in rows]
    back = transpose(b, _gemm(b, of, (*operands, *columns), turned), _TURN)
    for each in added:
        back = back if each in rows else b.op("Add", back, each)
    return back


def _gains_turned(of: MatrixProduct) -> bool:
    """Tell whether products over all samples gain by turning an operand first."""
    return of.turned == (True, False) and of.count >= _LEAST_TURNED


def _is_right_narrow(of: MatrixProduct) -> bool:
    return of.columns < of.rows and of.columns <= of.terms


def _gains_left(of: MatrixProduct) -> bool:
    wide = of.rows >= _NARROWEST and of.columns >= _WIDEST
    return _gains_turned(of) and not _is_right_narrow(of) and wide


def _cost(of: MatrixProduct) -> float:
    """Return the cost of multiplying as operands lie."""
    gains = _gains_turned(of) and (_is_right_narrow(of) or _gains_left(of))
    packed = _PACKED * of.terms * of.columns if of.turned == (False, True) else 0
    return product(of.count) * (_TURNS_ANEW if gains else 1) + packed


def _cost_of_left_first(of: MatrixProduct) -> float:
    return product(of.count) * (1 if _gains_left(of) else _TURNS_ANEW * _SECOND)


def _cost_of_transposed(of: MatrixProduct) -> float:
    """Return the cost of reading the right operand as it lies, with the left one in panels."""
    panels = ceil(of.rows / _PANEL) * _PANEL * of.terms * of.columns
    slower = _UNPACKED if of.turned[1] else _UNPACKED * _TURNS_ANEW
    packed = 0 if of.turned[0] else _PACKED * of.rows * of.terms
    return product(panels) * slower + packed + _MOVED * of.rows * of.columns + _CALL


def _cost_of_right_first(of: MatrixProduct) -> float:
    gains = _gains_turned(of) and _is_right_narrow(of)
    return product(of.count) * (1 if gains else _TURNS_ANEW * _SECOND)


PRODUCT = ChoicePoint(
    name="matrix product",
    forms=(
        Formulation(
            "left operand turned first",
            lambda of: of.turned[0] and of.count >= _LEAST,
            _cost_of_left_first,
            _left_first,
            takes_bias=True,
        ),
        Formulation(
            "transposed product, right operand turned first",
            lambda of: not of.turned[1] and of.count >= _LEAST,
            _cost_of_right_first,
            _transposed_right_first,
            takes_bias=True,
        ),
        Formulation(
            "transposed product",
            lambda of: of.count >= _LEAST,
            _cost_of_transposed,
            _transposed,
            takes_bias=True,
        ),
        Formulation("as it lies", lambda _: True, _cost, _multiply, takes_bias=True),
    ),
    fields=FIELDS,
    pose=product_of,
    operands=lambda of: (of.left, of.right),
    result=lambda of: (of.rows, of.columns),
    for_processors=True,
)
