"""Refuse operands and windows that onnxruntime would refuse in every run, all in one message.

Operands whose sizes cannot fit, where shape inference lets them pass (`CheckShapes`):

    Conv, ConvInteger   x [N, C, ...], w [M, C / group, ...], group divides M, bias [M];
                        some channels, or known sizes
    ConvTranspose       x [N, C, ...], w [C, M / group, ...], bias [M]
    Gemm                bias that broadcasts to [M, N]
    PRelu               slope that broadcasts to x
    Range               a step that is not 0, and a number of steps
    Squeeze             axes that are not empty: inference keeps all sizes then, and the kernel none
                        of 1

Sizes that are open may fit. Branches are not looked at, as they may never run.

Operands without a rank, of operators that rely on one (`CheckRanks`): for some ranks onnxruntime
does not refuse the run but ends the process.

    AffineGrid              size
    Conv, GridSample        w and grid, with which x is compared
    ConvInteger, DFT, QLinearConv, ReverseSequence, STFT    x
    Einsum, RoiAlign        all
    Concat                  inputs of the model, beside something that has a rank

Windows that it refuses, by its own reason (`CheckWindows`):

    Conv, ConvTranspose, AveragePool, LpPool, MaxPool

Asked is a model of the operator alone, with one channel, where the sizes are known and the window
is odd: larger than the image, with a margin that `auto_pad` finds while it has gaps or leaves some,
beside margins of half its size, or with a result of a size that is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.nodes import all_nodes, input_at, int_attribute, text_attribute
from sambac.graph.origins import place_of
from sambac.kernels.probe import RefusedError, open_session, run_on_zeros
from sambac.passes.base import Pass
from sambac.passes.rewriting import scalar

Sizes = Sequence[object]


def _sizes(node: ir.Node, index: int) -> Sizes | None:
    """Return the dimensions of an input of `node`, numbers where they are known."""
    value = input_at(node, index)
    return None if value is None or value.shape is None else tuple(value.shape)


def _differ(one: object, other: object) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one != other


def _convolution(node: ir.Node) -> Iterator[str]:
    x, w, bias = (_sizes(node, index) for index in range(3))
    group = int_attribute(node, "group", 1)
    if x is None or w is None or len(x) < 3 or len(w) != len(x):
        return
    if isinstance(w[1], int) and _differ(x[1], w[1] * group):
        yield (
            f"the input has {x[1]} channels, and the weights {_spell(w)} in {group} "
            f"group{'s' * (group > 1)} are for {w[1] * group}"
        )
    if isinstance(w[0], int) and w[0] % group:
        yield f"the weights {_spell(w)} have {w[0]} channels, which {group} groups do not divide"
    if node.op_type == "Conv" and bias and _differ(bias[0], w[0]):
        yield f"the bias {_spell(bias)} does not fit the {w[0]} channels of the result"
    # onnxruntime does not write such a result; where its sizes are known it becomes a constant.
    result = node.outputs[0].shape
    if 0 in (x[1], w[1]) and (result is None or not result.is_static()):
        yield f"the input {_spell(x)} has no channels, and other sizes are open; give it all sizes"


def _transposed(node: ir.Node) -> Iterator[str]:
    x, w, bias = (_sizes(node, index) for index in range(3))
    group = int_attribute(node, "group", 1)
    if x is None or w is None or len(x) < 3 or len(w) != len(x):
        return
    if _differ(x[1], w[0]):
        yield f"the input has {x[1]} channels, and the weights {_spell(w)} are for {w[0]}"
    if isinstance(w[1], int) and bias and _differ(bias[0], w[1] * group):
        yield f"the bias {_spell(bias)} does not fit the {w[1] * group} channels of the result"


def _product(node: ir.Node) -> Iterator[str]:
    a, b, bias = (_sizes(node, index) for index in range(3))
    if a is None or b is None or bias is None or len(a) != 2 or len(b) != 2:
        return
    result = (a[int_attribute(node, "transA")], b[1 - int_attribute(node, "transB")])
    if not _broadcasts(bias, result):
        yield f"the third input {_spell(bias)} does not broadcast to the result {_spell(result)}"


def _slope(node: ir.Node) -> Iterator[str]:
    x, slope = _sizes(node, 0), _sizes(node, 1)
    if x is not None and slope is not None and not _broadcasts(slope, x):
        yield f"the slope {_spell(slope)} does not broadcast to the input {_spell(x)}"


def _squeezed(node: ir.Node) -> Iterator[str]:
    attribute, given = node.attributes.get("axes"), input_at(node, 1)
    constant = None if given is None else ir.convenience.get_const_tensor(given)
    listed = attribute is not None and not attribute.as_ints()
    if listed or (constant is not None and constant.size == 0):
        yield "its axes are empty, which may mean none or all; leave them out, or list some"


def _counted(node: ir.Node) -> Iterator[str]:
    start, limit, step = map(scalar, node.inputs)
    # Inference takes the results for empty.
    if step == 0:
        yield "its step is 0, so that it never ends"
    elif start is not None and limit is not None and step and not isfinite((limit - start) / step):
        yield f"from {start} to {limit} by {step} there is no number of steps"


def _broadcasts(sizes: Sizes, wanted: Sizes) -> bool:
    """Tell whether `sizes` may broadcast to `wanted`, which stays what it is."""
    pairs = zip(reversed(sizes), reversed(wanted), strict=False)
    fits = all(size == 1 or not _differ(size, want) for size, want in pairs)
    return fits and len(sizes) <= len(wanted)


def _spell(sizes: Sizes) -> str:
    return f"[{', '.join(map(str, sizes))}]"


_CHECKS: Mapping[str, Callable[[ir.Node], Iterator[str]]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed,
    "Gemm": _product,
    "PRelu": _slope,
    "Range": _counted,
    "Squeeze": _squeezed,
}


@dataclass(frozen=True)
class CheckShapes(Pass):
    """Raise `CompileError` listing every operator whose operands do not fit each other."""

    name: ClassVar[str] = "check_shapes"
    operators: ClassVar[frozenset[str] | None] = frozenset(_CHECKS)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Check `model`, which is not changed."""
        wrong = [
            f"  {node.op_type} '{node.name}'{place_of(node)}: {reason}"
            for node in model.graph
            if node.domain == "" and node.op_type in _CHECKS
            for reason in _CHECKS[node.op_type](node)
        ]
        if wrong:
            raise CompileError(
                "\n".join(("sizes do not fit; correct the weights or the inputs:", *wrong))
            )
        return ir.passes.PassResult(model, modified=False)


