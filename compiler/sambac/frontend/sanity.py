"""What has to hold of a model before anything looks at it closely: damage shows here.

Of attributes that is what passes, rules and foreign libraries rely on when they read one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import cast

import onnx
import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.constants import has_element_type
from sambac.graph.nodes import Holder, all_nodes, all_tensors, input_at
from sambac.kernels.failures import why_run_kills
from sambac.kernels.registry import schema

from .scopes import hidden

# What ONNX's own schemas are asked for.
_NEWEST_VERSION = 2**31 - 1


def require_sound(model: ir.Model, name: str) -> None:
    """Raise `CompileError` if names are no text, or inputs and constants have no type.

    `name` is the model's name in the message.
    """
    problems = [
        *_odd_names(model),
        *_missing_bodies(model),
        *_odd_inputs(model),
        *_repeated_inputs(model),
        *_odd_constants(model),
    ]
    # These rely on names that are text, and the last on attributes that can be read.
    problems = problems or [*_undefined(model), *odd_attributes(model)]
    problems = problems or [*_odd_operands(model)]
    if problems:
        raise CompileError(f"{name} is damaged: {listed(problems)}; export or copy it again")


def _odd_names(model: ir.Model) -> Iterator[str]:
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        opsets: Iterable[tuple[object, int]] = body.opset_imports.items()
        for domain, version in opsets:
            if not isinstance(domain, str):
                yield f"the name of an operator set, {domain!r}, is no text"
            elif not 1 <= version <= _NEWEST_VERSION:
                yield f"operator set '{domain}' has the version {version}"
        for node in all_nodes(body):
            # Protobuf returns bytes for what should be text and is not.
            texts: tuple[object, object] = node.op_type, node.domain
            if not all(isinstance(text, str) for text in texts):
                yield f"the name of an operator, {node.op_type!r}, is no text"
            said: dict[str, object] = {"name": node.name, "documentation": node.doc_string}
            for key, text in (said | dict(node.metadata_props)).items():
                if not isinstance(text, str | None) or not isinstance(key, str):
                    yield f"the {key!r} of an operator {node.op_type} is no text"


def _missing_bodies(model: ir.Model) -> Iterator[str]:
    """Find attributes that should hold a graph and stand for none, as outside of functions."""
    for body in (model.graph, *model.functions.values()):
        for node in all_nodes(body):
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH and attribute.value is None:
                    yield (
                        f"the attribute '{attribute.name}' of operator {node.op_type} "
                        f"'{node.name or ''}' holds no graph"
                    )


def _undefined(model: ir.Model) -> Iterator[str]:
    """Find what nothing defines, or one of two; a function sees nothing from outside."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        defined = set(body.inputs)
        where = f"function '{body.name}'"
        if isinstance(body, ir.Graph):
            where = "the model"
            defined.update(body.initializers.values())
        inner = [*body.subgraphs()]
        for graph in inner:
            defined.update(graph.inputs, graph.initializers.values())
        if inner:
            yield from hidden(body)
        for node in all_nodes(body):
            for value in node.inputs:
                if value is not None and value.producer() is None and value not in defined:
                    yield f"{where} reads '{value.name}', which it lacks"


# onnxruntime follows each number of a vector of integers, as of a shape, until memory ends.
_LONGEST_VECTOR = 1 << 26


def _odd_inputs(model: ir.Model) -> Iterator[str]:
    for value in model.graph.inputs:
        if not value.name:
            yield "an input has no name"
        if value.type is None or value.dtype == ir.DataType.UNDEFINED:
            yield f"input '{value.name}' has no type"
        elif value.dtype in (ir.DataType.INT32, ir.DataType.INT64) and _is_endless(value.shape):
            yield f"input '{value.name}' is a vector of more than {_LONGEST_VECTOR} integers"


def _is_endless(shape: ir.Shape | None) -> bool:
    """Tell whether `shape` is that of a vector nobody has."""
    return (
        shape is not None
        and len(shape) == 1
        and isinstance(shape[0], int)
        and shape[0] > _LONGEST_VECTOR
    )


