"""From torch to SambaFlow and back: tensors and models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, overload

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from pef.wording import listed
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import MODULE
from sambaflow.samba.errors import SambaError
from sambaflow.samba.names import model_name, prefixed, samba_name

from .current import current
from .tensor import SambaParameter, SambaTensor
from .tensor import to_torch as _to_torch

_Model = TypeVar("_Model", bound=nn.Module)


@overload
def from_torch_tensor(tensor: None, name: str | None = ...) -> None: ...
@overload
def from_torch_tensor(
    tensor: torch.Tensor,
    name: str | None = ...,
    batch_dim: int | None = ...,
    named_dims: Iterable[str | None] | None = ...,
    region_name: str | None = ...,
    sized_dims: Iterable[str | None] | None = ...,
) -> SambaTensor: ...
@checked(tensor=None)  # SambaTensor looks
def from_torch_tensor(
    tensor: torch.Tensor | None,
    name: str | None = None,
    batch_dim: int | None = None,
    named_dims: Iterable[str | None] | None = None,
    region_name: str | None = None,
    sized_dims: Iterable[str | None] | None = None,
) -> SambaTensor | None:
    """Return a SambaTensor that shares the memory of `tensor`; a SambaTensor and None stay."""
    if tensor is None or isinstance(tensor, SambaTensor):
        return tensor
    found = SambaTensor(
        tensor,
        name=name,
        batch_dim=batch_dim,
        named_dims=named_dims,
        region_name=region_name,
        sized_dims=sized_dims,
    )
    if name:
        current().note_converted(name, found)
    return found


from_torch = from_torch_tensor


@overload
def to_torch(obj: None) -> None: ...
@overload
def to_torch(obj: torch.Tensor) -> torch.Tensor: ...
def to_torch(obj: torch.Tensor | None) -> torch.Tensor | None:
    """Return a plain tensor that shares the memory of `obj`; plain tensors and None stay.

    Raises TypeError for what is neither.
    """
    if obj is not None and not isinstance(obj, torch.Tensor):
        raise TypeError(f"to_torch takes a tensor or None, got a {type(obj).__name__}")
    return None if obj is None else _to_torch(obj)


@overload
def to_torch_tensor(obj: None) -> None: ...
@overload
def to_torch_tensor(obj: torch.Tensor) -> torch.Tensor: ...
def to_torch_tensor(obj: torch.Tensor | None) -> torch.Tensor | None:
    """Return what `to_torch` does."""
    return to_torch(obj)


@checked()
def from_named_dict(tensors: Mapping[str, torch.Tensor]) -> dict[str, SambaTensor]:
    """Return the tensors as SambaTensors that are called like their keys."""
    return {name: from_torch_tensor(tensor, name=name) for name, tensor in tensors.items()}


@checked()
def from_torch_model_(model: nn.Module, parent_module_prefix: str | None = None) -> None:
    """Turn the parameters of `model` into SambaParameters, in place.

    They stay the same objects, so an optimizer made before finds them; tied parameters stay tied.
    The model is named after its class in small letters, unless it has a name, and each parameter
    after the model and its path in it (`linear__weight`). `parent_module_prefix` begins the name of
    the model, and so all names (`encoder__linear__weight`): for parts of one model that are
    compiled as graphs of their own. Buffers stay torch tensors; `samba.session.buffer_dict` has a
    SambaTensor on the memory of each, by name. Converting again changes nothing. Raises
    `SambaError` for parameters of which torch does not know the shape yet.
    """
    _require_shapes(model)
    name = prefixed(model_name(model), parent_module_prefix)
    model.__dict__["name"] = name
    for path, parameter in model.named_parameters():
        if not isinstance(parameter, SambaParameter):
            parameter.__class__ = SambaParameter
        assert isinstance(parameter, SambaParameter)
        parameter.sn_name = samba_name(name, path)
        current().note_converted(parameter.sn_name, parameter)
    for path, buffer in model.named_buffers():
        key = samba_name(name, path)
        tensor = SambaTensor(buffer, name=key)
        current().note_buffer(key, tensor)
        current().note_converted(key, tensor)


def _require_shapes(model: nn.Module) -> None:
    states = (*model.named_parameters(), *model.named_buffers())
    unknown = [path for path, state in states if is_lazy(state)]
    if unknown:
        raise SambaError(
            f"{listed(unknown)} have no shape before the first call of the model; call it once "
            f"with torch tensors like its inputs, and then convert it"
        )


@checked(model=MODULE)
def from_torch_model(model: _Model, parent_module_prefix: str | None = None) -> _Model:
    """Convert `model` as `from_torch_model_` does, and return it."""
    from_torch_model_(model, parent_module_prefix)
    return model


@checked()
def from_torch_(model: nn.Module, parent_module_prefix: str | None = None) -> None:
    """Convert `model` as `from_torch_model_` does."""
    from_torch_model_(model, parent_module_prefix)
