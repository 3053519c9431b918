"""Results of torch functions on SambaTensors: which become SambaTensors, and which keep a name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .device_tensor import DeviceTensor

_SAME_VALUES = frozenset(
    {
        Tensor.to,
        Tensor.type,
        Tensor.type_as,
        Tensor.float,
        Tensor.bfloat16,
        Tensor.half,
        Tensor.double,
        Tensor.int,
        Tensor.long,
        Tensor.short,
        Tensor.char,
        Tensor.byte,
        Tensor.bool,
        Tensor.detach,
        Tensor.contiguous,
    }
)
"""What is still the tensor that the user named: only the type, the graph or the layout differ."""
_FACTS = (
    "sn_name",
    "batch_dim",
    "named_dims",
    "sized_dims",
    "host_memory",
    "materializer",
    "_region_name",
    "_memory",
)


def wrapped(found: object, kind: type[DeviceTensor]) -> object:
    """Return `found` with plain tensors in it, also in tuples and lists, as ones of `kind`.

    Tensors of other classes stay: those that torch traces with are no values.
    """
    if type(found) is Tensor:
        return found.as_subclass(kind)
    if isinstance(found, tuple):
        parts = [wrapped(part, kind) for part in found]
        make: Callable[..., object] = type(found)
        return make(*parts) if hasattr(found, "_fields") else make(parts)
    if isinstance(found, list):
        return [wrapped(part, kind) for part in found]
    return found


def keep_facts(function: Callable[..., object], result: object, origin: object) -> None:
    """Let `result` be called like `origin` if `function` only changes how values are held."""
    if function not in _SAME_VALUES or result is origin:
        return
    if isinstance(result, DeviceTensor) and isinstance(origin, DeviceTensor):
        facts = origin.__dict__
        result.__dict__.update({fact: facts[fact] for fact in _FACTS if fact in facts})
