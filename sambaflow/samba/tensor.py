"""SambaTensor: a torch tensor that has a name on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import torch

from .errors import SambaError
from .indexing import index_of

if TYPE_CHECKING:
    from .rng import MultithreadedRNG

    Materializer: TypeAlias = Callable[["SambaTensor", MultithreadedRNG], torch.Tensor]

MEMORY_TYPES = ("DDR", "HBM", "HOST")
"""The regions that `mem_type` chooses from, in capitals."""

_KEEP_NAME = frozenset(
    {
        torch.Tensor.to,
        torch.Tensor.type,
        torch.Tensor.type_as,
        torch.Tensor.float,
        torch.Tensor.bfloat16,
        torch.Tensor.half,
        torch.Tensor.double,
        torch.Tensor.int,
        torch.Tensor.long,
        torch.Tensor.short,
        torch.Tensor.bool,
    }
)
"""Conversions of the element type: their result is still the input that the user named."""


class SambaTensor(torch.Tensor):
    """A tensor on the host that knows its name, and through it its memory on the device.

    It is made from `torch_tensor`, whose memory it shares, or from `shape` and `dtype` alone: then
    it has no data and lies on torch's `meta` device until it is materialised. It computes on the
    host like any torch tensor, and results are SambaTensors.

    `name` is what `sn_name` says and inputs are matched by. `region_name` names its memory: tensors
    of equal region names share it. `materializer` makes the data of a tensor without any, called
    with the tensor and a random number generator. `batch_dim`, `named_dims`, `sized_dims` and
    `is_complex` are kept and decide nothing here.

    Raises ValueError if both `torch_tensor` and a shape or dtype are given, or neither.
    """

    sn_name: str = ""
    """The name on the device; empty while the tensor has none."""
    batch_dim: int | None = None
    named_dims: tuple[str | None, ...] = ()
    sized_dims: tuple[str | None, ...] = ()
    materializer: Materializer | None = None
    host_memory: bool = False
    _region_name: str = ""
    _memory: str | None = None

    def __new__(
        cls,
        torch_tensor: torch.Tensor | None = None,
        shape: Iterable[int] | None = None,
        dtype: torch.dtype | None = None,
        name: str | None = None,
        batch_dim: int | None = None,
        named_dims: Iterable[str | None] | None = None,
        sized_dims: Iterable[str | None] | None = None,
        materializer: Materializer | None = None,
        is_complex: bool | None = None,
        region_name: str | None = None,
        requires_grad: bool | None = None,
    ) -> SambaTensor:
        """Return the tensor; see the class."""
        base = _base(torch_tensor, shape, dtype)
        wanted = base.requires_grad if requires_grad is None else requires_grad
        if base.grad_fn is not None:
            made = base.as_subclass(cls)
        else:
            made = torch.Tensor._make_subclass(cls, base.detach(), wanted)
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
        """Run torch's own function; tensors among its results become SambaTensors."""
        with torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        if func in torch.overrides.get_default_nowrap_functions():
            return found
        result = _wrapped(found)
        if func in _KEEP_NAME and isinstance(result, SambaTensor):
            _take_name(result, args[0])
        return result

    # What the host holds.

    @property
    def has_data(self) -> bool:
        """Whether the tensor has values on the host, and not just a shape."""
        return not self.is_meta

    @property
    def materializer_provided(self) -> bool:
        """Whether something was given to make the data of the tensor."""
        return self.materializer is not None

    @property
    def data(self) -> torch.Tensor:
        """The values, as a plain tensor that shares their memory."""
        return self._plain().detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if self.is_meta != value.is_meta:
            self._become(value)
            return
        with torch._C.DisableTorchFunctionSubclass():
            _SET_DATA(self, to_torch(value).detach())

    def torch(self) -> torch.Tensor:
        """Return the plain tensor that this one was made from: same memory, same gradient."""
        return self._plain()

    def torch_tensor(self) -> torch.Tensor:
        """Return the plain tensor; one without data is materialised for the result alone."""
        return self._plain() if self.has_data else self._materialized()

    def materialize_(self) -> None:
        """Give the tensor values, from its materializer, if it has none."""
        if not self.has_data:
            self._become(self._materialized())

    def clear_data(self) -> None:
        """Forget the values on the host; shape and type stay, and what the device holds."""
        if self.has_data:
            self._become(torch.empty_like(self._plain(), device="meta"))

    def reusable(self) -> bool:
        """Return whether transfers to the device can read the values where they are."""
        return self.has_data and self.is_contiguous()

    # What the device holds.

    @property
    def sn_data(self) -> torch.Tensor:
        """A copy of the values on the device; assigning writes them."""
        return _device(self).read(self.sn_name)

    @sn_data.setter
    def sn_data(self, value: torch.Tensor) -> None:
        _device(self).write(self.sn_name, to_torch(value))

    @property
    def sn_grad(self) -> torch.Tensor:
        """A copy of the gradient on the device; assigning writes it.

        That of an output is what the backward pass starts from.
        """
        return _device(self).read(self.sn_grad_name)

    @sn_grad.setter
    def sn_grad(self, value: torch.Tensor) -> None:
        _device(self).write(self.sn_grad_name, to_torch(value))

    @property
    def sn_grad_name(self) -> str:
        """The name of the gradient on the device."""
        return f"{self.sn_name}__grad"

    @property
    def sn_region_name(self) -> str:
        """The name of the memory on the device: `sn_name` unless another was given."""
        return self._region_name or self.sn_name

    @sn_region_name.setter
    def sn_region_name(self, name: str) -> None:
        self._region_name = name

    @property
    def mem_type(self) -> str | None:
        """The region the tensor is placed in: DDR, HBM, Host, or None, where the compiler decides.

        It is read when a PEF is compiled. Raises ValueError for another word.
        """
        return self._memory

    @mem_type.setter
    def mem_type(self, region: str | None) -> None:
        if region is not None and region.upper() not in MEMORY_TYPES:
            raise ValueError(f"mem_type is {region!r}, expected 'DDR', 'HBM', 'Host' or None")
        self._memory = region

    def rdu(self) -> None:
        """Copy the values, and the gradient if there is one, to the device."""
        device = _device(self)
        device.write(self.sn_name, self.torch_tensor())
        if self.grad is not None:
            device.write(self.sn_grad_name, to_torch(self.grad))

    def cpu(self, inplace: bool = False) -> None:  # type: ignore[override]  # torch's returns a copy
        """Copy the values, and the gradient if the device has one, from the device.

        With `inplace` the memory on the host stays the same, else the tensor gets new memory.
        """
        device = _device(self)
        value = device.read(self.sn_name)
        if inplace and self.has_data:
            with torch.no_grad():
                self._plain().copy_(value)
        else:
            self.data = value
        gradient = device.find(self.sn_grad_name) if self.requires_grad else None
        if gradient is not None:
            self.grad = gradient

    def cpu_(self) -> None:
        """Copy from the device into the memory that the tensor has on the host."""
        self.cpu(inplace=True)

    @property
    def fast_access(self) -> bool:
        """Whether transfers of the tensor go through pinned memory."""
        return SambaTensor.is_fast_access(self.sn_name)

    @fast_access.setter
    def fast_access(self, wanted: bool) -> None:
        from .pinned import set_fast_access

        set_fast_access(self.sn_name, wanted)

    @staticmethod
    def is_fast_access(name: str) -> bool:
        """Return whether the tensor called `name` goes through pinned memory."""
        from .pinned import is_fast_access

        return is_fast_access(name)

    # What differs from torch.

    def __getitem__(self, index: object) -> SambaTensor:
        """Return a part; an index tensor may be of any type with whole numbers in it."""
        return super().__getitem__(index_of(index))  # type: ignore[return-value,no-any-return]

    def __setitem__(self, index: object, update: object) -> None:
        """Overwrite a part; `index` as in `__getitem__`."""
        super().__setitem__(index_of(index), update)

    def type(self, dtype: object = None, non_blocking: bool = False, **kwargs: object) -> object:  # type: ignore[override]
        """Return the name of the tensor's type, or the tensor with elements of `dtype`.

        Raises ValueError for `non_blocking` and further keywords, which no device here obeys.
        """
        if non_blocking or kwargs:
            given = ["non_blocking"] * non_blocking + list(kwargs)
            raise ValueError(f"type() does not take {', '.join(given)}: transfers do not overlap")
        return super().type() if dtype is None else super().type(dtype)  # type: ignore[arg-type]

    def __repr__(self, *, tensor_contents: object = None) -> str:
        """Return the values as torch shows them, and what makes this tensor special."""
        values = self._plain()
        shown = values.detach().requires_grad_(self.requires_grad) if self.is_leaf else values
        return f"{shown!r} {self._facts()}"

    def __deepcopy__(self, memo: dict[int, object]) -> SambaTensor:
        """Return a copy with memory of its own, and the same names."""
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[return-value]
        copy = torch.Tensor._make_subclass(
            type(self), self._plain().detach().clone(), self.requires_grad
        )
        copy.__dict__.update(self.__dict__)
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """Pickle as a plain tensor and the names."""
        state = {key: value for key, value in self.__dict__.items() if key != "materializer"}
        return _rebuild, (type(self), self._plain().detach(), self.requires_grad, state)

    def _plain(self) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    def _materialized(self) -> torch.Tensor:
        if self.materializer is None:
            name = self.sn_name or "this tensor"
            raise SambaError(f"{name} has no data, and no materializer to make some; assign .data")
        from .rng import provider

        return to_torch(self.materializer(self, provider().generator(self.sn_name)))

    def _become(self, value: torch.Tensor) -> None:
        """Take over the content of `value`, which may lie on another device."""
        made = torch.Tensor._make_subclass(
            type(self), to_torch(value).detach(), self.requires_grad
        )
        made.__dict__.update(self.__dict__)
        torch.utils.swap_tensors(self, made)

    def _facts(self) -> str:
        name = self.sn_name or f"sambatensor_{id(self)}"
        return (
            f"samba.SambaTensor(name: {name}, shape: {self.shape}, dtype: {self.dtype}, "
            f"batch_dim: {self.batch_dim}, named_dims: {self.named_dims}, "
            f"keep_data: {self.has_data}, materializer_provided: {self.materializer_provided})"
        )