_FIRST = (0,)
_RANKED: Mapping[str, Sequence[int] | None] = {
    "AffineGrid": (1,),
    "Concat": None,
    "Conv": (1,),
    "ConvInteger": _FIRST,
    "DFT": _FIRST,
    "Einsum": None,
    "GridSample": (1,),
    "QLinearConv": _FIRST,
    "ReverseSequence": _FIRST,
    "RoiAlign": None,
    "STFT": _FIRST,
}
"""Operators that rely on ranks, and the operands whose ranks they are; None means all."""


@dataclass(frozen=True)
class CheckRanks(Pass):
    """Raise `CompileError` listing every operand that has to have a rank and has none."""

    name: ClassVar[str] = "check_ranks"
    operators: ClassVar[frozenset[str] | None] = frozenset(_RANKED)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Check `model`, subgraphs included; it is not changed."""
        wrong = [
            f"  {node.op_type} '{node.name}'{place_of(node)}: '{value.name}'"
            for node in all_nodes(model.graph)
            if node.domain == "" and node.op_type in _RANKED
            for value in _without_rank(node, model.graph.inputs)
        ]
        if wrong:
            head = (
                "the number of dimensions is not known of what these operators read; declare "
                "shapes in the model, or give those of its inputs (--input NAME=SHAPE):"
            )
            raise CompileError("\n".join((head, *wrong)))
        return ir.passes.PassResult(model, modified=False)


def _without_rank(node: ir.Node, inputs: Sequence[ir.Value]) -> Iterator[ir.Value]:
    """Yield the operands of `node` that have to have a rank and have none.

    `inputs` are those of the model.
    """
    wanted = _RANKED[node.op_type]
    given = [(at, value) for at, value in enumerate(node.inputs) if value is not None]
    unknown = [value for at, value in given if value.shape is None and at in (wanted or (at,))]
    if node.op_type == "Concat":
        # What the model computes itself is of the others' rank, or it does not run anywhere.
        some = any(value.shape is not None for _, value in given)
        unknown = [value for value in unknown if some and value in inputs]
    yield from unknown


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
    image, window = _image_sizes(node, 0), _window(node)
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


def _image_sizes(node: ir.Node, index: int) -> Sequence[int] | None:
    """Return the sizes of an input after the batch and the channels, None if one is open."""
    value = input_at(node, index)
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape[2:] if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) - 2 else None


def _window(node: ir.Node) -> Sequence[int] | None:
    if "kernel_shape" in node.attributes:
        return _integers(node, "kernel_shape")
    return _image_sizes(node, 1) if node.op_type in _CONVOLUTIONS else None


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
