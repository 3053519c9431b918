"""What goes into functions of torch and numpy on SambaTensors, and what comes out of them.

Operands are as torch takes them: of one type in products, and plain where a model is recorded.
torch promotes the operands of sums and refuses those of products; the device takes both. Index
tensors hold whole numbers, whatever their type. Of the results some become SambaTensors, and some
keep a name. Functions of numpy are torch's of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .device_tensor import DeviceTensor, plain

if TYPE_CHECKING:
    import numpy as np

INDEXING = frozenset({Tensor.__getitem__, Tensor.__setitem__})
"""The functions whose second argument is an index.

They are met where torch calls them, not as methods of a class of ours: Python would take even
tensors without dimensions for sequences.
"""


def index_of(index: object) -> object:
    """Return `index` with floating-point index tensors as int64 ones.

    Raises IndexError for numbers that are not whole.
    """
    if isinstance(index, tuple):
        return tuple(index_of(part) for part in index)
    if isinstance(index, torch.Tensor) and index.is_floating_point():
        whole = index.long()
        if not bool((whole == index).all()):
            raise IndexError("an index tensor holds numbers that are not whole")
        return whole
    return index


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


_TORCH_NAMES = {
    "equal": "eq",
    "invert": "bitwise_not",
    "power": "pow",
    "rint": "round",
    "fabs": "abs",
    "conjugate": "conj_physical",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}
"""Names that mean something else to torch, or nothing."""


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: Iterable[object], options: Mapping[str, object]
) -> object:
    """Return what `ufunc` gives for `inputs`: a tensor if torch has the function.

    What torch does not have, `ufunc.reduce` and the like, and calls with `out` or other options
    are left to numpy, and give arrays.
    """
    name = _TORCH_NAMES.get(ufunc.__name__, ufunc.__name__)
    function = getattr(torch, name, None)
    if method == "__call__" and callable(function) and not options:
        result: object = function(*map(torch.as_tensor, inputs))
        return result
    arrays = [value.numpy() if isinstance(value, Tensor) else value for value in inputs]
    found: object = getattr(ufunc, method)(*arrays, **options)
    return found
