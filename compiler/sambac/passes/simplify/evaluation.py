"""Operators on constants, computed at compile time to the same bytes on every host.

    exact       moves, comparisons, whole numbers, and + - * / and roots, which IEEE 754 defines
                to the last bit: onnxruntime's kernel for the node's own types
    rounding    Exp, Softmax, MatMul, ReduceMean, ...: kernels sum in an order, and approximate by
                polynomials, that depend on the processor. They run in float64 and are rounded once
                (Sigmoid as 1 / (1 + exp(-x)))

A rounding operator on float64, or without a kernel for it, has no numbers that all hosts share.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from sambac.graph.constants import Array
from sambac.graph.names import FreshNames
from sambac.graph.nodes import text_attribute
from sambac.kernels.probe import RefusedError, open_session
from sambac.kernels.registry import KernelCall, why_no_kernel
from sambac.passes.rewriting import constant

logger = logging.getLogger(__name__)

_WIDE = "tensor(double)"
_NARROW = ("tensor(float)", "tensor(float16)")
_ONE = np.ones((), np.float64)
_LINE = 64  # bytes
_FLOATS = frozenset((_WIDE, *_NARROW, "tensor(bfloat16)"))


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Resize computes from few numbers each, in code that is the same for all processors of a kind.
_EXACT = _named(
    """
    Abs Add And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
    CastLike Ceil Clip Compress Concat DepthToSpace Div Equal Expand EyeLike
    Flatten Floor Gather GatherElements GatherND GlobalMaxPool Greater GreaterOrEqual Hardmax
    Identity IsInf IsNaN LeakyRelu Less LessOrEqual Max MaxPool Min Mod Mul Neg NonZero Not OneHot
    Or PRelu Pad ReduceMax ReduceMin Relu Reshape Resize ReverseSequence Round Scatter
    ScatterElements ScatterND Shape Sign Size Slice SpaceToDepth Split Sqrt Squeeze Sub Sum
    TensorScatter ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
    """
)
_ROUNDING = _named(
    """
    Cos CumProd CumSum Einsum Exp Gemm Log LogSoftmax MatMul Pow Range Reciprocal ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Sigmoid Sin
    Softmax Tanh
    """
)
# Sums and products of whole numbers have one result in any order.
_EXACT_ON_INTEGERS = _named(
    """
    ConvInteger CumProd CumSum Einsum Gemm MatMul MatMulInteger Pow Range ReduceL1 ReduceProd
    ReduceSum ReduceSumSquare
    """
)


def is_computable(node: ir.Node, opset: int) -> bool:
    """Tell whether all hosts get the same from a node of the default domain, without harm."""
    if node.op_type in ("Div", "Mod") and not _divides_safely(node):
        return False
    if node.op_type in _EXACT:
        return text_attribute(node, "reduction", "none") == "none"
    call = KernelCall.of(node, {"": opset})
    if not _has_floats(call):
        return node.op_type in _EXACT_ON_INTEGERS
    return node.op_type in _ROUNDING and _widened(call) is not None


def evaluate(nodes: Sequence[ir.Node], opset: int) -> dict[str, Array] | None:
    """Compute nodes, which are computable and read initializers and each other.

    Return what other nodes read, by value name; None if onnxruntime refuses one of the nodes.
    """
    inside = set(nodes)
    wanted = [
        out
        for node in nodes
        for out in node.outputs
        if any(use.node not in inside for use in out.uses())
    ]
    results = _turned(nodes)
    others = [node for node in nodes if node.outputs[0] not in results]
    if others:
        asked = [out for out in wanted if out not in results]
        computed = _in_a_session(others, asked, results, opset)
        if computed is None:
            return None
        results.update(computed)
    return {out.name or "": results[out] for out in wanted}


def _turned(nodes: Sequence[ir.Node]) -> dict[ir.Value, Array]:
    """Return the results of nodes that transpose initializers.

    Most of what folds in a large model are the weights of its layers: onnxruntime would take them
    in a message, of which there are several copies at a time.
    """
    turned: dict[ir.Value, Array] = {}
    for node in nodes:
        stored = node.inputs[0].const_value if node.inputs and node.inputs[0] else None
        if node.op_type == "Transpose" and stored is not None:
            order = node.attributes.get("perm")
            axes = None if order is None else order.as_ints()
            turned[node.outputs[0]] = _in_order(stored.numpy().transpose(axes))
    return turned


def _in_order(view: Array) -> Array:
    """Return a copy of `view` in the order of its axes.

    Matrices are copied in columns as wide as a line of the cache: those of large layers take a
    fifth of the time so.
    """
    if view.ndim != 2:
        return view.copy()
    copy = np.empty(view.shape, view.dtype)
    width = max(1, _LINE // view.itemsize)
    for begin in range(0, view.shape[1], width):
        copy[:, begin : begin + width] = view[:, begin : begin + width]
    return copy


def _in_a_session(
    nodes: Sequence[ir.Node],
    wanted: Sequence[ir.Value],
    known: Mapping[ir.Value, Array],
    opset: int,
) -> dict[ir.Value, Array] | None:
    """Run `nodes`, which read initializers, `known` values and each other; return the `wanted`."""
    made = {out for node in nodes for out in node.outputs}
    stored = dict.fromkeys(v for node in nodes for v in node.inputs if v and v not in made)
    graph = onnx.GraphProto(name="constants")
    fresh = FreshNames(str(value.name) for value in (*stored, *made))
    for node in nodes:
        graph.node.extend(_protos(node, opset, fresh))
    graph.initializer.extend(_tensor_proto(value, known.get(value)) for value in stored)
    graph.output.extend(ir.to_proto(value) for value in wanted)
    model = onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", opset)]
    )
    try:
        arrays = open_session(model.SerializeToString()).run(None, {})
    except (RefusedError, Fail, InvalidArgument, RuntimeException) as refusal:
        logger.debug("constants stay: %s", refusal)
        return None
    return dict(zip(wanted, arrays, strict=True))


def _divides_safely(node: ir.Node) -> bool:
    """Dividing an integer by 0, or the smallest one by -1, would end the process."""
    divisor = constant(node.inputs[1])
    if divisor is None:
        return False
    return divisor.dtype.kind not in "iu" or not bool(np.isin(divisor, (0, -1)).any())


def _has_floats(call: KernelCall) -> bool:
    return not _FLOATS.isdisjoint(call.inputs + call.outputs)


def _widened(call: KernelCall) -> KernelCall | None:
    """Return the call in float64, or None if it has been in it before, or has no such kernel."""
    types = set(call.inputs + call.outputs)
    if types & _FLOATS - set(_NARROW):
        return None
    wide = replace(call, inputs=_widen(call.inputs), outputs=_widen(call.outputs))
    return wide if why_no_kernel(wide) is None else None


def _widen(types: Sequence[str]) -> tuple[str, ...]:
    return tuple(_WIDE if type_ in _NARROW else type_ for type_ in types)


def _protos(node: ir.Node, opset: int, fresh: FreshNames) -> Iterator[onnx.NodeProto]:
    """Yield what computes the node: itself, or it in float64 between casts."""
    proto, call = ir.to_proto(node), KernelCall.of(node, {"": opset})
    if node.op_type not in _ROUNDING or not _has_floats(call):
        yield proto
        return
    casts = []
    for index, type_ in enumerate(call.inputs):
        if type_ in _NARROW:
            wide = fresh("wide")
            yield _cast(proto.input[index], wide, ir.DataType.DOUBLE)
            proto.input[index] = wide
    for index, type_ in enumerate(call.outputs):
        if type_ in _NARROW:
            wide = fresh("wide")
            dtype = node.outputs[index].dtype or ir.DataType.FLOAT
            casts.append(_cast(wide, proto.output[index], dtype))
            proto.output[index] = wide
    yield from _sigmoid(proto, fresh) if node.op_type == "Sigmoid" else [proto]
    yield from casts


def _sigmoid(proto: onnx.NodeProto, fresh: FreshNames) -> Iterator[onnx.NodeProto]:
    """Yield 1 / (1 + exp(-x)) for a sigmoid; the kernel gives 0 below -37, in float64 too."""
    less, power, one, total = (fresh("sigmoid") for _ in range(4))
    yield onnx.helper.make_node("Neg", proto.input, [less])
    yield onnx.helper.make_node("Exp", [less], [power])
    yield onnx.helper.make_node("Constant", [], [one], value=onnx.numpy_helper.from_array(_ONE))
    yield onnx.helper.make_node("Add", [power, one], [total])
    yield onnx.helper.make_node("Reciprocal", [total], proto.output)


def _cast(source: str, result: str, dtype: ir.DataType) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [result], to=int(dtype))


def _tensor_proto(value: ir.Value, known: Array | None) -> onnx.TensorProto:
    """Return what is `known` of a value, or the content of an initializer wherever it is."""
    tensor = value.const_value if known is None else ir.Tensor(known, dtype=value.dtype)
    if tensor is None:
        raise ValueError(f"{value.name} has no content")
    if isinstance(tensor, ir.ExternalTensor):
        tensor = ir.Tensor(tensor.numpy(), dtype=tensor.dtype)
    proto = onnx.TensorProto()
    ir.serde.serialize_tensor_into(proto, tensor)
    proto.name = value.name or ""
    return proto
