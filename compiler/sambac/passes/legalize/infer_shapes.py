"""Find the type and the shape of every value, whatever the model declares about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from pef.foreign import reading, why
from sambac.errors import CompileError
from sambac.graph import protos
from sambac.graph.loop_states import keep_loop_states
from sambac.graph.nodes import all_nodes, has_subgraphs, input_at, subgraphs
from sambac.graph.open_sizes import name_alike
from sambac.graph.own_gradients import DOMAIN, INCOMING, OWN
from sambac.graph.pool_sizes import WINDOWED, count_as_onnxruntime, differing_windows
from sambac.graph.protos import skeleton
from sambac.graph.resized_sizes import RESIZING, resize_as_onnxruntime
from sambac.graph.value_types import parse, read_shape, read_type
from sambac.kernels.probe import RefusedError, open_session
from sambac.kernels.registry import KernelCall, output_types
from sambac.passes.base import Pass

_LIKE_IDENTITY = frozenset(
    {("com.microsoft", "GatedAdd"), ("", "GroupNormalization"), (DOMAIN, INCOMING)}
)
"""Operators whose output has the type and the shape of the first input."""

# More elements than anybody computes a shape from; a second's work for the ONNX library.
_LONGEST_VECTOR = 1 << 20
_FAR = 1 << 31
_TREES = frozenset(
    ("ai.onnx.ml", op_type) for op_type in ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
)


_SCORES = 3
"""Which result of an Attention of ONNX are its scores."""

_DEADLY = "but ellipsis for input"
"""Said of an Einsum whose terms have axes of different numbers for their dots."""


class _NotInferredError(Exception):
    """The ONNX library objects to a model."""


@dataclass(frozen=True)
class InferShapes(Pass):
    """Replace all declared types and shapes but those of the inputs by inferred ones.

    What cannot be inferred stays unknown: a shape of None, or a dimension without a size. Types
    that the ONNX library does not know (operators of other domains) are onnxruntime's.
    Raises `CompileError` where the operators contradict each other.
    """

    name: ClassVar[str] = "infer_shapes"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infer types and shapes in `model`."""
        infer(model)
        return ir.passes.PassResult(model, modified=True)


def infer(model: ir.Model) -> None:
    """Infer the types and shapes of all values that nodes make, in place."""
    declared = _declared_results(model)
    _forget(model.graph)
    _read_graph(model.graph, _inferred(model).graph)
    if unknown := _unknown(model.graph):
        ask_runtime(model, unknown)
    _ask_schemas(model)
    for value, shape in declared.items():
        value.shape = shape if value.shape is None else value.shape
    made = (value for node in model.graph for value in node.outputs)
    if open_ := [one for one in made if one.shape is not None and not one.shape.is_static()]:
        name_alike(model.graph, open_)


def _declared_results(model: ir.Model) -> dict[ir.Value, ir.Shape]:
    """Return the shapes that are declared of what subgraphs give.

    Where nothing can be inferred, as of what comes from another loop, they are all there is:
    onnxruntime runs no Scan without them, and a Loop without a step gives what they say.
    """
    inner = (graph for graph in model.graphs() if graph is not model.graph)
    results = (value for graph in inner for value in graph.outputs)
    return {value: value.shape for value in results if value.shape is not None}


def _message(model: ir.Model) -> onnx.ModelProto:
    """Return the model to ask about; whole, as onnxruntime makes the kernels of what it types."""
    proto = skeleton(model)
    _simplify(proto.graph)
    return proto


def _lean_message(model: ir.Model) -> onnx.ModelProto:
    """Return the model without the nodes of trees, which the ONNX library would only copy.

    An ensemble is little else. The library infers from what its results are called and how many
    there are.
    """
    proto = _message(model)
    protos.copy_constants_inside(proto.graph)
    for node in proto.graph.node:
        if (node.domain, node.op_type) in _TREES:
            for attribute in node.attribute:
                if not attribute.name.startswith("classlabels_"):
                    for field in ("ints", "floats", "strings"):
                        attribute.ClearField(field)
    return proto


def _simplify(graph: onnx.GraphProto) -> None:
    """Put an Identity in place of operators that ONNX cannot infer and that infer like it."""
    for node in graph.node:
        if (node.domain, node.op_type) in _LIKE_IDENTITY:
            node.domain, node.op_type = "", "Identity"
            del node.input[1:]
            del node.attribute[:]
    if any((node.domain, node.op_type) == (DOMAIN, OWN) for node in graph.node):
        nodes = [one for node in graph.node for one in _identities(node)]
        del graph.node[:]
        graph.node.extend(nodes)


