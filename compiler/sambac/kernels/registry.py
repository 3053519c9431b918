"""What the installed onnxruntime can run on a CPU: its operator schemas and kernel registry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as state

from pef.wording import did_you_mean
from sambac.graph.nodes import float_attribute, input_at, int_attribute, text_attribute
from sambac.graph.value_types import spell

OpKey = tuple[str, str]

_CPU = "CPUExecutionProvider"
_OPEN_END = 2**31 - 1
# onnxruntime's own rewrites produce these; no model may use them.
_INTERNAL_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")

# Operands of which onnxruntime reads a number without a look whether there is one: it would read
# what lies behind, or end the process.
_ONE_NUMBER: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "Loop"): (0, 1),
    **{("", op_type): (1,) for op_type in ("OneHot", "SequenceAt", "SequenceErase")},
    ("", "SequenceInsert"): (2,),
}
# Operands that say a number for each dimension of a result, or two; inference makes as many.
_LENGTHS: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "ConstantOfShape"): (0,),
    ("", "Resize"): (1, 2, 3),
    **{("", op_type): (1,) for op_type in ("Expand", "Pad", "Reshape", "Tile", "Upsample")},
}
_MOST_DIMENSIONS = 1024
# Of operators with which onnxruntime ends the process where the first operand has fewer.
_LEAST_DIMENSIONS: Mapping[tuple[str, str], int] = {("", "DFT"): 2, ("", "STFT"): 2}
_BOOL, _DOUBLE = "tensor(bool)", "tensor(double)"
_HALVES = frozenset({"tensor(float16)", "tensor(bfloat16)"})
_FLOATS = _HALVES | {"tensor(float)", _DOUBLE}
# Of operators that divide by a size, or look at the first of nothing: operands and their axes.
_SOME_ELEMENTS: Mapping[tuple[str, str], Sequence[tuple[int, int]]] = {
    ("", "Attention"): ((1, -3),),  # heads of keys, where they have an axis beside examples
    ("", "GRU"): ((0, 0), (0, 2)),
    ("com.microsoft", "MultiHeadAttention"): ((0, -1),),
    ("com.microsoft", "SkipLayerNormalization"): ((1, 0),),
}


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An operator as one node uses it: its opset, and the types of its operands as spelled.

    An absent or unknown operand is an empty string.
    """

    domain: str
    op_type: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, node: ir.Node, opsets: Mapping[str, int]) -> KernelCall:
        """Return the call that `node` makes in a model with `opsets`."""
        return cls(
            node.domain,
            node.op_type,
            node.version or opsets.get(node.domain, 1),
            tuple("" if value is None else spell(value.type) for value in node.inputs),
            tuple(spell(value.type) if value.name else "" for value in node.outputs),
        )

    def __str__(self) -> str:
        """Spell the operator with its version and operand types, for messages."""
        types = ", ".join(dict.fromkeys(type_ for type_ in self.inputs + self.outputs if type_))
        domain = f"{self.domain}::" if self.domain else ""
        return f"{domain}{self.op_type} (opset {self.opset}) on {types or 'unknown types'}"


@cache
def _schemas() -> Mapping[OpKey, list[state.OpSchema]]:
    """Return every schema by domain and operator, oldest version first."""
    table: dict[OpKey, list[state.OpSchema]] = {}
    for item in state.get_all_operator_schema():
        table.setdefault((item.domain, item.name), []).append(item)
    for versions in table.values():
        versions.sort(key=lambda item: item.since_version)
    return table


@cache
def _kernels() -> Mapping[OpKey, list[state.KernelDef]]:
    table: dict[OpKey, list[state.KernelDef]] = {}
    for item in state.get_all_opkernel_def():
        if item.provider == _CPU:
            table.setdefault((item.domain, item.op_name), []).append(item)
    return table


@cache
def schema(domain: str, op_type: str, opset: int) -> state.OpSchema | None:
    """Return the schema of the operator that a model with `opset` means, or None."""
    versions = _schemas().get((domain, op_type), [])
    index = bisect_right([item.since_version for item in versions], opset)
    return versions[index - 1] if index and not versions[index - 1].deprecated else None


