"""A module as its user knows it: its name, and example inputs, by argument or by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch.utils import _pytree as pytree

from sambac.errors import CompileError

Shapes: TypeAlias = dict[str, object] | tuple[object, ...] | list[object] | None


@dataclass(frozen=True)
class Example:
    """What `forward` is called with to record it, and which sizes of that are open."""

    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    shapes: Shapes = None


def module_name(module: torch.nn.Module) -> str:
    """Return what messages call a module: its class, or what it says of itself."""
    return str(module._get_name())  # type: ignore[no-untyped-call]


def example_of(module: torch.nn.Module, inputs: object, shapes: Shapes = None) -> Example:
    """Return `inputs` as a call of `module`, with arrays as tensors.

    A tuple holds arguments, a mapping keywords. A mapping at the end of a tuple holds keywords
    too, if its keys are parameters of `forward`. `shapes` are PyTorch's dynamic_shapes. Raises
    `CompileError` without inputs.
    """
    if inputs is None:
        raise CompileError(
            f"{module_name(module)} is a torch module and needs example inputs, which fix types "
            "and shapes: compile(module, inputs=(x, ...))"
        )
    if isinstance(inputs, Mapping):
        return Example((), _keywords(inputs), shapes)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if args and isinstance(args[-1], Mapping) and _parameters(module).issuperset(args[-1]):
        return Example(_arguments(args[:-1]), _keywords(args[-1]), shapes)
    return Example(_arguments(args), shapes=shapes)


def on_the_host(example: Example) -> Example:
    """Return `example` with tensors on the host, of any content, for those that have none.

    A tensor that is given twice is copied: torch.export would take one input for the other.
    """
    seen: set[int] = set()

    def there(item: torch.Tensor) -> torch.Tensor:
        if item.is_meta:
            return torch.empty_like(item, device="cpu")
        if id(item) in seen:
            return item.detach().clone()
        seen.add(id(item))
        return item

    args, kwargs = pytree.tree_map_only(torch.Tensor, there, (example.args, dict(example.kwargs)))
    return Example(args, kwargs, example.shapes)


def _parameters(module: torch.nn.Module) -> set[str]:
    """Return the names by which `forward` takes keywords."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(module.forward).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind in named}


def _keywords(inputs: Mapping[str, object]) -> dict[str, object]:
    return {str(key): _with_tensors(value) for key, value in inputs.items()}


def _arguments(inputs: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(_with_tensors(value) for value in inputs)


def _with_tensors(value: object) -> object:
    """Return `value` with the arrays in it, at any depth, copied into tensors."""
    return pytree.tree_map_only(np.ndarray, torch.tensor, value)