def _identities(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return an Identity for each output of an OwnGradient, which is like the input at its place.

    Other nodes are returned as they are.
    """
    if (node.domain, node.op_type) != (DOMAIN, OWN):
        return [node]
    pairs = zip(node.input, node.output, strict=False)
    return [onnx.helper.make_node("Identity", [read], [made]) for read, made in pairs]


def _unknown(graph: ir.Graph) -> list[ir.Value]:
    """Return the values that the nodes of `graph` make and onnxruntime may know more of.

    That is none where all have types, as the ONNX library knows all operators then. Of what lies
    behind one that it does not know, it may find a type without sizes.
    """
    made = [value for node in graph for value in node.outputs if value.name]
    if all(value.type is not None for value in made):
        return []
    return [value for value in made if value.type is None or not _is_known(value)]


def _is_known(value: ir.Value) -> bool:
    """Tell whether the sizes of `value` are known, or it is no tensor."""
    shape = value.shape
    return not isinstance(value.type, ir.TensorType) or (shape is not None and shape.is_static())


def _ask_schemas(model: ir.Model) -> None:
    """Give values that still have no type, inside subgraphs above all, what schemas say."""
    for node in all_nodes(model.graph):
        if all(value.type is not None for value in node.outputs):
            continue
        types = output_types(KernelCall.of(node, model.opset_imports))
        for value, type_ in zip(node.outputs, types, strict=True):
            if value.type is None and type_:
                value.type = parse(type_)


def _forget(graph: ir.Graph) -> None:
    """Drop what is declared of the values that nodes make, subgraphs included."""
    for node in graph:
        for value in node.outputs:
            value.type = None
            value.shape = None
        for inner in subgraphs(node):
            _forget(inner)


def _inferred(model: ir.Model) -> onnx.ModelProto:
    """Run the ONNX library's inference; where it objects, onnxruntime is the judge.

    Shapes that depend on values are followed only where there are any. The library follows every
    element of a vector by itself, which takes seconds and gigabytes for millions of them, as in an
    optimizer's packed state: from some size on it is not asked to. Nor is it where the steps of a
    slice may not fit into the 32 bits in which it counts, as it would count for ever.
    """
    proto = _lean_message(model)
    operators = {node.op_type for node in proto.graph.node}
    differing = {} if WINDOWED.isdisjoint(operators) else differing_windows(proto.graph)
    resized = not RESIZING.isdisjoint(operators)
    found = _inferred_from(proto, model)
    if "Loop" in operators and keep_loop_states(proto):
        found = _inferred_from(proto, model)
    while (differing and count_as_onnxruntime(proto.graph, differing, found.graph)) or (
        resized and resize_as_onnxruntime(proto.graph, found.graph)
    ):
        found = _inferred_from(proto, model)
    return found


def _inferred_from(proto: onnx.ModelProto, model: ir.Model) -> onnx.ModelProto:
    """Run the inference on `proto`, the message of `model`."""
    follow = not _has_long_inputs(proto.graph) and _has_small_steps(proto.graph, frozenset())
    try:
        with reading(_NotInferredError):
            found = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
            if not follow or _is_complete(found.graph):
                return found
            return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    except _NotInferredError as error:
        _require_agreement(_message(model), error)

    def refuse(error: Exception) -> CompileError:
        return CompileError(
            f"the shapes of the model cannot be inferred: {why(error)}; export it again"
        )

    with reading(refuse):
        return onnx.shape_inference.infer_shapes(proto, data_prop=follow)


def _has_long_inputs(graph: onnx.GraphProto) -> bool:
    """Return whether a graph, or a body of a loop in it, takes a long vector."""
    return any(_is_long_vector(info.type) for info in graph.input) or any(
        _has_long_inputs(inner) for node in graph.node for inner in protos.subgraphs(node)
    )


def _is_long_vector(proto: onnx.TypeProto) -> bool:
    dims = proto.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONGEST_VECTOR


def _has_small_steps(graph: onnx.GraphProto, outside: frozenset[str]) -> bool:
    """Return whether all steps of slices are constants of 32 bits.

    `outside` are such constants of the graphs that `graph` is in.
    """
    small = outside.union(item.name for item in graph.initializer if _is_small(item))
    return all(
        (node.op_type != "Slice" or {*node.input[4:5]} - {""} <= small)
        and all(_has_small_steps(inner, small) for inner in protos.subgraphs(node))
        for node in graph.node
    )


def _is_small(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type != onnx.TensorProto.INT64:
        return tensor.data_type == onnx.TensorProto.INT32

    def refuse(error: Exception) -> CompileError:
        return CompileError(f"the initializer '{tensor.name}' cannot be read: {why(error)}")

    with reading(refuse):
        values = onnx.numpy_helper.to_array(tensor)
    return bool((np.abs(values.clip(-_FAR)) < _FAR).all())


def _is_complete(graph: onnx.GraphProto) -> bool:
    """Return whether the shapes of all values that nodes make are known, in subgraphs too."""
    known = {info.name for info in (*graph.value_info, *graph.output) if _is_static(info.type)}
    return all(
        known.issuperset(filter(None, node.output))
        and all(_is_complete(inner) for inner in protos.subgraphs(node))
        for node in graph.node
    )


def _is_static(proto: onnx.TypeProto) -> bool:
    shape = proto.tensor_type.shape
    return proto.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in shape.dim)


def _require_agreement(proto: onnx.ModelProto, objection: _NotInferredError) -> None:
    """Raise `CompileError` if onnxruntime, too, finds that the model contradicts itself.

    Whatever else it objects to, such as an operator without a kernel, is for later passes. Of some
    of what the ONNX library says in its `objection` it ends the process instead.
    """
    found: Exception | None = objection if _DEADLY in str(objection) else None
    try:
        if found is None:
            open_session(proto.SerializeToString())
    except RefusedError as refusal:
        found = refusal if "InferenceError" in str(refusal) else None
    if found is not None:
        raise CompileError(
            f"the operators of the model contradict each other: {str(found).strip()}; "
            "correct the model, or the shapes given for its inputs"
        ) from found


def _read_graph(graph: ir.Graph, proto: onnx.GraphProto) -> None:
    """Give the values of `graph` the types that `proto`, its inferred form, has for them."""
    infos = {info.name: info for info in proto.value_info}
    infos.update((info.name, info) for info in proto.output)
    for value in (value for node in graph for value in node.outputs):
        info = infos.get(str(value.name))
        if info is not None:
            _read_type(value, info.type)
    holders = [node for node in graph if has_subgraphs(node)]
    holder_protos = [node for node in proto.node if any(True for _ in protos.subgraphs(node))]
    for node, node_proto in zip(holders, holder_protos, strict=True):
        _type_body_inputs(node)
        inner_protos = protos.subgraphs(node_proto)
        for inner, inner_proto in zip(subgraphs(node), inner_protos, strict=True):
            _read_graph(inner, inner_proto)


def _type_body_inputs(node: ir.Node) -> None:
    """Give the inputs of a Loop's or Scan's body the types that the node feeds them.

    What counts the steps of a Loop, and its condition, are scalars: onnxruntime has to know.
    """
    if node.domain != "" or node.op_type not in ("Loop", "Scan"):
        return
    fed: list[ir.TypeProtocol | None] = [
        None if value is None else value.type for value in node.inputs
    ]
    if node.op_type == "Loop":
        fed[:2] = [ir.TensorType(ir.DataType.INT64), ir.TensorType(ir.DataType.BOOL)]
        for body in subgraphs(node):
            for value in body.inputs[:2]:
                value.shape = ir.Shape([]) if value.shape is None else value.shape
    for body in subgraphs(node):
        # Scan had the lengths of its sequences as first input before opset 9.
        for value, type_ in zip(body.inputs, fed[len(fed) - len(body.inputs) :], strict=False):
            if value.type is None and type_ is not None:
                value.type = type_


def _read_type(value: ir.Value, proto: onnx.TypeProto) -> None:
    if proto.WhichOneof("value") is None:
        return
    if proto.HasField("tensor_type") and not proto.tensor_type.elem_type:
        return
    value.type, shape = read_type(proto), _possible(read_shape(proto))
    value.shape = None if _are_scores(value) and not shape else shape


def _are_scores(value: ir.Value) -> bool:
    """Tell whether `value` is what Attention gives of its scores, which is never a scalar.

    The ONNX library says that it is one where the shapes of the queries and keys are not known, as
    behind an operator of another domain.
    """
    node = value.producer()
    return node is not None and node.op_type == "Attention" and value.index() == _SCORES


def _possible(shape: ir.Shape | None) -> ir.Shape | None:
    """Return `shape` with open sizes for negative ones, which a branch has that is never taken."""
    if shape is None:
        return None
    return ir.Shape(None if isinstance(dim, int) and dim < 0 else dim for dim in shape)


def ask_runtime(model: ir.Model, unknown: Sequence[ir.Value]) -> None:
    """Ask onnxruntime for the types and shapes of `unknown`, by making them outputs."""
    values = {str(value.name): value for value in unknown}
    query = _message(model)
    query.graph.ClearField("output")
    for name in values:
        query.graph.output.add(name=name)
    try:
        session = open_session(query.SerializeToString())
    except RefusedError:
        return
    for found in session.get_outputs():
        value = values[found.name]
        value.type = parse(found.type)
        # An empty list says that the value is a scalar, or that not even its rank is known.
        if isinstance(value.type, ir.TensorType) and found.shape:
            value.shape = _together(value.shape, _grown(value, found.shape))


def _together(known: ir.Shape | None, found: ir.Shape) -> ir.Shape:
    """Return the shape of which one says `known` and another `found`, whose sizes come first."""
    if known is None or len(known) != len(found):
        return found
    return ir.Shape(
        new if isinstance(new, int) else old for old, new in zip(known, found, strict=True)
    )


def _grown(value: ir.Value, sizes: Sequence[int | str | None]) -> ir.Shape:
    """Return the shape of `value`, of which onnxruntime says `sizes`.

    Keys and values that a GroupQueryAttention gives back are as long as those it is given, or as
    its operand says where that is more: the length is only known in a run.
    """
    node = value.producer()
    given = None if node is None else input_at(node, 3)
    if node is None or node.op_type != "GroupQueryAttention" or given is None or not value.index():
        return ir.Shape(sizes)
    return ir.Shape([*sizes[:2], None, *sizes[3:]])
