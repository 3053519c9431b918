"""SambaTensor: a torch tensor that has a name on the device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

import torch
from torch import Tensor

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import instance
from sambaflow.samba.errors import SambaError
from sambaflow.samba.lazy.values import Materializer, values_of

from .device_tensor import MEMORY_TYPES, DeviceTensor
from .device_tensor import plain as to_torch
from .operands import INDEXING, call_ufunc, in_one_type, index_of, keep_facts, wrapped
from .symbolic import SYMBOLIC, described, describes, named

if TYPE_CHECKING:
    import numpy as np


__all__ = ["MEMORY_TYPES", "SambaParameter", "SambaTensor", "rebuild", "to_torch"]

_DataType: TypeAlias = torch.dtype
"""As `torch` is a method of the class below."""
Sizes: TypeAlias = int | Iterable[int]


class SambaTensor(DeviceTensor):
    """A tensor on the host that knows its name, and through it its memory on the device.

    It is made from `torch_tensor`, whose memory it shares, or from `shape` and `dtype` alone: then
    it has no data and lies on torch's `meta` device until it is materialised. It computes on the
    host like any torch tensor, and results are SambaTensors.

    `name` is what `sn_name` says and inputs are matched by. `region_name` names its memory: tensors
    of equal region names share it. `materializer` makes the data of a tensor without any: called
    with the tensor and a random number generator, or with the keywords `shape`, `dtype` and
    `requires_grad` if it has a parameter `shape`. `batch_dim`, `named_dims` and `sized_dims`
    are kept, and like `is_complex` decide nothing here.

    Raises ValueError if both `torch_tensor` and a shape or dtype are given, or neither, and
    TypeError if `torch_tensor` is no tensor or a name no string.
    """

    batch_dim: int | None = None
    named_dims: tuple[str | None, ...] = ()
    sized_dims: tuple[str | None, ...] = ()
    materializer: Materializer | None = None
    _trainable = False

    @checked(torch_tensor=None, name=None, region_name=None)
    def __new__(
        cls,
        torch_tensor: Tensor | None = None,
        shape: Iterable[int] | None = None,
        dtype: _DataType | None = None,
        name: str | None = None,
        batch_dim: int | None = None,
        named_dims: Iterable[str | None] | None = None,
        sized_dims: Iterable[str | None] | None = None,
        materializer: Materializer | None = None,
        is_complex: bool | None = None,
        region_name: str | None = None,
        requires_grad: bool | None = None,
    ) -> Self:
        """Return the tensor; see the class. `requires_grad` is that of `torch_tensor` if None.

        While a model is traced, what torch follows it with is returned as it is.
        """
        for key, given in (("name", name), ("region_name", region_name)):
            if given is not None and not isinstance(given, str):
                raise TypeError(f"{key} is {given!r}, expected a string")
        base = _base(torch_tensor, shape, dtype)
        if _followed(base):
            return base  # type: ignore[return-value]
        made = _shell(cls, base, requires_grad)
        made.sn_name = name or ""
        made.batch_dim = batch_dim
        made.named_dims = tuple(named_dims or ())
        made.sized_dims = tuple(sized_dims or ())
        made.materializer = materializer
        made._region_name = region_name or ""
        return made

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run torch's own function; tensors among its results become SambaTensors.

        Index tensors may be of any type with whole numbers in them. While `session.tracing` is set
        nothing is computed: results have shapes, types and names.
        """
        symbolic = SYMBOLIC.on and describes(func)
        with torch._C.DisableTorchFunctionSubclass():
            if func in INDEXING:
                args = (args[0], index_of(args[1]), *args[2:])
            args, options = in_one_type(func, (args, dict(kwargs or {})))
            found = described(func, args, options) if symbolic else func(*args, **options)
            if func in torch.overrides.get_default_nowrap_functions():
                return found
            result = wrapped(found, SambaTensor)
        if symbolic:
            named(func, result)
        if args:
            keep_facts(func, result, args[0])
        return result

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> object:
        """Run a function of numpy (`np.add`) as torch's, where torch has it."""
        return call_ufunc(ufunc, method, inputs, kwargs)

    @property
    def has_data(self) -> bool:
        """Whether the tensor has values on the host, and not just a shape."""
        return not self.is_meta

    @property
    def materializer_provided(self) -> bool:
        """Whether something was given to make the data of the tensor."""
        return self.materializer is not None

    @property
    def data(self) -> Tensor:
        """The values, as a plain tensor that shares their memory."""
        return to_torch(self).detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data is a tensor, not {value!r}")
        if self.is_meta != value.is_meta:
            self._become(value)
            return
        with torch._C.DisableTorchFunctionSubclass():
            _SET_DATA(self, to_torch(value).detach())

    def torch_tensor(self) -> Tensor:
        """Return the plain tensor; one without data is materialised for the result alone."""
        return to_torch(self) if self.has_data else self._materialized()

    def materialize_(self) -> None:
        """Give the tensor values, from its materializer, if it has none."""
        if not self.has_data:
            self._become(self._materialized())

    def clear_data(self) -> None:
        """Forget the values on the host; shape and type stay, and what the device holds.

        Raises SambaError while a view or a graph of autograd still needs the values.
        """
        if self.has_data:
            self._become(torch.empty_like(self.data, device="meta"))

    def reusable(self) -> bool:
        """Return whether transfers to the device can read the values where they are."""
        return self.has_data and self.is_contiguous()

    @checked()
    def copy_(self, other: Tensor, non_blocking: bool = False) -> Self:
        """Overwrite the values by those of `other`, which broadcast; see torch.

        A tensor without data gets some, so that `load_state_dict` fills lazy parameters.
        """
        if self.is_meta and not other.is_meta:
            self._become(to_torch(other).to(self.dtype).expand(self.shape).clone())
            return self
        super().copy_(other, non_blocking)
        return self

    @checked(fill_value=None)
    def new_full(  # type: ignore[override]  # torch's has options of memory as well
        self,
        size: Sequence[int],
        fill_value: float,
        dtype: _DataType | None = None,
        device: object = None,
        requires_grad: bool | None = False,
    ) -> SambaTensor:
        """Return a tensor full of `fill_value`, of this one's type if `dtype` is None.

        `device` has no effect: the tensor is on the host.
        """
        kind = dtype or self.dtype
        made = torch.full(size, fill_value, dtype=kind, requires_grad=bool(requires_grad))
        return SambaTensor(made)

    def new_empty(  # type: ignore[override]  # torch's takes sizes alone by position
        self, size: Sizes, *further: object, **options: object
    ) -> Tensor:
        """Return memory as it comes: of sizes, and then `dtype` and `requires_grad`."""
        return _made_like(Tensor.new_empty, self, (size, *further), options)

    def new_ones(  # type: ignore[override]  # torch's takes sizes alone by position
        self, size: Sizes, *further: object, **options: object
    ) -> Tensor:
        """Return ones: of sizes, and then `dtype` and `requires_grad`."""
        return _made_like(Tensor.new_ones, self, (size, *further), options)

    def new_zeros(  # type: ignore[override]  # torch's takes sizes alone by position
        self, size: Sizes, *further: object, **options: object
    ) -> Tensor:
        """Return zeros: of sizes, and then `dtype` and `requires_grad`."""
        return _made_like(Tensor.new_zeros, self, (size, *further), options)

    @checked()
    def type_as(self, tensor: Tensor) -> Tensor:
        """Return the tensor with elements of the type of `tensor`, itself if it has them."""
        return super().type_as(tensor)

    def __format__(self, format_spec: str) -> str:
        """Return a single value formatted as a number, as torch does, else the representation."""
        return format(self.data if self.dim() == 0 else repr(self), format_spec)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        """Return the values as torch shows them, and what makes this tensor special."""
        values = to_torch(self)
        shown = values.detach().requires_grad_(self.requires_grad) if self.is_leaf else values
        return f"{shown!r} {self._facts()}"

    def _facts(self) -> str:
        name = self.sn_name or f"sambatensor_{id(self)}"
        return (
            f"samba.SambaTensor(name: {name}, shape: {self.shape}, dtype: {self.dtype}, "
            f"batch_dim: {self.batch_dim}, named_dims: {self.named_dims}, "
            f"keep_data: {self.has_data}, materializer_provided: {self.materializer_provided})"
        )

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return a copy with memory of its own, and the same names; as torch, of leaves alone."""
        if not self.is_leaf:
            raise RuntimeError(
                "only tensors that are leaves of the graph can be copied deeply; detach() this one"
            )
        twin = Tensor._make_subclass(type(self), copy.deepcopy(self.data, memo), self.requires_grad)
        twin.__dict__.update(self.__dict__)
        twin.grad = None if self.grad is None else copy.deepcopy(self.grad, memo)
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """Pickle as a plain tensor and the names; a materializer stays behind."""
        state = {key: value for key, value in self.__dict__.items() if key != "materializer"}
        return rebuild, (type(self), self.data, self.requires_grad, state)

    def _materialized(self) -> Tensor:
        values, self.materializer = values_of(self, self.materializer, self.sn_name)
        return values

    def _become(self, value: Tensor) -> None:
        """Take over the content of `value`, which may lie on another device.

        Unlike `torch.utils.swap_tensors` this allows weak references, which `torch.export` leaves:
        they are to this object, and it stays.
        """
        if self._use_count() > 1:  # type: ignore[attr-defined]  # not in the stubs
            name = self.sn_name or "the tensor"
            raise SambaError(
                f"the memory of {name} cannot be exchanged while views of it, or results with a "
                "gradient that were computed from it, are alive; delete them first"
            )
        made = Tensor._make_subclass(type(self), to_torch(value).detach(), self.requires_grad)
        torch._C._swap_tensor_impl(self, made)

    # From here on `torch` and `type` in annotations of this class would be the methods.

    def torch(self) -> Tensor:
        """Return the plain tensor that this one was made from: same memory, same gradient."""
        return to_torch(self)

    def type(self, dtype: object = None, non_blocking: bool = False, **kwargs: object) -> object:  # type: ignore[override]  # torch obeys non_blocking
        """Return the name of the tensor's type, or the tensor with elements of `dtype`.

        Raises ValueError for `non_blocking` and further keywords, which no device here obeys.
        """
        if non_blocking or kwargs:
            given = ["non_blocking"] * non_blocking + list(kwargs)
            raise ValueError(f"type() does not take {', '.join(given)}: transfers do not overlap")
        return super().type() if dtype is None else super().type(dtype)  # type: ignore[call-overload]


class SambaParameter(SambaTensor, torch.nn.Parameter):
    """A SambaTensor that is a parameter of a module, and requires a gradient unless told otherwise.

    `SambaParameter(shape=..., dtype=..., materializer=..., requires_grad=True)`, or one from a
    tensor; `shape` may be any iterable.
    """

    _is_param = True
    _trainable = True


SAMBA_TENSOR = instance(SambaTensor, "a SambaTensor")


def rebuild(
    kind: type[SambaTensor], tensor: Tensor, requires_grad: bool, state: dict[str, object]
) -> SambaTensor:
    """Return the tensor that was pickled as these parts. Pickles refer to this function by name."""
    made = Tensor._make_subclass(kind, tensor, requires_grad)
    made.__dict__.update(state)
    return made


# A state_dict saved from a converted model is read by torch.load with its default options.
torch.serialization.add_safe_globals([rebuild, SambaTensor, SambaParameter])

_SET_DATA = Tensor.data.__set__  # type: ignore[attr-defined]  # a C descriptor


def _made_like(
    make: Callable[..., Tensor],
    origin: Tensor,
    args: tuple[object, ...],
    options: Mapping[str, object],
) -> Tensor:
    """Return what `make` makes; torch takes what comes behind the sizes by keyword alone."""
    sizes, *further = args
    if not further or not (further[0] is None or isinstance(further[0], torch.dtype)):
        return make(origin, *args, **options)
    return make(origin, sizes, **_by_name(*further, **options))


def _by_name(
    dtype: object = None, requires_grad: object = False, **further: object
) -> dict[str, object]:
    return {"dtype": dtype, "requires_grad": requires_grad, **further}


def _base(tensor: Tensor | None, shape: Iterable[int] | None, dtype: torch.dtype | None) -> Tensor:
    if tensor is None:
        if shape is None:
            raise ValueError("a SambaTensor is made from a torch tensor, or from shape and dtype")
        return torch.empty(tuple(shape), dtype=dtype, device="meta")
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"a SambaTensor is made from a torch tensor, got a {type(tensor).__name__}; "
            "samba.tensor() takes numbers and lists"
        )
    if shape is not None or dtype is not None:
        raise ValueError("shape and dtype come with the torch tensor; give the one or the other")
    return to_torch(tensor)


def _followed(tensor: Tensor) -> bool:
    """Tell whether `tensor` is one that torch traces with: of a class that sees every operation."""
    dispatch = type(tensor).__torch_dispatch__
    return dispatch is not torch._C._disabled_torch_dispatch_impl


_Kind = TypeVar("_Kind", bound=SambaTensor)


def _shell(cls: type[_Kind], base: Tensor, requires_grad: bool | None) -> _Kind:
    """Return a tensor of class `cls` on the memory of `base`, with no facts of its own yet."""
    if base.grad_fn is not None and requires_grad is not False and not cls._trainable:
        return base.as_subclass(cls)
    wanted = (cls._trainable or base.requires_grad) if requires_grad is None else requires_grad
    made = Tensor._make_subclass(cls, base.detach(), wanted)
    if wanted and base.grad is not None:
        made.grad = base.grad
    return made
