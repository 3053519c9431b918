"""What PyTorch makes of random models, so that gradients come for free, in any precision.

As the compiler trains them: BatchNormalization takes the statistics of the batch. Operators are
those that `random_graphs` draws, with the attributes that it gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor
from torch.nn import functional


def _folded(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda *given: reduce(function, given)


def _conv(x: Tensor, *weights: Tensor, group: int, pads: list[int], **_: Any) -> Tensor:
    return functional.conv2d(x, *weights, padding=pads[0], groups=group)


def _batch_norm(x: Tensor, *given: Tensor, epsilon: float) -> Tensor:
    """Normalise by hand: PyTorch refuses batches of one, and errs for images of one column."""
    scale, bias = (one.reshape(-1, 1, 1) for one in given[:2])
    centred = x - x.mean((0, 2, 3), keepdim=True)
    variance = centred.square().mean((0, 2, 3), keepdim=True)
    return centred * (variance + epsilon).rsqrt() * scale + bias


def _pad(x: Tensor, amounts: Tensor) -> Tensor:
    before, after = amounts.reshape(2, -1).tolist()
    pairs = zip(reversed(before), reversed(after), strict=True)
    return functional.pad(x, [amount for pair in pairs for amount in pair])


def _slice(x: Tensor, *given: Tensor) -> Tensor:
    start, end, axis, step = (int(one) for one in given)
    return x[(*[slice(None)] * axis, slice(start, end, step))]


def _reduced(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def reduced(x: Tensor, axes: list[int] | None = None, keepdims: int = 1) -> Tensor:
        return function(x, [*range(x.dim())] if axes is None else axes, bool(keepdims))

    return reduced


def _filled(shape: Tensor, value: onnx.TensorProto) -> Tensor:
    return torch.full(shape.tolist(), numpy_helper.to_array(value).item())


_OPERATORS: Mapping[str, Callable[..., Tensor]] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "AveragePool": lambda x, kernel_shape, strides: functional.avg_pool2d(x, kernel_shape, strides),
    "BatchNormalization": _batch_norm,
    "Cast": lambda x, to: x,
    "Concat": lambda *given, axis: torch.cat(given, axis),
    "ConstantOfShape": _filled,
    "Conv": _conv,
    "Div": torch.div,
    "Expand": lambda x, sizes: x * torch.ones(sizes.tolist(), dtype=x.dtype),
    "Gather": lambda x, at, axis: x.select(axis, int(at)),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "Identity": lambda x: x,
    "LRN": lambda x, size, alpha, beta: functional.local_response_norm(x, size, alpha, beta),
    "LayerNormalization": lambda x, scale: functional.layer_norm(x, x.shape[-1:], scale),
    "MatMul": torch.matmul,
    "Max": _folded(torch.maximum),
    "MaxPool": lambda x, kernel_shape, strides: functional.max_pool2d(x, kernel_shape, strides),
    "Mean": lambda *given: sum(given) / len(given),
    "Min": _folded(torch.minimum),
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Pad": _pad,
    "Pow": torch.pow,
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "ReduceMin": _reduced(torch.amin),
    "Relu": torch.relu,
    "Reshape": lambda x, shape: x.reshape(shape.tolist()),
    "Shape": lambda x: torch.tensor(x.shape),
    "Sigmoid": torch.sigmoid,
    "Slice": _slice,
    "Softmax": lambda x, axis: x.softmax(axis),
    "Softplus": functional.softplus,
    "Sub": torch.sub,
    "Sum": _folded(torch.add),
    "Tanh": torch.tanh,
    "Transpose": lambda x, perm: x.permute(perm),
}


def computed(model: onnx.ModelProto, given: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the outputs of a model; `given` are its inputs and initializers.

    Everything is computed in the type of the first of them.
    """
    values, wide = dict(given), next(iter(given.values())).dtype
    for node in model.graph.node:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        result = _OPERATORS[node.op_type](*(values[name] for name in node.input), **attributes)
        values[node.output[0]] = result.to(wide) if result.is_floating_point() else result
    return [values[output.name] for output in model.graph.output]
