"""A module as its user knows it: its name, and example inputs, by argument or by keyword."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch.utils import _pytree as pytree

from pef.text import plural
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError

Shapes: TypeAlias = dict[str, object] | tuple[object, ...] | list[object] | None

_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Parameters that stand for any number of inputs."""


_LISTED = 1
"""So many equal elements of a list are written out."""


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
    `CompileError` without inputs, for others than `forward` takes, and for open sizes of axes that
    they do not have.
    """
    if inputs is None:
        raise CompileError(
            f"{module_name(module)} is a torch module and needs example inputs, which fix types "
            "and shapes: compile(module, inputs=(x, ...))"
        )
    args, kwargs = _call(module, inputs)
    _require_axes(module, _bound(module, args, kwargs), shapes)
    return Example(args, kwargs, shapes)


def _call(
    module: torch.nn.Module, inputs: object
) -> tuple[tuple[object, ...], Mapping[str, object]]:
    """Return the arguments and the keywords that `inputs` are."""
    if isinstance(inputs, Mapping):
        return (), _keywords(inputs)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if args and isinstance(args[-1], Mapping) and _parameters(module).issuperset(args[-1]):
        return _arguments(args[:-1]), _keywords(args[-1])
    return _arguments(args), {}


def _bound(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Mapping[str, object]:
    """Return the inputs by parameter of `forward`; raise `CompileError` if they do not fit it."""
    signature = signature_of(module.forward, args, kwargs)
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = sorted(_parameters(module))
        unknown = [name for name in kwargs if name not in names]
        hint = did_you_mean(unknown[0], names) if unknown else ""
        pack = "; a dict that is one argument goes into a tuple" if unknown and not args else ""
        raise CompileError(
            f"{module_name(module)}: forward takes {_spelled(signature)}; {_came(args, kwargs)}: "
            f"{error}{hint}{pack}"
        ) from None


def signature_of(
    forward: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> inspect.Signature:
    """Return what `forward` takes: a decorator may take more than what it says it decorates."""
    decorated = inspect.signature(forward)
    try:
        decorated.bind(*args, **kwargs)
    except TypeError:
        return inspect.signature(forward, follow_wrapped=False)
    return decorated


def arguments_of(
    forward: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Mapping[str, object]:
    """Return what `forward` is called with, by its parameters."""
    return signature_of(forward, args, kwargs).bind(*args, **kwargs).arguments


def _spelled(signature: inspect.Signature) -> str:
    """Return the parameters of a function, without their types."""
    parameters = signature.parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare))


def _came(args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Say how many inputs came, and under which names."""
    named = f"{listed(list(kwargs), separator=', ')} by name"
    number = plural(len(args), "input")
    if not kwargs:
        return f"{number} came"
    return f"{number} and {named} came" if args else f"{named} came"


def _require_axes(module: torch.nn.Module, call: Mapping[str, object], shapes: Shapes) -> None:
    """Raise `CompileError` for open sizes of inputs that did not come, or of axes they lack.

    What else may be wrong with `shapes`, PyTorch says itself.
    """
    name = module_name(module)
    if shapes is not None and not isinstance(shapes, (Mapping, tuple, list)):
        raise CompileError(
            f"{name}: dynamic_shapes is of type {type(shapes).__name__}; give a dict by input of "
            "the axes that are open, or a tuple with an element for each input"
        )
    kinds = {parameter.kind for parameter in inspect.signature(module.forward).parameters.values()}
    if not shapes or not kinds.isdisjoint(_SEVERAL):
        return
    given = shapes if isinstance(shapes, Mapping) else dict(zip(call, shapes, strict=False))
    if len(shapes) != len(call) or given.keys() != call.keys():
        spoken = listed(list(given), separator=", ") if given is shapes else str(len(shapes))
        raise CompileError(
            f"{name}: dynamic_shapes are for the inputs {listed(list(call), separator=', ')}, and "
            f"{spoken} came; give each what of it is open, or None"
        )
    for key, value in call.items():
        for where, tensor, axes in _opened(key, value, given[key]):
            wrong = [axis for axis in axes if axis not in range(tensor.ndim)]
            if wrong:
                raise CompileError(
                    f"{name}: dynamic_shapes leave axis {wrong[0]!r} of {where} open, which has "
                    f"{plural(tensor.ndim, 'axis', 'axes')}, counted from 0"
                )


def _opened(
    where: str, value: object, axes: object
) -> Iterator[tuple[str, torch.Tensor, Mapping[object, object]]]:
    """Yield each tensor in `value` with its name and its part of `axes`, where they are alike."""
    if isinstance(value, torch.Tensor):
        if isinstance(axes, Mapping):
            yield where, value, axes
    elif isinstance(value, Mapping) and isinstance(axes, Mapping):
        for key in value.keys() & axes.keys():
            yield from _opened(f"{where}[{key!r}]", value[key], axes[key])
    elif isinstance(value, tuple | list) and isinstance(axes, tuple | list):
        for number, (part, own) in enumerate(zip(value, axes, strict=False)):
            yield from _opened(f"{where}[{number}]", part, own)


def form_of_shapes(value: object) -> str:
    """Return how dynamic_shapes are written for `value`, with `{}` for the sizes of a tensor."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None:
        return "{}" if isinstance(value, torch.Tensor) else "None"
    children = [form_of_shapes(child) for child in node.flatten_fn(value)[0]]
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {c}' for key, c in zip(value, children, strict=True))}}}"
    if isinstance(value, tuple):
        named = type(value).__name__ if hasattr(value, "_fields") else ""
        return f"{named}({', '.join(children)}{',' * (len(children) == 1)})"
    if len(children) > _LISTED and len({*children}) == 1:
        return f"[{children[0]}] * {len(children)}"
    return f"[{', '.join(children)}]"


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
