"""Operands as torch takes them: of one type in products, and plain where a model is recorded.

torch promotes the operands of sums and refuses those of products; the device takes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .device_tensor import DeviceTensor, plain
from .indexing import INDEXING, index_of

__all__ = ["PlainOperands", "in_one_type"]

_Given = TypeVar("_Given")

_MIXED = frozenset({torch.bfloat16, torch.float16, torch.float32})
"""The types that the device multiplies with one another."""

_NAMES = "addbmm addmm addmv baddbmm bmm dot inner matmul mm mv"

_PRODUCTS: frozenset[Callable[..., object]] = frozenset(
    [
        *(getattr(place, name) for place in (torch, Tensor) for name in _NAMES.split()),
        *(getattr(torch, f"conv{kind}{d}d") for kind in ("", "_transpose") for d in (1, 2, 3)),
        Tensor.__matmul__,
        Tensor.__rmatmul__,
        functional.bilinear,
        functional.linear,
        functional.scaled_dot_product_attention,
        torch.einsum,
        torch.tensordot,
    ]
)


def in_one_type(func: Callable[..., object], given: _Given) -> _Given:
    """Return the arguments `given` to `func`, for a product with all its operands in one type.

    This is the widest of theirs: bfloat16 or float16 beside float32 becomes float32.
    """
    if func not in _PRODUCTS:
        return given
    tensors = [leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor)]
    kinds = {tensor.dtype for tensor in tensors} & _MIXED
    if len(kinds) < 2:
        return given
    widest = reduce(torch.promote_types, kinds)
    converted = pytree.tree_map_only(
        Tensor, lambda tensor: tensor.to(widest) if tensor.dtype in kinds else tensor, given
    )
    return cast(_Given, converted)


_SIMPLE = frozenset({bool, float, int, str, type(None), torch.device, torch.dtype, torch.layout})


def _is_plain(value: object) -> bool:
    """Tell whether `value` is a leaf, as pytree has it, of what torch records.

    Most calls are given nothing else, such as those of the exporter, which asks for the types and
    sizes of tensors thousands of times: a look is a tenth of a walk through trees.
    """
    if isinstance(value, Tensor):
        return not isinstance(value, DeviceTensor)
    return type(value) in _SIMPLE


class PlainOperands(TorchFunctionMode):
    """Within the block, the functions of torch get operands that can be recorded.

    A SambaTensor among them is a constant that the model keeps: parameters and inputs have
    stand-ins. torch records constants as plain tensors alone, so each is told as one, the same
    wherever it is used. Products are as in `in_one_type`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run `func` on plain operands."""
        if not kwargs and func not in _PRODUCTS and all(map(_is_plain, args)):
            return func(*args)
        if func in INDEXING:
            args = (args[0], pytree.tree_map_only(DeviceTensor, _whole, args[1]), *args[2:])
        given = pytree.tree_map_only(DeviceTensor, self._plain, (args, dict(kwargs or {})))
        args, options = in_one_type(func, given)
        return func(*args, **options)

    def _plain(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self._constants:
            with _disable_current_modes():  # it is no part of what is recorded
                self._constants[id(tensor)] = tensor, _apart(tensor)
        return self._constants[id(tensor)][1]


def _whole(constant: Tensor) -> object:
    """Return a constant that is an index: of whole numbers, whatever its type."""
    with _disable_current_modes():
        return index_of(plain(constant)) if constant.is_floating_point() else constant


def _apart(tensor: Tensor) -> Tensor:
    """Return a plain tensor in the memory of `tensor`; unlike an alias it is no view of it."""
    values = plain(tensor).detach()
    made = torch.empty(0, dtype=values.dtype, device=values.device)
    memory = values.untyped_storage()
    return made.set_(memory, values.storage_offset(), values.shape, values.stride())