class SambaParameter(SambaTensor, torch.nn.Parameter):
    """A SambaTensor that is a parameter of a module.

    `SambaParameter(shape=..., dtype=..., materializer=..., requires_grad=True)`, or one from a
    tensor; `shape` may be any iterable.
    """

    _is_param = True

    def __new__(cls, *args: object, requires_grad: bool = True, **kwargs: object) -> SambaParameter:
        """Return the parameter; arguments are those of `SambaTensor`."""
        made = SambaTensor.__new__(cls, *args, requires_grad=requires_grad, **kwargs)  # type: ignore[arg-type]
        assert isinstance(made, cls)
        return made

    __deepcopy__ = SambaTensor.__deepcopy__  # type: ignore[assignment]
    __reduce_ex__ = SambaTensor.__reduce_ex__  # type: ignore[assignment]
    __repr__ = SambaTensor.__repr__


def to_torch(value: torch.Tensor) -> torch.Tensor:
    """Return `value` as a plain tensor that shares its memory."""
    return value._plain() if isinstance(value, SambaTensor) else value


_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # a C descriptor


def _base(
    tensor: torch.Tensor | None, shape: Iterable[int] | None, dtype: torch.dtype | None
) -> torch.Tensor:
    if tensor is None:
        if shape is None:
            raise ValueError("a SambaTensor is made from a torch tensor, or from shape and dtype")
        return torch.empty(tuple(shape), dtype=dtype, device="meta")
    if shape is not None or dtype is not None:
        raise ValueError("shape and dtype come with the torch tensor; give the one or the other")
    return to_torch(tensor)


def _wrapped(found: object) -> object:
    """Return `found` with the tensors in it, also in tuples and lists, as SambaTensors."""
    if isinstance(found, torch.Tensor):
        return found if isinstance(found, SambaTensor) else found.as_subclass(SambaTensor)
    if isinstance(found, tuple):
        parts = [_wrapped(part) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else type(found)(parts)
    if isinstance(found, list):
        return [_wrapped(part) for part in found]
    return found


def _take_name(result: SambaTensor, origin: object) -> None:
    if isinstance(origin, SambaTensor) and result is not origin:
        result.sn_name = origin.sn_name
        result.batch_dim = origin.batch_dim
        result._region_name = origin._region_name


def _rebuild(
    kind: type[SambaTensor], tensor: torch.Tensor, requires_grad: bool, state: dict[str, object]
) -> SambaTensor:
    made = torch.Tensor._make_subclass(kind, tensor, requires_grad)
    made.__dict__.update(state)
    return made


def _device(tensor: SambaTensor) -> DeviceMemory:
    from .session import session

    if not tensor.sn_name:
        raise SambaError("a tensor without a name has no memory on the device; give it a name")
    return session.memory


if TYPE_CHECKING:
    from .device import DeviceMemory
