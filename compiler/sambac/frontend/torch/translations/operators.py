"""Operators as translations call them, while PyTorch's exporter records what they do.

op.Add(x, y)                      the first output
several.Split(x, axis=0)          all outputs

Outputs have the type of the inputs that the standard says they share it with, as the exporter gives
a number among the inputs of an operator the type of the values beside it, or float32.

Operands of several types are cast to what PyTorch computes in. The exporter does so for the
operators that it has a list of; that has neither `torch.divide` nor the
functions of `torch.special`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import torch
from onnx import defs
from onnx_ir import tensor_adapters
from onnxscript import opset23
from onnxscript.values import Op, Opset
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes

STOP_DOMAIN, STOP, CALM, OPEN = "sambac.frontend", "Stop", "Calm", "Open"
"""An Identity through which no gradient flows, one that drops gradients that are no number, and a
Clip at whose limits no gradient passes.

No optimizer knows them, so none removes them.
"""
MARKED = MappingProxyType({STOP: "Identity", CALM: "Identity", OPEN: "Clip"})
"""What they are to everybody but gradients."""


class _Operators:
    """The operators of the ONNX standard; inputs are values, None, or numbers."""

    def __getattr__(self, name: str) -> Callable[..., ir.Value]:
        def call(*inputs: object, **attributes: object) -> ir.Value:
            first: ir.Value = getattr(several, name)(*inputs, **attributes)[0]
            return first

        return call


class _WithAllOutputs:
    """The same operators, with all outputs that they can have."""

    def __getattr__(self, name: str) -> Callable[..., tuple[ir.Value, ...]]:
        operator = getattr(opset23, name)

        def call(*inputs: object, **attributes: object) -> tuple[ir.Value, ...]:
            result = operator(*inputs, **attributes)
            outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            _give_types(defs.get_schema(name, opset23.version), inputs, outputs)
            return outputs

        return call


def _give_types(
    schema: defs.OpSchema, inputs: Sequence[object], outputs: Sequence[ir.Value]
) -> None:
    """Give `outputs` without a type that of the inputs that share its name in `schema`."""
    known = {
        _formal(schema.inputs, index).type_str: value.dtype
        for index, value in enumerate(inputs)
        if isinstance(value, ir.Value) and value.dtype is not None
    }
    for index, value in enumerate(outputs):
        found = known.get(_formal(schema.outputs, index).type_str)
        if value.dtype is None and found is not None:
            value.dtype = found


def _formal(
    formals: Sequence[defs.OpSchema.FormalParameter], index: int
) -> defs.OpSchema.FormalParameter:
    """Return the formal parameter of an operand; the last one may stand for several."""
    return formals[min(index, len(formals) - 1)]


op = _Operators()
several = _WithAllOutputs()


def constant(array: np.ndarray) -> ir.Value:
    """Return a constant with the content of `array`; its type and shape are known."""
    content = ir.tensor(array)
    result = op.Constant(value=content)
    result.dtype, result.shape = content.dtype, ir.Shape(array.shape)
    return result


def from_the_start(indices: ir.Value) -> ir.Value:
    """Return `indices`, out of any range where they are negative: for PyTorch they are an error.

    ONNX takes negative indices for those from the end, so -1 as a label that somebody meant to be
    ignored would stand for the last class. Without its highest bit it is the largest number, which
    onnxruntime refuses.
    """
    if indices.dtype not in _SIGNED:
        return indices
    largest = np.asarray(without_sign(-1, indices.dtype), indices.dtype.numpy())
    result = op.BitwiseAnd(indices, constant(largest))
    result.shape = indices.shape
    return result


def without_sign(number: int, dtype: ir.DataType | None) -> int:
    """Return what `from_the_start` makes of a whole number."""
    if dtype not in _SIGNED:
        return number
    return number & int(np.iinfo(dtype.numpy()).max)


_SIGNED = (ir.DataType.INT64, ir.DataType.INT32)


def sizes(value: ir.Value, *axes: int) -> tuple[int, ...]:
    """Return the shape of `value`, or the sizes of some axes; `NotImplementedError` if open."""
    dims = () if value.shape is None else value.shape.dims
    wanted = [dims[axis] for axis in axes] if axes and dims else dims
    known = tuple(size for size in wanted if isinstance(size, int))
    if value.shape is None or len(known) != len(wanted):
        fixed = f"axes {', '.join(map(str, axes))}" if axes else "all sizes"
        raise NotImplementedError(f"the shape {value.shape} is open; fix {fixed}")
    return known


Size = int | ir.Value
"""The size of an axis: a number, or an int64 [1] that a program finds where the axis is open."""


def size(value: ir.Value, axis: int) -> Size:
    """Return the size of `value` along `axis`."""
    assert value.shape is not None
    known = value.shape[axis]
    if isinstance(known, int):
        return known
    return op.Gather(op.Shape(value), constant(np.asarray([axis], np.int64)))


def more(length: Size, by: int) -> Size:
    """Return `length + by`."""
    return length + by if isinstance(length, int) else op.Add(length, _vector(by))


def lengths(*given: Size) -> ir.Value:
    """Return a vector of sizes, as operators take a shape."""
    known = [length for length in given if isinstance(length, int)]
    if len(known) == len(given):
        return _vector(*known)
    parts = [_vector(length) if isinstance(length, int) else length for length in given]
    return op.Concat(*parts, axis=0)


def filled(content: np.generic, *given: Size) -> ir.Value:
    """Return a tensor of sizes that holds `content` everywhere."""
    known = [length for length in given if isinstance(length, int)]
    if len(known) == len(given):
        return constant(np.full(known, content))
    return op.Expand(constant(np.asarray(content)), lengths(*given))


def counted(length: Size) -> ir.Value:
    """Return 0, 1, ... `length` - 1."""
    if isinstance(length, int):
        return constant(np.arange(length, dtype=np.int64))
    zero, one = (constant(np.asarray(each, np.int64)) for each in (0, 1))
    result = op.Range(zero, op.Squeeze(length, [0]), one)
    result.dtype, result.shape = ir.DataType.INT64, ir.Shape([None])
    return result


def _vector(*content: int) -> ir.Value:
    return constant(np.asarray(content, np.int64))


def rank(value: ir.Value) -> int:
    """Return the number of axes of `value`."""
    assert value.shape is not None
    return len(value.shape)


def with_axes(value: ir.Value, count: int) -> ir.Value:
    """Return `value` with `count` axes of size 1 before its own; its type and shape are known."""
    if count == 0:
        return value
    assert value.shape is not None
    assert value.dtype is not None
    result = op.Unsqueeze(value, list(range(count)))
    result.dtype, result.shape = value.dtype, ir.Shape((*([1] * count), *value.shape))
    return result


def merged(value: ir.Value, axes: int) -> ir.Value:
    """Return `value` with its last `axes` axes as one; their sizes are known."""
    assert value.shape is not None
    assert value.dtype is not None
    outer = value.shape.dims[:-axes]
    size = math.prod(sizes(value, *range(-axes, 0)))
    known = [each for each in outer if isinstance(each, int)]
    if len(known) == len(outer):
        return reshaped(value, (*known, size))
    result = op.Reshape(value, constant(np.asarray([*[0] * len(outer), size], np.int64)))
    result.dtype, result.shape = value.dtype, ir.Shape((*outer, size))
    return result


def reshaped(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return `value` in another shape, which is known, and in which 0 is a size."""
    result = op.Reshape(value, constant(np.asarray(shape, np.int64)), allowzero=int(0 in shape))
    if value.dtype is not None:
        result.dtype = value.dtype
    result.shape = ir.Shape(shape)
    return result


