"""Refuse windows that onnxruntime would refuse in every run, by its own reason, in one message.

    Conv, ConvTranspose, AveragePool, LpPool, MaxPool

Asked is a model of the operator alone, with one channel, where the sizes are known and the window
is odd: larger than the image, with a margin that `auto_pad` finds while it has gaps or leaves some,
beside margins of half its size, or with a result of a size that is given. Branches are not looked
at, as they may never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.nodes import input_at, text_attribute
from sambac.graph.origins import place_of
from sambac.kernels.probe import RefusedError, open_session, run_on_zeros

from .base import Pass

_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_OPERATORS = _CONVOLUTIONS | {"AveragePool", "LpPool", "MaxPool"}
_PROBED_IR_VERSION = 8


@dataclass(frozen=True)
class CheckWindows(Pass):
    """Raise `CompileError` listing every operator whose windows onnxruntime refuses."""

    name: ClassVar[str] = "check_windows"
    operators: ClassVar[frozenset[str] | None] = _OPERATORS

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Check `model`, which is not changed."""
        opset = model.opset_imports.get("", 1)
        wrong = [
            f"  {node.op_type} '{node.name}'{place_of(node)}: {reason}"
            for node in model.graph
            if node.domain == "" and node.op_type in _OPERATORS
            for reason in _refused(node, node.version or opset)
        ]
        if wrong:
            raise CompileError(
                "\n".join(("windows do not fit; correct them or the sizes of inputs:", *wrong))
            )
        return ir.passes.PassResult(model, modified=False)


def _refused(node: ir.Node, opset: int) -> Iterator[str]:
    """Yield why onnxruntime refuses the windows of `node`, if it does."""
    image, window = _sizes(node, 0), _window(node)
    if image is None or window is None or len(image) != len(window):
        return
    if not _is_odd(node, image, window):
        return
    try:
        run_on_zeros(open_session(_alone(node, image, window, opset)))
    except RefusedError as refusal:
        spelled = " x ".join(map(str, window)), " x ".join(map(str, image))
        yield f"a window of {spelled[0]} on an image of {spelled[1]}: {_reason(refusal)}"


def _reason(refusal: RefusedError) -> str:
    """Return the sentence of a refusal, without the condition in C++ and its place."""
    found = str(refusal)
    for preamble in ("Status Message: ", " was false. "):
        found = found.rpartition(preamble)[2]
    return found


def _sizes(node: ir.Node, index: int) -> Sequence[int] | None:
    """Return the sizes of an input after the batch and the channels, None if one is open."""
    value = input_at(node, index)
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape[2:] if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) - 2 else None


def _window(node: ir.Node) -> Sequence[int] | None:
    if "kernel_shape" in node.attributes:
        return _integers(node, "kernel_shape")
    return _sizes(node, 1) if node.op_type in _CONVOLUTIONS else None


def _integers(node: ir.Node, name: str) -> Sequence[int]:
    attribute = node.attributes.get(name)
    return () if attribute is None else tuple(attribute.as_ints())


def _is_odd(node: ir.Node, image: Sequence[int], window: Sequence[int]) -> bool:
    """Tell whether onnxruntime might refuse a window; all others are known to have a result."""
    dilated = any(step > 1 for step in _integers(node, "dilations"))
    gaps = any(step > size for step, size in zip(_integers(node, "strides"), window, strict=False))
    placed = text_attribute(node, "auto_pad", "NOTSET") != "NOTSET"
    margins = zip(_integers(node, "pads"), (*window, *window), strict=False)
    return (
        ((dilated or gaps) and placed)
        or bool(_integers(node, "output_shape") or _integers(node, "output_padding"))
        or any(pad * 2 >= size for pad, size in margins)
        or any(_reach(node, window)[axis] > size for axis, size in enumerate(image))
    )


def _reach(node: ir.Node, window: Sequence[int]) -> Sequence[int]:
    dilations = _integers(node, "dilations") or (1,) * len(window)
    return [(size - 1) * step + 1 for size, step in zip(window, dilations, strict=False)]


def _alone(node: ir.Node, image: Sequence[int], window: Sequence[int], opset: int) -> bytes:
    """Return a model of `node` alone, for one channel."""
    inputs = [_input("image", image)]
    if node.op_type in _CONVOLUTIONS:
        inputs.append(_input("weights", window))
    kept = [item for name, item in node.attributes.items() if name not in ("group", "kernel_shape")]
    kernel = ir.AttrInt64s("kernel_shape", list(window))
    operator = ir.Node("", node.op_type, inputs, [*kept, kernel])
    operator.outputs[0].name = "result"
    operator.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(inputs, operator.outputs, nodes=[operator], opset_imports={"": opset})
    graph.name = "probe"
    model = ir.Model(graph, ir_version=_PROBED_IR_VERSION)
    content: bytes = ir.to_proto(model).SerializeToString()
    return content


def _input(name: str, sizes: Sequence[int]) -> ir.Value:
    return ir.Value(
        name=name, shape=ir.Shape((1, 1, *sizes)), type=ir.TensorType(ir.DataType.FLOAT)
    )
