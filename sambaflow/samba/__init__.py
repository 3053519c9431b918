"""SambaFlow's Python API: torch models compiled into PEFs, and run on the modelled device."""

from __future__ import annotations

import sambahost  # noqa: F401  # before PyTorch, without which it says what to install
from sambaflow import is_demo, is_internal

# Before the function `tensor` below, which takes the name of this module in the package.
from sambaflow.samba.tensor import SambaParameter, SambaTensor
from sambaflow.samba.tensors.conversion import (
    from_named_dict,
    from_torch,
    from_torch_,
    from_torch_model,
    from_torch_model_,
    from_torch_tensor,
    to_torch,
    to_torch_tensor,
)
from sambaflow.samba.tensors.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    normal,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    tensor,
    zeros,
    zeros_like,
)
from sambaflow.submodules import on_demand

from . import directives, env, functional, lazy_param, nn, optim, utils
from .errors import SambaError
from .patching import patched_torch
from .session import SambaSession, session
from .utils import set_seed

__all__ = [
    "SambaError",
    "SambaParameter",
    "SambaSession",
    "SambaTensor",
    "arange",
    "directives",
    "empty",
    "empty_like",
    "env",
    "eye",
    "from_named_dict",
    "from_torch",
    "from_torch_",
    "from_torch_model",
    "from_torch_model_",
    "from_torch_tensor",
    "full",
    "full_like",
    "functional",
    "is_demo",
    "is_internal",
    "lazy_param",
    "nn",
    "normal",
    "ones",
    "ones_like",
    "optim",
    "patched_torch",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "session",
    "set_seed",
    "tensor",
    "to_torch",
    "to_torch_tensor",
    "utils",
    "zeros",
    "zeros_like",
]


_module = on_demand(
    __name__,
    "argconf",
    "graph",
    "materialize",
    "profiler",
    "sambaloader",
    "sambatensor",
    "schema",
    "sn_private",
    "test",
)


def __getattr__(name: str) -> object:
    """Return the operator of `functional` called `name`: `samba.add` is `samba.functional.add`.

    Else a module of this package.
    """
    return getattr(functional, name) if name in functional.__all__ else _module(name)
