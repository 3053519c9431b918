"""Weights as a length and a direction."""

from __future__ import annotations

import torch
from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.tensors.tensor import SambaParameter, to_torch

__all__ = ["weight_norm_"]


@checked()
def weight_norm_(module: nn.Module, name: str = "weight", dim: int = 0) -> nn.Module:
    """Split the parameter `name` of `module` into magnitude and direction, and return the module.

    The two are parameters called `<name>_magnitude` and `<name>_direction`, which train instead.
    The module's `name` becomes `magnitude * direction / |direction|`, computed when it is read,
    with a magnitude and a norm for each slice along `dim`; what the module computes stays the same.
    A SambaParameter `linear__weight` gives SambaParameters `linear__weight_magnitude` and
    `linear__weight_direction`. The module's class is made for it and can be copied, but not
    pickled; its state dict can. Raises ValueError if `module` has no parameter `name`.
    """
    parameter = module._parameters.get(name)
    if parameter is None:
        kind = type(module).__name__
        raise ValueError(f"{kind} has no parameter '{name}' of its own to split")
    direction = to_torch(parameter).detach()
    magnitude = torch.norm_except_dim(direction, 2, dim)
    del module._parameters[name]
    for word, part in (("magnitude", magnitude), ("direction", direction.clone())):
        made = nn.Parameter(part, parameter.requires_grad)
        if isinstance(parameter, SambaParameter):
            made.__class__ = SambaParameter
            made.__dict__["sn_name"] = f"{parameter.sn_name}_{word}"
        module.register_parameter(f"{name}_{word}", made)
    module.__class__ = _with_computed(type(module), name, dim)
    return module


def _with_computed(kind: type[nn.Module], name: str, dim: int) -> type[nn.Module]:
    """Return a class like `kind`, of the same name, whose attribute `name` is computed."""

    def computed(module: nn.Module) -> torch.Tensor:
        direction = getattr(module, f"{name}_direction")
        return torch._weight_norm(direction, getattr(module, f"{name}_magnitude"), dim)

    facts = {name: property(computed), "__module__": kind.__module__}
    return type(kind.__name__, (kind,), facts)