def is_float(value: ir.Value) -> bool:
    """Tell whether `value` is a tensor of floating-point numbers."""
    return value.dtype is not None and value.dtype.is_floating_point()


def number(content: float, like: ir.Value) -> ir.Value:
    """Return a scalar constant of the type of `like`, which may be infinite."""
    assert like.dtype is not None
    return constant(np.asarray(content, like.dtype.numpy()))


def typed(result: ir.Value, like: ir.Value) -> ir.Value:
    """Return `result`, which is known to have the type and the shape of `like`."""
    assert like.dtype is not None
    result.dtype, result.shape = like.dtype, like.shape
    return result


def with_slope(value: ir.Value, x: ir.Value, slope: ir.Value) -> ir.Value:
    """Return `value`, whose gradient by `x` is to be `slope`, but 0 where `x` is infinite.

    To the value a zero is added that has the slope: slope * (x - x).
    """
    nothing = op.Sub(x, stop(x))
    zero = op.Where(op.IsNaN(nothing), number(0.0, x), nothing)
    return op.Add(stop(value), op.Mul(stop(slope), zero))


def stop(x: ir.Value) -> ir.Value:
    """Return `x`, without a way for gradients."""
    return _marked(STOP, x)


def calm(x: ir.Value) -> ir.Value:
    """Return `x`, to which a gradient that is no number comes as 0: 0 times infinity is none."""
    return _marked(CALM, x)


