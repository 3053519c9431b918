"""Operators that describe instead of compute, while an application has set `session.tracing`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.overrides import get_default_nowrap_functions, resolve_name
from torch.utils import _pytree as pytree

from sambaflow.samba.errors import SambaError

_LOOKS = frozenset(
    {"__get__", "__set__", "__delete__", "__repr__", "__format__", "__deepcopy__", "detach"}
)
"""What reads or sets something about a tensor that is there."""

_ARITHMETIC = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift"
_WRITES = frozenset({"__setitem__", *(f"__i{word}__" for word in _ARITHMETIC.split())})
"""What writes to a tensor that is there, beside the functions of torch that end with `_`."""


class _Symbolic:
    """Whether operators describe, and how often each has done so since that was switched on."""

    def __init__(self) -> None:
        self.wanted = False
        self.paused = False
        self.counts: Counter[str] = Counter()

    @property
    def on(self) -> bool:
        return self.wanted and not self.paused


SYMBOLIC = _Symbolic()


def switch(on: bool) -> None:
    """Let operators on SambaTensors describe from now on, or compute."""
    SYMBOLIC.wanted = bool(on)
    SYMBOLIC.counts.clear()


@contextmanager
def computing() -> Iterator[None]:
    """Let operators in the block compute, as the session's own code expects."""
    before, SYMBOLIC.paused = SYMBOLIC.paused, True
    try:
        yield
    finally:
        SYMBOLIC.paused = before


def describes(func: Callable[..., object]) -> bool:
    """Return whether `func` makes a tensor, and is to describe it now."""
    name = getattr(func, "__name__", "")
    writes = name in _WRITES or (name.endswith("_") and not name.endswith("__"))
    looks = name in _LOOKS or func in get_default_nowrap_functions()
    return SYMBOLIC.on and not (looks or writes)


def described(
    func: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Return what `func` gives: tensors with shapes and types, and without values.

    Raises what torch raises for shapes that do not fit, and `SambaError` where the result depends
    on values.
    """
    args, options = pytree.tree_map_only(Tensor, _without_values, (args, dict(kwargs)))
    try:
        return func(*args, **options)
    except (NotImplementedError, RuntimeError) as error:
        if isinstance(error, NotImplementedError) or "meta tensor" in str(error):
            raise SambaError(
                f"{operator_name(func)} depends on the values of tensors, and operators describe "
                f"while session.tracing is set; set it to False to compute on the host"
            ) from error
        raise


def named(func: Callable[..., object], result: object) -> None:
    """Name the tensors in `result` as tracing does: `<operator>__outputs__<number>`."""
    stem = operator_name(func)
    count = SYMBOLIC.counts[stem]
    SYMBOLIC.counts[stem] += 1
    stem = f"{stem}_{count}" if count else stem
    tensors = [leaf for leaf in pytree.tree_leaves(result) if hasattr(leaf, "sn_name")]
    for number, tensor in enumerate(tensors):
        tensor.sn_name = f"{stem}__outputs__{number}"


def operator_name(func: Callable[..., object]) -> str:
    """Return the name of a torch function; that of a property is the property's."""
    name = (resolve_name(func) or getattr(func, "__name__", "")).removesuffix(".__get__")
    return str(name).rpartition(".")[2].strip("_")


def _without_values(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_meta else tensor.to(torch.device("meta"))
