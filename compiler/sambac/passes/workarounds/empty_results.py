"""Operators without elements: there is nothing to compute, or what is made of nothing.

    f(x, ...) -> y, z   ->   y = Expand(nothing), z = Expand(nothing)

where the shapes of all results that are read have a 0, and are known, or have the open sizes of x.
Several of onnxruntime's kernels fail for them (Split, Pad, MatMul of an empty batch, Attention,
those that divide by a size) or end the process (LSTM), and it may remove an operator that expands
one element to none.

Reductions and sums over no elements are constants:

    ReduceSum(x, axes)  ->  Expand(0)     also ReduceL1, ReduceL2, ReduceSumSquare
    ReduceProd(x, axes) ->  Expand(1)
    ReduceLogSum, ReduceLogSumExp, ReduceMax -> Expand(-inf), or the lowest number of the type
    ReduceMin           ->  Expand(inf), or the largest
    MatMul(a, b)        ->  Expand(0)
    Gemm(a, b)          ->  Expand(0)
    Gemm(a, b, c)       ->  Expand(beta * c)
    MatMulInteger(a, b) ->  Expand(0)      also ConvInteger, of no channels
    QLinearMatMul(a, b) ->  Expand(the zero point of the result)
    Conv(x, w, c)       ->  Expand(c by channel), or of 0
    Scan(s, x) -> t, y  ->  t = s, y = Expand(nothing)     which fails, x of no steps

where x has no elements, or no channels, a no columns and b no rows, and the shape of the result is
known and has elements. onnxruntime gives a wrong shape to reductions, to all along negative axes;
it leaves results of convolutions, of products of integers, and of a matrix and a vector unwritten,
forgets the batch of b, and forgets beta. Opsets before 8 have no Expand, and keep their sums.

Where a and b may have no columns and rows in some run, as that size or the result's is open,
vectors become matrices and a gets the batch of b, as then all of the result is written:

    MatMul(a, v)  ->  Gather(MatMul(a, Reshape(v)), 0)         also MatMul(v, b)
    MatMul(a, b)  ->  MatMul(Expand(a), b)
    MatMul(a, b)  ->  MatMul(Expand(a), Expand(b)), where a may have an empty batch that b has not
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute, redirect, static_shape
from sambac.passes.base import MAYBE_WITHOUT_ELEMENTS, WITHOUT_ELEMENTS, Pass
from sambac.passes.rewriting import Rule, RulePass, constant, present

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmptyResults(Pass):
    """Put constants in the place of operators whose results have no elements."""

    name: ClassVar[str] = "empty_results"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        editor = Editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                if node.graph is not None and not _is_constant(node):
                    modified |= _emptied(editor, node)
        return ir.passes.PassResult(model, modified=modified)


_OF_CONSTANTS = frozenset({"Constant", "ConstantOfShape", "Expand", "Range"})
"""Of these is nothing to gain; a Range refuses what has no number of elements when it is run."""


def _is_constant(node: ir.Node) -> bool:
    return node.op_type in _OF_CONSTANTS and all(
        constant(value) is not None for value in present(node.inputs)
    )


def _emptied(editor: Editor, node: ir.Node) -> bool:
    """Do so for `node`; return whether its results are empty."""
    read = [out for out in node.outputs if out.uses() or out.is_graph_output()]
    if not read or not all(_is_empty(out) and _has_numbers(out) for out in read):
        return False
    places = _places(node)
    if any(_opened(out) - places.keys() for out in read):
        return False
    if any(_opened(out) and not _is_expanded(editor, out) for out in read):
        return False
    editor.rewrite(node)
    for out in read:
        redirect(out, _nothing(editor, out, places))
    editor.remove(node)
    logger.debug("empty_results: rewrote %s", node.name)
    return True


_Places = Mapping[str, tuple[ir.Value, int]]
"""Where open sizes are to be had: operands and their axes, by the name of the size."""


def _places(node: ir.Node) -> _Places:
    return {
        size.value: (value, axis)
        for value in present(node.inputs)
        for axis, size in enumerate(value.shape or ())
        if not isinstance(size, int) and size.value is not None
    }


def _opened(out: ir.Value) -> set[str | None]:
    """Return the names of the sizes of `out` that are open."""
    return {size.value for size in out.shape or () if not isinstance(size, int)}


def _is_empty(out: ir.Value) -> bool:
    return out.shape is not None and any(size == 0 for size in out.shape)


def _has_numbers(out: ir.Value) -> bool:
    return isinstance(out.type, ir.TensorType) and out.dtype != ir.DataType.STRING


def _nothing(editor: Editor, out: ir.Value, places: _Places) -> ir.Value:
    assert out.dtype is not None
    assert out.shape is not None
    sizes = [size if isinstance(size, int) else 1 for size in out.shape]
    content = editor.initializer(np.zeros(sizes, out.dtype.numpy()), f"{out.name}_none")
    if not _is_expanded(editor, out):
        return editor.op("Identity", content, like=out)
    if not _opened(out):
        target = editor.initializer(np.asarray(sizes, np.int64), f"{out.name}_shape")
        return editor.op("Expand", content, target, like=out)
    parts = [
        editor.constant(np.asarray([size], np.int64))
        if isinstance(size, int)
        else _size(editor, *places[str(size.value)])
        for size in out.shape
    ]
    return editor.op("Expand", content, editor.op("Concat", *parts, axis=0), like=out)


def _size(editor: Editor, value: ir.Value, axis: int) -> ir.Value:
    return editor.op("Gather", editor.op("Shape", value), np.asarray([axis]), axis=0)


def _is_expanded(editor: Editor, out: ir.Value) -> bool:
    return editor.opset >= 8 and out.dtype in _EXPANDED  # before, there is no Expand


_EXPANDED = frozenset(
    getattr(ir.DataType, name)
    for name in (
        *("BOOL", "DOUBLE", "FLOAT", "FLOAT16", "INT8", "INT16", "INT32", "INT64"),
        *("UINT8", "UINT16", "UINT32", "UINT64"),
    )
)
"""The types of numbers that onnxruntime expands."""


def reduction(editor: Editor, node: ir.Node) -> str | None:
    """ReduceSum(x [.., 0, ..]) -> zeros; others alike, each to what it makes of nothing."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or 0 not in (static_shape(x) or ()):
        return "there is something to reduce"
    if editor.opset < 8 or static_shape(y) is None or y.dtype is None:
        return "the opset has no Expand, or the shape of the result is not known"
    found = np.asarray(_OF_NOTHING[node.op_type](y.dtype.numpy()), y.dtype.numpy())
    _fill(editor, node, editor.initializer(found, f"{y.name}_nothing"))
    return None