def clip_open(x: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """min(max(x, low), high), whose gradient is 0 where x is not between the limits."""
    return _marked(OPEN, x, low, high)


def _marked(kind: str, *inputs: ir.Value) -> ir.Value:
    known = defs.get_schema(MARKED[kind], 23)
    types = [(item.type_param_str, item.allowed_type_strs, "") for item in known.type_constraints]
    names = [item.name for item in known.inputs[: len(inputs)]]
    schema = defs.OpSchema(
        kind,
        STOP_DOMAIN,
        1,
        inputs=[defs.OpSchema.FormalParameter(name, types[0][0]) for name in names],
        outputs=[defs.OpSchema.FormalParameter("y", types[0][0])],
        type_constraints=types,
    )
    result: ir.Value = Op(Opset(STOP_DOMAIN, 1), kind, schema)(*inputs)
    return result


Translation = Callable[..., ir.Value]


def common(translate: Translation) -> Translation:
    """Return `translate` for operands that first get their common type."""
    return _promoted(translate, KINDS.DEFAULT)


def floating(translate: Translation) -> Translation:
    """Return `translate` for operands that first get their common floating-point type."""
    return _promoted(translate, KINDS.INT_TO_FLOAT)


def alike(tensors: Sequence[ir.Value]) -> list[ir.Value]:
    """Return tensors of equal ranks in their common type."""
    given = [_example(tensor) for tensor in tensors]
    _, wanted = elementwise_dtypes(*given, type_promotion_kind=KINDS.DEFAULT)
    dtype = tensor_adapters.from_torch_dtype(wanted)
    return [converted(tensor, dtype) for tensor in tensors]


def _promoted(translate: Translation, kind: KINDS) -> Translation:
    def call(*operands: ir.Value | float | None, **settings: object) -> ir.Value:
        given = [_example(operand) for operand in operands if operand is not None]
        _, wanted = elementwise_dtypes(*given, type_promotion_kind=kind)
        dtype = tensor_adapters.from_torch_dtype(wanted)
        cast = [converted(o, dtype) if isinstance(o, ir.Value) else o for o in operands]
        return translate(*cast, **settings)

    return call


def _example(operand: ir.Value | float) -> torch.Tensor | float:
    """Return what has the type and the rank of `operand`."""
    if not isinstance(operand, ir.Value):
        return operand
    assert operand.dtype is not None
    dtype = tensor_adapters.to_torch_dtype(operand.dtype)
    return torch.empty([1] * rank(operand), dtype=dtype, device="meta")


def converted(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Return `value` in a type, of which it knows."""
    if value.dtype == dtype:
        return value
    result = op.Cast(value, to=dtype)
    result.dtype, result.shape = dtype, value.shape
    return result