def _repeated_inputs(model: ir.Model) -> Iterator[str]:
    counts = Counter(str(value.name) for value in model.graph.inputs)
    yield from (f"{count} inputs are named '{name}'" for name, count in counts.items() if count > 1)


def _odd_operands(model: ir.Model) -> Iterator[str]:
    """Find operators with operands that they have not, or lack; libraries would stumble or die."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        opsets = body.opset_imports
        for node in all_nodes(body):
            named = node.op_type, node.domain, opsets.get(node.domain)
            least, most, outputs = _operands(*named)
            who = f"operator {node.op_type} '{node.name or ''}'"
            if len(node.inputs) < least:
                yield f"{who} needs {least} inputs and has {len(node.inputs)}"
            elif node.inputs and node.inputs[0] is None and _needs_the_first(*named):
                yield f"{who} lacks its first input"
            if len(node.inputs) > most:
                yield f"{who} takes {most} inputs and has {len(node.inputs)}"
            if len(node.outputs) > outputs:
                yield f"{who} has {outputs} outputs, {len(node.outputs)} are named"
            if reason := why_run_kills(node):
                yield f"{who} cannot be run: {reason}"
            if _never_ends(node):
                yield f"{who} never ends: nothing counts its trips or changes its condition"


def _never_ends(node: ir.Node) -> bool:
    """Tell whether `node` is a Loop that goes on for as long as somebody waits."""
    body = node.attributes.get("body")
    if (node.domain, node.op_type) != ("", "Loop") or input_at(node, 0) is not None:
        return False
    graph: object = None if body is None else body.value
    if not isinstance(graph, ir.Graph) or len(graph.inputs) < 2 or not graph.outputs:
        return False
    begins = input_at(node, 1)
    return (begins is None or _is_true(begins, None)) and _is_true(
        graph.outputs[0], graph.inputs[1]
    )


def _is_true(value: ir.Value, carried: ir.Value | None) -> bool:
    """Tell whether `value` is a constant that is true, or the one that is `carried` on."""
    producer = value.producer()
    while (
        producer is not None and producer.op_type == "Identity" and producer.inputs[0] is not None
    ):
        value = producer.inputs[0]
        producer = value.producer()
    constant = ir.convenience.get_const_tensor(value)
    return value is carried or (constant is not None and bool(constant.numpy().all()))


@cache
def _operands(op_type: str, domain: str, version: int | None) -> tuple[int, int, int]:
    """Return the fewest and the most inputs of an operator, and its most outputs.

    Where ONNX does not define the operator, any number will do.
    """
    if version is not None and onnx.defs.has(op_type, domain):
        with suppress(onnx.defs.SchemaError):
            schema = onnx.defs.get_schema(op_type, version, domain)
            return int(schema.min_input), int(schema.max_input), int(schema.max_output)
    return 0, sys.maxsize, sys.maxsize


@cache
def _needs_the_first(op_type: str, domain: str, version: int | None) -> bool:
    """Tell whether an operator has nothing to work on without its first input.

    Inference of the ONNX library ends the process for some of them. Exporters leave out others
    that schemas ask for, as the regions of Resize.
    """
    found = None if version is None else schema(domain, op_type, version)
    return found is not None and bool(found.inputs) and found.inputs[0].option.name == "Single"


def _odd_constants(model: ir.Model) -> Iterator[str]:
    for holder, name, tensor in all_tensors(model):
        yield from _odd_tensor(_called(holder, name), tensor)


def _called(holder: Holder, name: str) -> str:
    """Return what a constant is called in messages."""
    if isinstance(holder, ir.Graph):
        return f"constant '{name}'"
    if isinstance(holder, ir.Node):
        return f"attribute '{name}' of {holder.op_type} '{holder.name or ''}'"
    return f"parameter '{name}' of the function '{holder.name}'"


def _odd_tensor(who: str, tensor: ir.TensorProtocol | None) -> Iterator[str]:
    if tensor is None or not has_element_type(tensor):
        yield f"{who} has no known type"
    elif any(not isinstance(size, int) or size < 0 for size in tensor.shape):
        yield f"{who} has the shape {tensor.shape}"
    elif (found := _raw_size(tensor)) not in (None, tensor.nbytes):
        yield f"{who} holds {found} bytes; its shape and type need {tensor.nbytes}"
    elif found is None and not _has_all_elements(tensor):
        yield f"{who} does not hold the elements that its shape and type need"


def _has_all_elements(tensor: ir.TensorProtocol) -> bool:
    """Tell whether a tensor whose elements are listed one by one has as many as it should."""
    if isinstance(tensor, ir.StringTensor):
        return len(tensor.string_data()) == tensor.size
    if not isinstance(tensor, ir.serde.TensorProtoTensor):
        return True
    try:
        return tuple(tensor.numpy().shape) == tuple(tensor.shape.numpy())
    except (ValueError, TypeError, AssertionError):  # onnx_ir asserts what fits which list
        return False


def _raw_size(tensor: ir.TensorProtocol) -> int | None:
    """Return the bytes that a message holds for `tensor`, None where it holds no plain bytes."""
    if not isinstance(tensor, ir.serde.TensorProtoTensor) or tensor.dtype == ir.DataType.STRING:
        return None
    message = tensor.raw
    return len(message.raw_data) if message.HasField("raw_data") else None


# The least value of integers without which the ONNX library or onnxruntime end the process.
_WINDOWS = ("dilations", "kernel_shape", "strides")
_COUNTS = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool", "MaxUnpool"), _WINDOWS),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose", "QLinearConv"), ("group", *_WINDOWS)),
    "Attention": ("kv_num_heads", "q_num_heads"),
    "DeformConv": ("group", "offset_group", *_WINDOWS),
    "GroupNormalization": ("num_groups",),
}
_LEAST: Mapping[tuple[str, str, str], int] = {
    ("", "GatherND", "batch_dims"): 0,
    **{("", op_type, name): 1 for op_type, names in _COUNTS.items() for name in names},
}
# Counts are kept in 32 bits in places, where 2**62 is 0; squares of block sizes in 64. The parts of
# a split are counted out one by one, until memory ends.
_MOST: Mapping[tuple[str, str, str], int] = {
    ("", op_type, name): 2**31 - 1
    for op_type, names in {
        **_COUNTS,
        "DepthToSpace": ("blocksize",),
        "SpaceToDepth": ("blocksize",),
    }.items()
    for name in names
} | {("", "Split", "num_outputs"): 1 << 20}
# Libraries keep axes in 32 bits; no tensor has that many.
_AXES = range(-(2**31), 2**31)
# onnxruntime takes any other word for the first one, gradients know no others.
_WORDS: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("", op_type, "reduction"): ("none", "add", "mul", "min", "max")
    for op_type in ("ScatterElements", "ScatterND")
}


# Of other numbers some kernels make one of these and some the other, and rewrites take neither.
_SWITCHES = frozenset((
    "align_corners", "allowzero", "antialias", "broadcast", "ceil_mode", "center_point_box",
    "count_include_pad", "detect_negative", "detect_positive", "exclude_outside", "exclusive",
    "fmod", "input_forget", "interleaved", "inverse", "is_case_sensitive", "is_causal", "is_test",
    "keepdims", "largest", "layout", "linear_before_reset", "new_axis", "noop_with_empty_axes",
    "one_class", "onesided", "output_sequence", "periodic", "reverse", "saturate",
    "select_last_index", "sorted", "spatial", "storage_order", "training_mode", "transA", "transB",
    "transBatchA", "transBatchB", "upper", "zeros",
))  # fmt: skip


def odd_attributes(model: ir.Model) -> Iterator[str]:
    """Find attributes that lack, are of another type than their operator wants, or mean nothing."""
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        for node in all_nodes(body):
            where = f"operator {node.op_type} '{node.name or ''}'"
            opset = body.opset_imports.get(node.domain, 1)
            inside = isinstance(body, ir.Function)
            for problem in (*_miscounted(node), *_odd(node, opset, inside=inside)):
                yield f"{where} {problem}"


def _miscounted(node: ir.Node) -> Iterator[str]:
    if (node.domain, node.op_type) == ("", "Constant") and len(node.attributes) != 1:
        yield f"has {len(node.attributes)} attributes; it has to have one, which is its value"
    parts = node.attributes.get("num_outputs")
    if parts is None or parts.is_ref() or (node.domain, node.op_type) != ("", "Split"):
        return
    # Inference would read sizes behind those of the parts, or end the process.
    if any(count < len(node.outputs) for count in _integers(parts)):
        yield f"makes {parts.value} parts, and has {len(node.outputs)} outputs"


def _odd(node: ir.Node, opset: int, *, inside: bool) -> Iterator[str]:
    """Find what is odd about the attributes of one operator, `inside` of a function or not."""
    found = schema(node.domain, node.op_type, opset)
    known = {} if found is None else found.attributes
    for name, attribute in node.attributes.items():
        if attribute.is_ref() and not inside:
            yield f"has an attribute '{name}' that stands for a parameter, and is in no function"
        elif name in known and _kind(known[name].type.name) != attribute.type.name:
            yield (
                f"has the attribute '{name}' of type {attribute.type.name}; it has to be "
                f"{_kind(known[name].type.name)}"
            )
        elif _is_no_text(attribute):
            yield f"has the attribute '{name}' of {attribute.value!r}, which is no text"
        elif not attribute.is_ref() and _is_deadly(node, attribute):
            yield f"has the attribute '{name}' of {attribute.value}"
        elif not attribute.is_ref() and (words := _other_words(node, attribute)):
            yield f"has the attribute '{name}' of '{attribute.value}'; it has to be {words}"
        elif name in known and name in _SWITCHES and _other_than_a_switch(attribute):
            yield f"has the attribute '{name}' of {attribute.value}; it has to be 0 or 1"
    for name, wanted in known.items():
        if wanted.required and name not in node.attributes:
            yield f"lacks the attribute '{name}'"


def _kind(wanted: str) -> str:
    """Return the type that an attribute has to be; the bindings have no name for one of them."""
    return wanted if wanted in ir.AttributeType.__members__ else "TYPE_PROTO"


def _is_no_text(attribute: ir.Attr) -> bool:
    """Tell whether what should be text is bytes: so the library keeps what is not UTF-8."""
    if attribute.is_ref():
        return False
    value: object = attribute.value
    if attribute.type == ir.AttributeType.STRINGS:
        return any(not isinstance(text, str) for text in cast(Sequence[object], value))
    return attribute.type == ir.AttributeType.STRING and not isinstance(value, str)


def _is_deadly(node: ir.Node, attribute: ir.Attr) -> bool:
    """Tell whether integers are outside of the range in which libraries live."""
    which = node.domain, node.op_type, attribute.name
    if attribute.name == "axis" and attribute.type == ir.AttributeType.INT:
        return attribute.as_int() not in _AXES
    least, most = _LEAST.get(which), _MOST.get(which)
    if least is None and most is None:
        return False
    return any(
        (least is not None and n < least) or (most is not None and n > most)
        for n in _integers(attribute)
    )


def _integers(attribute: ir.Attr) -> Sequence[int]:
    """Return the integers of an attribute, none of one that holds something else.

    An attribute that the operator has in other versions alone may be of any type.
    """
    if attribute.type == ir.AttributeType.INTS:
        return attribute.as_ints()
    return (attribute.as_int(),) if attribute.type == ir.AttributeType.INT else ()


def _other_than_a_switch(attribute: ir.Attr) -> bool:
    """Tell whether what switches something is an integer and neither on nor off."""
    is_whole = not attribute.is_ref() and attribute.type == ir.AttributeType.INT
    return is_whole and attribute.as_int() not in (0, 1)


def _other_words(node: ir.Node, attribute: ir.Attr) -> str:
    """Return the words that an attribute may be, if it is none of them."""
    words = _WORDS.get((node.domain, node.op_type, attribute.name), ())
    return "" if not words or str(attribute.value) in words else " or ".join(words)