@cache
def _attributes(domain: str, op_type: str, opset: int) -> frozenset[str]:
    found = schema(domain, op_type, opset)
    return frozenset() if found is None else frozenset(found.attributes)


def type_variables(call: KernelCall) -> Mapping[str, tuple[list[int], list[int]]]:
    """Return, for each type variable of the operator, the inputs and outputs that bear it.

    Operands that are absent or of unknown type are left out. An operator without a schema has no
    type variables.
    """
    found = schema(call.domain, call.op_type, call.opset)
    variables: dict[str, tuple[list[int], list[int]]] = {}
    if found is not None:
        for side, types, formals in (
            (0, call.inputs, found.inputs),
            (1, call.outputs, found.outputs),
        ):
            for index, formal in _present(types, formals):
                variables.setdefault(formal.typeStr, ([], []))[side].append(index)
    return variables


def why_not_runnable(node: ir.Node, opsets: Mapping[str, int]) -> str | None:
    """Return why onnxruntime cannot run `node` in a model with `opsets`, or None."""
    opset = opsets.get(node.domain)
    call = KernelCall.of(node, opsets)
    if node.version is not None and opset is not None and node.version != opset:
        return f"it is written for opset {node.version} and differs in the model's, {opset}"
    reason = why_no_kernel(call)
    if reason is None and node.attributes:
        unknown = set(node.attributes) - _attributes(call.domain, call.op_type, call.opset)
        if unknown:
            return f"onnxruntime does not know its attribute {min(unknown)}"
    return reason or why_run_fails(node)


def why_run_fails(node: ir.Node) -> str | None:
    """Return why `node`, which has a kernel, fails when it is run, or None if it does not."""
    if (reason := why_run_kills(node)) is not None:
        return reason
    first = input_at(node, 0)
    return None if first is None else why_type_fails(node, spell(first.type))


def why_type_fails(node: ir.Node, type_: str) -> str | None:
    """Return why `node` fails where its first operand has a type that its kernel is listed for."""
    why = _UNFINISHED.get((node.domain, node.op_type))
    reason = None if why is None else why(node, type_)
    return None if reason is None else f"onnxruntime's CPU kernel has no {reason}"


def _unreduced(node: ir.Node, type_: str) -> str | None:
    reduction = text_attribute(node, "reduction", "none")
    if type_ in _HALVES and reduction != "none":
        return f"reduction {reduction} on 16-bit numbers"
    return f"reduction {reduction} of truths" if type_ == _BOOL and reduction in _EXTREMA else None


def _uncomputed(node: ir.Node, type_: str) -> str | None:
    return "computation in 64 bits" if type_ == _DOUBLE else None


def _uninterpolated(node: ir.Node, type_: str) -> str | None:
    cubic = text_attribute(node, "mode", "nearest") == "cubic" and not int_attribute(
        node, "antialias"
    )
    return "cubic interpolation of whole numbers" if cubic and type_ not in _FLOATS else None


def _undivided(node: ir.Node, type_: str) -> str | None:
    whole = not int_attribute(node, "fmod")
    return "remainder of fractions without fmod = 1" if whole and type_ in _FLOATS else None


_EXTREMA = ("max", "min")
# Their kernels are registered for more types than they can compute: a run fails.
_UNFINISHED: Mapping[OpKey, Callable[[ir.Node, str], str | None]] = {
    ("", "GRU"): _uncomputed,
    ("", "LSTM"): _uncomputed,
    ("", "Mod"): _undivided,
    ("", "Resize"): _uninterpolated,
    ("", "ScatterElements"): _unreduced,
    ("", "ScatterND"): _unreduced,
}


