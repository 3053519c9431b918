"""Parts of modules: `parameter`; everything else is torch's, `samba.nn.Linear` is `nn.Linear`."""

from __future__ import annotations

from torch import nn

from . import parameter

__all__ = ["parameter"]


def __getattr__(name: str) -> object:
    """Return what `torch.nn` calls `name`; older applications have samba's name for it."""
    try:
        found: object = getattr(nn, name)
    except AttributeError:
        raise AttributeError(
            f"module 'sambaflow.samba.nn' has no attribute {name!r}, and neither has torch.nn"
        ) from None
    return found
