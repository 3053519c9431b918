"""Between the memory of the host and that of the device: parameters, buffers, optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from .device import Device
from .names import gradient_name, model_name, samba_name
from .tensor import SambaTensor, to_torch


def parameters_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters of `model` with their names on the device."""
    return _named(model, model.named_parameters())


def buffers_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the buffers of `model` with their names on the device."""
    return _named(model, model.named_buffers())


def states_of(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> Iterator[tuple[str, Tensor]]:
    """Yield all that lives on the device from run to run: parameters, buffers, optimizer state."""
    from .optim.state import state_tensors

    yield from parameters_of(model)
    yield from buffers_of(model)
    yield from state_tensors(model, optimizers)


def to_device(device: Device, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Copy those of `tensors` that the device holds to it."""
    for name, tensor in tensors:
        if device.writable(name):
            device.write(name, tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor)


def to_host(device: Device, tensors: Iterable[tuple[str, Tensor]], *, inplace: bool) -> None:
    """Copy from the device what it holds of `tensors`, and gradients it has.

    With `inplace` the memory on the host stays the same, else the tensors get new memory.
    """
    for name, tensor in tensors:
        value = device.find(name)
        if value is None:
            continue
        if inplace and not tensor.is_meta:
            with torch.no_grad():
                to_torch(tensor).copy_(value)
        else:
            tensor.data = value.to(tensor.dtype)
        gradient = device.find(gradient_name(name)) if tensor.requires_grad else None
        if gradient is not None:
            tensor.grad = gradient


def _named(model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    name = model_name(model)
    return ((samba_name(name, path), tensor) for path, tensor in tensors)
