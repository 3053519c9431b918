"""What of a model lives on the device from run to run, by its names there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from sambaflow.samba.names import model_name, samba_name
from sambaflow.samba.optim.state import named_states


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
    yield from parameters_of(model)
    yield from buffers_of(model)
    yield from optimizer_states(model, optimizers)


def optimizer_states(
    model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the state of optimizers by name: `<parameter>__<torch's key>`, `<group>__step`.

    What counts steps comes once for each parameter.
    """
    return named_states(optimizers, {id(p): name for name, p in parameters_of(model)})


def _named(model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    name = model_name(model)
    return ((samba_name(name, path), tensor) for path, tensor in tensors)
