"""Weights as a length and a direction."""

from __future__ import annotations

from typing import cast

from torch import nn
from torch.nn.utils import parametrizations

from sambaflow.samba.tensor import SambaParameter, SambaTensor, to_torch

__all__ = ["weight_norm_"]

_PARTS = {"original0": "magnitude", "original1": "direction"}


def weight_norm_(module: nn.Module, name: str = "weight", dim: int = 0) -> nn.Module:
    """Split the parameter `name` of `module` into magnitude and direction, and return the module.

    The parameter becomes `magnitude * direction / |direction|`, with a magnitude for each slice
    along `dim`, as `torch.nn.utils.parametrizations.weight_norm` makes it; the two are what trains.
    Those of a SambaParameter `linear__weight` are SambaParameters called `linear__weight_magnitude`
    and `linear__weight_direction`.
    """
    parameter = getattr(module, name)
    samba_name = parameter.sn_name if isinstance(parameter, SambaTensor) else None
    if isinstance(parameter, SambaParameter):
        plain = nn.Parameter(to_torch(parameter).detach(), parameter.requires_grad)
        module.register_parameter(name, plain)
    parametrizations.weight_norm(module, name, dim)
    if samba_name is not None:
        lists = cast("nn.ModuleDict", module.parametrizations)
        for part, word in _PARTS.items():
            piece = lists[name].get_parameter(part)
            piece.__class__ = SambaParameter
            cast("SambaParameter", piece).sn_name = f"{samba_name}_{word}"
    return module
