"""What the installed onnxruntime can run on a CPU: its operator schemas and kernel registry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import onnx_ir as ir
from onnx import defs
from onnxruntime.capi import onnxruntime_pybind11_state as state

from pef.wording import did_you_mean
from sambac.graph.value_types import spell

from .failures import OpKey, why_run_fails

_CPU = "CPUExecutionProvider"
_OPEN_END = 2**31 - 1
# onnxruntime's own rewrites produce these; no model may use them.
_INTERNAL_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")


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
