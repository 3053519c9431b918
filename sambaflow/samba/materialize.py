"""Giving values to tensors that have none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from .errors import SambaError
from .histories import HISTORIES, Recipe, replay
from .rng import provider
from .tensor import SambaTensor, to_torch


@contextmanager
def materialize(model: nn.Module) -> Iterator[nn.Module]:
    """Give all parameters of `model` values within the block, and yield the model.

    Afterwards those that had none before have none again, unless they were changed in the block,
    got a gradient, or are part of a result that is still alive. Equal seeds give equal values, each
    time.
    """
    lazy = [
        tensor
        for tensor in model.parameters()
        if isinstance(tensor, SambaTensor) and not tensor.has_data
    ]
    for tensor in lazy:
        tensor.materialize_()
    before = [(tensor._version, tensor.data_ptr()) for tensor in lazy]
    try:
        yield model
    finally:
        for tensor, mark in zip(lazy, before, strict=True):
            same = tensor.has_data and (tensor._version, tensor.data_ptr()) == mark
            if same and tensor.grad is None:
                with suppress(SambaError):  # something needs the values
                    tensor.clear_data()


def values_of(tensor: SambaTensor) -> torch.Tensor:
    """Return values for a tensor that has none: recorded ones, else those of its materializer.

    A materializer is called as it can be: with `shape`, `dtype` and `requires_grad` if it has a
    parameter `shape`, else with the tensor and random numbers, else with the tensor alone. Raises
    SambaError if there is none, or if its result has another shape.
    """
    with torch._C.DisableTorchFunction():
        region = HISTORIES.region(tensor)
        if region is not None:
            # Copies share their materializer with the original, but not what happened since.
            if not (
                isinstance(tensor.materializer, Recipe) and tensor.materializer.owner is tensor
            ):
                tensor.materializer = Recipe(region, tensor)
            return replay(region)
    name = tensor.sn_name or "the tensor"
    if tensor.materializer is None:
        raise SambaError(f"{name} has no data, and no materializer to make some; assign .data")
    made = to_torch(_called(tensor.materializer, tensor))
    if made.shape != tensor.shape:
        raise SambaError(
            f"the materializer of {name} made a tensor of shape {tuple(made.shape)}, "
            f"expected {tuple(tensor.shape)}"
        )
    return made.detach().to(tensor.dtype)


def _called(materializer: Callable[..., torch.Tensor], tensor: SambaTensor) -> torch.Tensor:
    try:
        signature = inspect.signature(materializer)
    except ValueError:  # some functions of torch have none
        return materializer(tensor)
    if "shape" in signature.parameters:
        return materializer(
            shape=tensor.shape, dtype=tensor.dtype, requires_grad=tensor.requires_grad
        )
    generator = provider().generator(tensor.sn_name)
    try:
        signature.bind(tensor, generator)
    except TypeError:
        return materializer(tensor)
    return materializer(tensor, generator)
