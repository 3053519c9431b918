"""Which wider types let an operator run that has no kernel for its own.

A wider type holds every value of the narrow one, so that the result, cast back, is at least as
exact. Integer arithmetic modulo a power of two survives the way through more bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from .registry import KernelCall, schema, type_variables, why_no_kernel

_BOOL = "tensor(bool)"

_WIDER: Mapping[str, tuple[str, ...]] = {
    _BOOL: ("tensor(uint8)", "tensor(int32)", "tensor(int64)"),
    "tensor(float16)": ("tensor(float)", "tensor(double)"),
    "tensor(bfloat16)": ("tensor(float)", "tensor(double)"),
    "tensor(float8e4m3fn)": ("tensor(float)",),
    "tensor(float8e4m3fnuz)": ("tensor(float)",),
    "tensor(float8e5m2)": ("tensor(float)",),
    "tensor(float8e5m2fnuz)": ("tensor(float)",),
    "tensor(float)": ("tensor(double)",),
    "tensor(int8)": ("tensor(int16)", "tensor(int32)", "tensor(int64)"),
    "tensor(uint8)": ("tensor(uint16)", "tensor(int32)", "tensor(uint32)", "tensor(int64)"),
    "tensor(int16)": ("tensor(int32)", "tensor(int64)"),
    "tensor(uint16)": ("tensor(int32)", "tensor(uint32)", "tensor(int64)"),
    "tensor(int32)": ("tensor(int64)",),
    "tensor(uint32)": ("tensor(int64)", "tensor(uint64)"),
}

# These convert or reinterpret: their types are what they are about.
_CONVERSIONS = frozenset(("Cast", "CastLike", "BitCast"))
# What these hold is of a type that other operands have, too, and no cast changes it.
_HOLDERS = ("seq(", "optional(")
# These saturate at the bounds of their integer types, so only their floats may be wider.
_SATURATING = ("QuantizeLinear", "QLinear")


@dataclass(frozen=True, slots=True)
class Widening:
    """The types of a call's operands, by position, with those that change made wider.

    `dtype` is the wider type that the attribute of that name has to give, None where it stays.
    """

    call: KernelCall
    dtype: str | None


def widening(call: KernelCall) -> Widening | None:
    """Return the call on wider types that has a kernel and changes the least, or None."""
    return next(iter(widenings(call)), None)


@cache
def widenings(call: KernelCall) -> tuple[Widening, ...]:
    """Return the calls on wider types that have a kernel, those first that change the least."""
    if call.op_type in _CONVERSIONS or any(
        len(_types(call, operands)) > 1 for operands in type_variables(call).values()
    ):
        return ()
    if any(type_.startswith(_HOLDERS) for type_ in call.inputs + call.outputs):
        return ()
    candidates = sorted(_candidates(call), key=lambda item: _changes(call, item.call))
    return tuple(item for item in candidates if why_no_kernel(item.call) is None)


def _changes(call: KernelCall, wider: KernelCall) -> int:
    before, after = call.inputs + call.outputs, wider.inputs + wider.outputs
    return sum(old != new for old, new in zip(before, after, strict=True))


def _candidates(call: KernelCall) -> Iterator[Widening]:
    """Yield every way to widen some of the operator's type variables."""
    variables = {
        name: operands
        for name, operands in type_variables(call).items()
        if _type(call, operands) in _WIDER
    }
    choices = [
        ("", *_WIDER[_type(call, operands)]) if _may_change(call, operands) else ("",)
        for operands in variables.values()
    ]
    for choice in product(*choices):
        if any(choice):
            yield _widened(call, dict(zip(variables, choice, strict=True)), variables)


Operands = tuple[list[int], list[int]]


def _type(call: KernelCall, operands: Operands) -> str:
    inputs, outputs = operands
    return call.inputs[inputs[0]] if inputs else call.outputs[outputs[0]]


def _types(call: KernelCall, operands: Operands) -> set[str]:
    inputs, outputs = operands
    return {call.inputs[i] for i in inputs} | {call.outputs[i] for i in outputs}


def _may_change(call: KernelCall, operands: Operands) -> bool:
    """A type that no input has is given by the attribute `dtype`, or it is fixed."""
    if call.op_type.startswith(_SATURATING) and "int" in _type(call, operands):
        return False
    found = schema(call.domain, call.op_type, call.opset)
    if operands[0] and found is not None and _type(call, operands) == _BOOL:
        # Arithmetic, which the standard keeps from booleans, would count.
        return _BOOL in found.inputs[min(operands[0][0], len(found.inputs) - 1)].types
    if operands[0]:
        return True
    return found is not None and "dtype" in found.attributes


def _widened(
    call: KernelCall, choice: Mapping[str, str], variables: Mapping[str, Operands]
) -> Widening:
    inputs, outputs = list(call.inputs), list(call.outputs)
    dtype = None
    for name, wide in choice.items():
        if not wide:
            continue
        for index in variables[name][0]:
            inputs[index] = wide
        for index in variables[name][1]:
            outputs[index] = wide
        if not variables[name][0]:
            dtype = wide
    return Widening(replace(call, inputs=tuple(inputs), outputs=tuple(outputs)), dtype)
