"""Values for tensors that have none: recorded ones, else those of a materializer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import torch
from torch import Tensor

from sambaflow.samba.errors import SambaError

from .histories import HISTORIES, ValueRecipe, replay
from .rng import provider

Materializer: TypeAlias = Callable[..., Tensor]


def values_of(
    tensor: Tensor, materializer: Materializer | None, name: str
) -> tuple[Tensor, Materializer]:
    """Return plain values for `tensor`, which has none, and what makes them again.

    They are recorded ones, else those of `materializer`, which is called as it can be: with
    `shape`, `dtype` and `requires_grad` if it has a parameter `shape`, else with the tensor and
    random numbers, else with the tensor alone. `name` is what the tensor is called on the device.
    Raises `SambaError` without a materializer, if it takes something else, and if its result does
    not fit.
    """
    with torch._C.DisableTorchFunction():
        region = HISTORIES.region(tensor)
        if region is not None:
            # Copies share their materializer with the original, but not what happened since.
            own = isinstance(materializer, ValueRecipe) and materializer.owner is tensor
            kept = materializer if own and materializer is not None else ValueRecipe(region, tensor)
            return replay(region), kept
    called = name or "the tensor"
    if materializer is None:
        raise SambaError(f"{called} has no data, and no materializer to make some; assign .data")
    made = _called(materializer, tensor, name)
    problem = _problem(made, tensor)
    if problem:
        raise SambaError(f"the materializer of {called} made {problem}")
    with torch._C.DisableTorchFunctionSubclass():
        return made.detach().as_subclass(Tensor).to(tensor.dtype), materializer


def _problem(made: object, tensor: Tensor) -> str:
    """Return what is wrong with `made` as the values of `tensor`, or nothing."""
    if not isinstance(made, Tensor):
        return f"a {type(made).__name__}, expected a tensor"
    if made.is_meta:
        return "a tensor without values, on the meta device"
    if made.shape != tensor.shape:
        return f"a tensor of shape {tuple(made.shape)}, expected {tuple(tensor.shape)}"
    if not torch.can_cast(made.dtype, tensor.dtype):
        return f"a tensor of {made.dtype}, which {tensor.dtype} cannot hold"
    return ""


def _called(materializer: Materializer, tensor: Tensor, name: str) -> Tensor:
    try:
        signature = inspect.signature(materializer)
    except ValueError:  # some functions of torch have none
        return materializer(tensor)
    except TypeError:
        raise _unusable(name, f"is {materializer!r}") from None
    if "shape" in signature.parameters:
        facts = {
            "shape": tensor.shape,
            "dtype": tensor.dtype,
            "requires_grad": tensor.requires_grad,
        }
        calls: tuple[tuple[tuple[object, ...], dict[str, object]], ...] = (((), facts),)
    else:
        calls = (((tensor, provider().generator(name)), {}), ((tensor,), {}))
    for args, keywords in calls:
        with suppress(TypeError):
            signature.bind(*args, **keywords)
            break
    else:
        raise _unusable(name, f"takes {signature}")
    return materializer(*args, **keywords)


def _unusable(name: str, what: str) -> SambaError:
    return SambaError(
        f"the materializer of {name or 'the tensor'} {what}; it is a function of shape, "
        f"dtype and requires_grad, of a tensor and random numbers, or of a tensor"
    )
