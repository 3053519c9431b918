"""The side of a SambaTensor that is on the device: names, and copies in both directions."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from pef.graphs import gradient_name
from sambaflow.samba.arguments.checked import checked, require
from sambaflow.samba.arguments.kinds import FLAG, NAME
from sambaflow.samba.errors import SambaError

from . import pinned
from .current import DeviceMemory, current

MEMORY_TYPES = ("DDR", "HBM", "HOST")
"""The regions that `mem_type` chooses from, in capitals."""


class DeviceTensor(Tensor):
    """A torch tensor that has a name on the device, and through it memory there."""

    sn_name: str = ""
    """The name on the device; empty while the tensor has none."""
    _region_name: str = ""
    _memory: str | None = None

    @property
    def sn_data(self) -> Tensor:
        """A copy of the values on the device; assigning writes them."""
        return _memory_of(self).read(self.sn_name)

    @sn_data.setter
    def sn_data(self, value: Tensor) -> None:
        _memory_of(self).write(self.sn_name, values_of(value, self.sn_name))

    @property
    def sn_grad(self) -> Tensor:
        """A copy of the gradient on the device; assigning writes it.

        That of an output is what the backward pass starts from.
        """
        return _memory_of(self).read(self.sn_grad_name)

    @sn_grad.setter
    def sn_grad(self, value: Tensor) -> None:
        _memory_of(self).write(self.sn_grad_name, values_of(value, self.sn_grad_name))

    @property
    def sn_grad_name(self) -> str:
        """The name of the gradient on the device."""
        return gradient_name(self.sn_name)

    @property
    def sn_region_name(self) -> str:
        """The name of the memory on the device: `sn_name` unless another was given."""
        return self._region_name or self.sn_name

    @sn_region_name.setter
    def sn_region_name(self, name: str) -> None:
        require("sn_region_name", name, NAME)
        self._region_name = name

    @property
    def host_memory(self) -> bool:
        """Whether the device reads the tensor from the memory of the host."""
        return bool(self.__dict__.get("host_memory", False))

    @host_memory.setter
    def host_memory(self, wanted: bool) -> None:
        require("host_memory", wanted, FLAG)
        self.__dict__["host_memory"] = wanted

    @property
    def mem_type(self) -> str | None:
        """The region the tensor is placed in: DDR, HBM, Host, or None, where the compiler decides.

        It is read when a PEF is compiled. Raises ValueError for another word.
        """
        return self._memory

    @mem_type.setter
    def mem_type(self, region: str | None) -> None:
        if region is not None and str(region).upper() not in MEMORY_TYPES:
            raise ValueError(f"mem_type is {region!r}, expected 'DDR', 'HBM', 'Host' or None")
        self._memory = region

    def rdu(self) -> None:
        """Copy the values, and the gradient if there is one, to the device."""
        memory = _memory_of(self)
        memory.write(self.sn_name, self.torch_tensor().detach())
        if self.grad is not None:
            memory.write(self.sn_grad_name, plain(self.grad).detach())

    def torch_tensor(self) -> Tensor:
        """Return the values as a plain tensor."""
        return plain(self)

    @checked()
    def cpu(self, inplace: bool = False) -> Self:  # type: ignore[override]  # torch's only returns
        """Copy the values, and the gradient if the device has one, from the device.

        With `inplace` the memory on the host stays the same, else the tensor gets new memory.
        A tensor without a name has its values on the host alone, and nothing happens. Returns the
        tensor, as torch's own code expects of `cpu`.
        """
        if not self.sn_name:
            return self
        memory = _memory_of(self)
        value = memory.read(self.sn_name).to(self.dtype)
        if inplace and not self.is_meta:
            _overwrite(self, value)
        else:
            self.data = value
        if self.requires_grad:
            self._take_gradient(memory.find(self.sn_grad_name), inplace)
        return self

    def cpu_(self) -> None:
        """Copy from the device into the memory that the tensor has on the host."""
        self.cpu(inplace=True)

    def _take_gradient(self, gradient: Tensor | None, inplace: bool) -> None:
        if gradient is None:
            return
        if inplace and self.grad is not None:
            _overwrite(self.grad, gradient)
        else:
            self.grad = gradient.to(self.dtype)

    @property
    def fast_access(self) -> bool:
        """Whether transfers of the tensor go through pinned memory."""
        return type(self).is_fast_access(self.sn_name)

    @fast_access.setter
    def fast_access(self, wanted: bool) -> None:
        require("fast_access", wanted, FLAG)
        pinned.set_fast_access(_name_of(self), wanted)

    @staticmethod
    @checked()
    def is_fast_access(name: str) -> bool:
        """Return whether the tensor called `name` goes through pinned memory."""
        return pinned.is_fast_access(name)


def plain(value: Tensor) -> Tensor:
    """Return `value` as a plain tensor that shares its memory, its place in a graph, its gradient.

    A leaf stays the leaf that `backward` accumulates into.
    """
    if not isinstance(value, DeviceTensor):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        alias = value.as_subclass(Tensor)
        if value.is_leaf and value.grad is not None:
            # Torch looks for gradients at leaves, and the alias is behind one.
            alias.grad = value.grad
        return alias


def values_of(value: object, name: str) -> Tensor:
    """Return the values of `value`, which go to `name` on the device, as a plain tensor.

    A SambaTensor without data is materialised. Raises TypeError for what is no tensor, and
    `SambaError` for one without values.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"'{name}' is given a {type(value).__name__}, expected a tensor")
    found = value.torch_tensor() if isinstance(value, DeviceTensor) else value
    if found.is_meta:
        raise SambaError(f"'{name}' is given a tensor without values, on the meta device")
    return found.detach()


def _overwrite(target: Tensor, value: Tensor) -> None:
    with torch.no_grad():
        plain(target).copy_(value)


def _name_of(tensor: DeviceTensor) -> str:
    if not tensor.sn_name:
        raise SambaError("a tensor without a name has no memory on the device; give it a name")
    return tensor.sn_name


def _memory_of(tensor: DeviceTensor) -> DeviceMemory:
    _name_of(tensor)
    return current().memory