def why_run_kills(node: ir.Node) -> str | None:
    """Return why onnxruntime would end the process when `node` is run, or None if it would not."""
    for index in _ONE_NUMBER.get((node.domain, node.op_type), ()):
        if _has_no_element(input_at(node, index)):
            return f"onnxruntime reads a number from operand {index}, which has no elements"
    for index in _LENGTHS.get((node.domain, node.op_type), ()):
        if (length := _length(input_at(node, index))) > _MOST_DIMENSIONS:
            return f"operand {index} says {length} sizes, and no tensor has so many dimensions"
    least = _LEAST_DIMENSIONS.get((node.domain, node.op_type), 0)
    first = input_at(node, 0)
    if first is not None and first.shape is not None and len(first.shape) < least:
        return f"onnxruntime's CPU kernel needs {least} dimensions"
    for index, axis in _SOME_ELEMENTS.get((node.domain, node.op_type), ()):
        if _is_empty_along(input_at(node, index), axis):
            return f"operand {index} has no elements along axis {axis}"
    if node.op_type == "QLinearWhere":
        return _why_no_table(node)
    is_known = not any(attribute.is_ref() for attribute in node.attributes.values())
    return _why_no_distribution(node) if node.domain == "" and is_known else None


def _why_no_table(node: ir.Node) -> str | None:
    """Return why the kernel, which makes a table before it runs, reads zeros that are not there."""
    known = [value is None or ir.convenience.get_const_tensor(value) for value in node.inputs]
    fits = None in known[7:9] or None not in known[3:7:3]
    return None if fits else "operands 3 and 6 are no constants, though operands 7 and 8 are"


def _is_empty_along(value: ir.Value | None, axis: int) -> bool:
    sizes = () if value is None or value.shape is None else tuple(value.shape)
    return -len(sizes) < axis < len(sizes) and sizes[axis] == 0


def _why_no_distribution(node: ir.Node) -> str | None:
    """Return why nothing can be drawn at random: the C++ library ends the process over that."""
    if node.op_type in ("RandomUniform", "RandomUniformLike"):
        low, high = (float_attribute(node, *item) for item in (("low", 0.0), ("high", 1.0)))
        return None if low <= high else f"no number is drawn between low = {low} and high = {high}"
    if node.op_type in ("RandomNormal", "RandomNormalLike"):
        scale = float_attribute(node, "scale", 1.0)
        return None if scale > 0 else f"its scale is {scale}; onnxruntime wants one above 0"
    return None


def _length(value: ir.Value | None) -> int:
    """Return how many numbers a vector holds, 0 where that is not known."""
    shape = None if value is None else value.shape
    length = shape[0] if shape is not None and len(shape) == 1 else 0
    return length if isinstance(length, int) else 0


def _has_no_element(value: ir.Value | None) -> bool:
    if value is None:
        return False
    constant = ir.convenience.get_const_tensor(value)
    shape = value.shape if constant is None else constant.shape
    return shape is not None and 0 in tuple(shape)


@cache
def output_types(call: KernelCall) -> tuple[str, ...]:
    """Return the types of the call's outputs as far as its schema and its inputs decide them.

    An output has the type of the inputs that share its type variable, or the only one it may
    have; otherwise its type is unknown, an empty string.
    """
    found = schema(call.domain, call.op_type, call.opset)
    if found is None:
        return ("",) * len(call.outputs)
    bound = {
        formal.typeStr: call.inputs[index] for index, formal in _present(call.inputs, found.inputs)
    }
    formals = [
        found.outputs[min(index, len(found.outputs) - 1)] for index in range(len(call.outputs))
    ]
    return tuple(
        bound.get(formal.typeStr) or (min(formal.types) if len(formal.types) == 1 else "")
        for formal in formals
    )


@cache
def why_no_kernel(call: KernelCall) -> str | None:
    """Return why onnxruntime has no CPU kernel for `call`, or None where it has one.

    Operands of unknown type are taken to fit.
    """
    key = (call.domain, call.op_type)
    found = schema(call.domain, call.op_type, call.opset)
    if found is None:
        return _unknown_operator(key, call.opset)
    bound = _bound_types(call, found)
    fault = _fault(call, found, bound)
    if fault is not None:
        return fault
    kernels, since = _kernels().get(key, ()), found.since_version
    versioned = [kernel for kernel in kernels if _serves(kernel, since)]
    if not versioned:
        lost = any(kernel.version_range[0] < since for kernel in kernels)
        return "onnxruntime has no CPU kernel for this operator" + f" since opset {since}" * lost
    if any(_accepts(kernel, bound) for kernel in versioned):
        return None
    return "onnxruntime has no CPU kernel for these types"


