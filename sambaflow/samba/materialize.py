"""Giving values to tensors that have none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch
from torch import nn

from .checked import checked
from .errors import SambaError
from .histories import HISTORIES, Recipe, replay
from .rng import provider
from .tensor import SambaTensor, to_torch


@checked()
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
    SambaError if there is none, if it takes something else, and if its result does not fit.
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
    made = _called(tensor.materializer, tensor)
    problem = _problem(made, tensor)
    if problem:
        raise SambaError(f"the materializer of {name} made {problem}")
    return to_torch(made).detach().to(tensor.dtype)


def _problem(made: object, tensor: SambaTensor) -> str:
    """Return what is wrong with `made` as the values of `tensor`, or nothing."""
    if not isinstance(made, torch.Tensor):
        return f"a {type(made).__name__}, expected a tensor"
    if made.is_meta:
        return "a tensor without values, on the meta device"
    if made.shape != tensor.shape:
        return f"a tensor of shape {tuple(made.shape)}, expected {tuple(tensor.shape)}"
    if not torch.can_cast(made.dtype, tensor.dtype):
        return f"a tensor of {made.dtype}, which {tensor.dtype} cannot hold"
    return ""


def _called(materializer: Callable[..., torch.Tensor], tensor: SambaTensor) -> torch.Tensor:
    try:
        signature = inspect.signature(materializer)
    except ValueError:  # some functions of torch have none
        return materializer(tensor)
    except TypeError:
        raise _unusable(tensor, f"is {materializer!r}") from None
    if "shape" in signature.parameters:
        facts = {
            "shape": tensor.shape,
            "dtype": tensor.dtype,
            "requires_grad": tensor.requires_grad,
        }
        calls: tuple[tuple[tuple[object, ...], dict[str, object]], ...] = (((), facts),)
    else:
        calls = (((tensor, provider().generator(tensor.sn_name)), {}), ((tensor,), {}))
    for args, keywords in calls:
        with suppress(TypeError):
            signature.bind(*args, **keywords)
            break
    else:
        raise _unusable(tensor, f"takes {signature}")
    return materializer(*args, **keywords)


def _unusable(tensor: SambaTensor, what: str) -> SambaError:
    return SambaError(
        f"the materializer of {tensor.sn_name or 'the tensor'} {what}; it is a function of shape, "
        f"dtype and requires_grad, of a tensor and random numbers, or of a tensor"
    )