def _lowest(dtype: np.dtype) -> object:
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _largest(dtype: np.dtype) -> object:
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf


def unwritten(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(a, b), where k may be 0 in some run -> that of matrices, a with the batch of b."""
    a, b = present(node.inputs)
    if editor.opset < _SIGNS_OF_INTEGERS or a.shape is None or b.shape is None:
        return "a shape is not known, or the opset lacks operators"
    left, right = len(a.shape), len(b.shape)
    behind = right > 2 and (left < right or _may_spread(a.shape, b.shape))
    emptied = behind and _may_empty(a.shape, b.shape)
    if right > 1 and left > 1 and not behind:
        return "all products are written"
    inner = (a.shape[-1], b.shape[-2 if right > 1 else 0])
    if any(isinstance(size, int) and size > 0 for size in inner):
        return "there is something to sum up"
    added = []
    if left == 1:
        a = editor.op("Reshape", a, [1, -1])
        added.append(-2)
    if right == 1:
        b = editor.op("Reshape", b, [-1, 1])
        added.append(-1)
    if behind:
        of_a = editor.op("Sign", _batch(editor, a)) if emptied else None  # 0 or 1
        a = _with_batch(editor, a, _batch(editor, b))
        b = b if of_a is None else _with_batch(editor, b, of_a)
    if not added:
        editor.replace(node, "MatMul", a, b)
        return None
    product = editor.op("MatMul", a, b)
    if len(added) > 1:
        product = editor.op("Gather", product, np.array(0), axis=-1)
    editor.replace(node, "Gather", product, np.array(0), axis=-1 if len(added) > 1 else added[0])
    return None


_SIGNS_OF_INTEGERS = 9
"""From which opset on there is Sign, as there are Expand and others."""


def _batch(editor: Editor, value: ir.Value) -> ir.Value:
    """Return the sizes of `value` before its last two, in a way that every opset has."""
    assert value.shape is not None
    places = np.arange(len(value.shape) - 2)
    return editor.op("Gather", editor.op("Shape", value), places, axis=0)


def _with_batch(editor: Editor, value: ir.Value, batch: ir.Value) -> ir.Value:
    return editor.op("Expand", value, editor.op("Concat", batch, [1, 1], axis=0))


def _may_empty(a: ir.Shape, b: ir.Shape) -> bool:
    """Tell whether the batch of `a` may be 0 along an axis where that of `b` is 1, or has none."""
    of_b = [1] * (len(a) - len(b)) + list(b[:-2])
    pairs = zip(reversed(a[:-2]), reversed(of_b), strict=False)
    return any(not isinstance(size, int) and size != other for size, other in pairs)


def _may_spread(a: ir.Shape, b: ir.Shape) -> bool:
    """Tell whether a batch of `b`, of no more axes, may be larger than the 1 of `a`."""
    pairs = zip(reversed(a[:-2]), reversed(b[:-2]), strict=False)
    return any(
        of_b != 1 and (of_a == 1 or (not isinstance(of_a, int) and of_a != of_b))
        for of_a, of_b in pairs
    )


# What reductions make of no elements, by the type of the result.
_OF_NOTHING: Mapping[str, Callable[[np.dtype], object]] = {
    "ReduceL1": lambda dtype: 0,
    "ReduceL2": lambda dtype: 0,
    "ReduceLogSum": _lowest,
    "ReduceLogSumExp": _lowest,
    "ReduceMax": _lowest,
    "ReduceMin": _largest,
    "ReduceProd": lambda dtype: 1,
    "ReduceSum": lambda dtype: 0,
    "ReduceSumSquare": lambda dtype: 0,
}


def matmul(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(a [.., m, 0], b [.., 0, n]) -> zeros."""
    return _summand(editor, node, -1)


def gemm(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(a [m, 0], b [0, n], c) -> beta * c, in the shape of the result."""
    inner = 0 if int_attribute(node, "transA") else 1
    return _summand(editor, node, inner, input_at(node, 2))


def quantized(editor: Editor, node: ir.Node) -> str | None:
    """QLinearMatMul(a [.., m, 0], b [.., 0, n]) -> the zero point of the result."""
    point = input_at(node, 7)
    if point is None or point.shape is None or list(point.shape) not in ([], [1]):
        return "the result has several zero points"
    return _summand(editor, node, -1, point)


def convolution(editor: Editor, node: ir.Node) -> str | None:
    """Conv(x [n, 0, ..], w [m, 0, ..], c) -> c by channel, in the shape of the result."""
    bias = input_at(node, 2) if node.op_type == "Conv" else None
    own = static_shape(node.outputs[0])
    if bias is None or own is None or 0 not in (static_shape(node.inputs[0]) or ())[1:2]:
        return _summand(editor, node, 1)
    bias = editor.op("Reshape", bias, [own[1], *(1,) * (len(own) - 2)])
    return _summand(editor, node, 1, bias)


def scan(editor: Editor, node: ir.Node) -> str | None:
    """Scan(s, x [0, ..]) -> t, y: t = s, y = nothing."""
    states = len(node.inputs) - int_attribute(node, "num_scan_inputs")
    given = node.attributes.get("scan_input_axes")
    steps = present(node.inputs[states:])
    axes = [0] * len(steps) if given is None else given.as_ints()
    if editor.opset < _WITHOUT_BATCHES or not any(
        x.shape is not None and x.shape[axis] == 0 for x, axis in zip(steps, axes, strict=True)
    ):
        return "there are steps, or examples"
    places, made = _places(node), node.outputs[states:]
    if any(not _is_empty(out) or _opened(out) - places.keys() for out in made):
        return "the shape of a result is not known"
    editor.rewrite(node)
    for out, state in zip(node.outputs, node.inputs[:states], strict=False):
        redirect(out, editor.op("Identity", state, like=out))
    for out in made:
        redirect(out, _nothing(editor, out, places))
    editor.remove(node)
    return None


_WITHOUT_BATCHES = 9
"""From which opset on a Scan has no axis of examples."""


def _summand(editor: Editor, node: ir.Node, inner: int, c: ir.Value | None = None) -> str | None:
    if editor.opset < 8:
        return "the opset has no Expand"
    left, y = node.inputs[0], node.outputs[0]
    factor = None if left is None else static_shape(left)
    shape = static_shape(y)
    if not factor or shape is None or y.dtype is None:
        return "a shape is not known"
    if factor[inner] != 0:
        return "there is something to sum up"
    dtype, beta = y.dtype.numpy(), float_attribute(node, "beta", 1.0)
    stem = y.name
    if c is None or beta == 0:
        content = editor.initializer(np.zeros((), dtype), f"{stem}_zero")
    elif beta == 1:
        content = c
    else:
        scale = editor.initializer(np.asarray(beta, dtype), f"{stem}_beta")
        content = editor.op("Mul", c, scale, like=c)
    _fill(editor, node, content)
    return None


def _fill(editor: Editor, node: ir.Node, content: ir.Value) -> None:
    """Let the result of `node`, whose shape is known, be `content` everywhere."""
    y = node.outputs[0]
    shape = np.asarray(static_shape(y), np.int64)
    editor.replace(node, "Expand", content, editor.initializer(shape, f"{y.name}_shape"))


@dataclass(frozen=True)
class EmptySums(RulePass):
    """Rewrite reductions, products of matrices and scans with no elements to fold."""

    name: ClassVar[str] = "empty_sums"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gemm": (gemm,),
        **dict.fromkeys(("MatMul", "MatMulInteger"), (matmul,)),
        **dict.fromkeys(("Conv", "ConvInteger"), (convolution,)),
        "QLinearMatMul": (quantized,),
        "Scan": (scan,),
        **dict.fromkeys(_OF_NOTHING, (reduction,)),
    }


@dataclass(frozen=True)
class OpenProducts(RulePass):
    """Rewrite products that may sum up nothing in some run, and would leave results unwritten."""

    name: ClassVar[str] = "open_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({MAYBE_WITHOUT_ELEMENTS})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MatMul": (unwritten,)}