def mixes_types(call: KernelCall) -> bool:
    """Tell whether `call` has operands of several types where the operator wants one."""
    found = schema(call.domain, call.op_type, call.opset)
    return found is not None and _mixed_variable(found, _bound_types(call, found)) is not None


def _fault(
    call: KernelCall, found: state.OpSchema, bound: Mapping[str, Sequence[str]]
) -> str | None:
    """Return how `call` breaks the operator's definition, or None."""
    if len(call.inputs) < found.min_input:
        return f"it needs {found.min_input} inputs and has {len(call.inputs)}"
    mixed = _mixed_variable(found, bound)
    if mixed is not None:
        return f"its operands of type {mixed} have to be of one type"
    return None if _allowed(call, found) else "the operator does not allow these types"


def _serves(kernel: state.KernelDef, since: int) -> bool:
    """Return whether `kernel` is meant for the operator's version `since`.

    A kernel without an end serves the version it starts with and no later one: nobody has yet
    said that it implements those.
    """
    start, end = kernel.version_range
    return bool(start == since or (end != _OPEN_END and start <= since <= end))


def _mixed_variable(found: state.OpSchema, bound: Mapping[str, Sequence[str]]) -> str | None:
    """Return a type variable that stands for one type and is bound to several, or None."""
    for formal in (*found.inputs, *found.outputs):
        types = bound.get(formal.typeStr, ())
        if formal.isHomogeneous and len(set(types)) > 1 and "(" not in formal.typeStr:
            return str(formal.typeStr)
    return None


def _allowed(call: KernelCall, found: state.OpSchema) -> bool:
    return all(
        types[index] in formal.types
        for types, formals in ((call.inputs, found.inputs), (call.outputs, found.outputs))
        for index, formal in _present(types, formals)
    )


def _accepts(kernel: state.KernelDef, bound: Mapping[str, Sequence[str]]) -> bool:
    return all(
        type_ in allowed
        for variable, allowed in kernel.type_constraints.items()
        for type_ in bound.get(variable, ())
    )


def _bound_types(call: KernelCall, found: state.OpSchema) -> Mapping[str, list[str]]:
    """Return the types by type variable and by operand name: kernels constrain either."""
    bound: dict[str, list[str]] = {}
    for types, formals in ((call.inputs, found.inputs), (call.outputs, found.outputs)):
        for index, formal in _present(types, formals):
            for key in {formal.typeStr: None, formal.name: None}:
                bound.setdefault(key, []).append(types[index])
    return bound


def _present(
    types: Sequence[str], formals: Sequence[state.OpSchema.FormalParameter]
) -> Iterator[tuple[int, state.OpSchema.FormalParameter]]:
    """Pair each operand of known type with its formal parameter; the last may be variadic."""
    if formals:
        for index, type_ in enumerate(types):
            if type_:
                yield index, formals[min(index, len(formals) - 1)]


def _unknown_operator(key: OpKey, opset: int) -> str:
    domain, op_type = key
    versions = _schemas().get(key)
    if versions:
        if versions[-1].since_version <= opset:
            return f"the operator was removed before opset {opset}"
        return f"the operator exists only since opset {versions[0].since_version}"
    if defs.has(op_type, domain):
        return "onnxruntime does not implement this operator"
    known: dict[str, list[str]] = {}
    for where, name in _schemas():
        if where not in _INTERNAL_DOMAINS:
            known.setdefault(where, []).append(name)
    if domain not in known:
        hint = (
            did_you_mean(domain, filter(None, known))
            or "; operators of one's own cannot be compiled"
        )
        return f"onnxruntime knows no domain {domain}{hint}"
    elsewhere = [where or "ai.onnx" for where, names in known.items() if op_type in names]
    if elsewhere:
        return f"its domain has no such operator; did you mean the one of {elsewhere[0]}?"
    return f"onnxruntime knows no such operator{did_you_mean(op_type, known[domain])}"
