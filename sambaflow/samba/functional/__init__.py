"""`samba.functional`: torch's functions by name, on SambaTensors and on plain tensors.

Names, parameters, promotion of types and errors are torch's (`families.py` lists what there is);
`out=` is refused. Where torch and `torch.nn.functional` both have a name, it is the latter's
function. `own.py` has what torch does not. All are made of torch's operations, so that a model
that calls them is traced like any other.
"""

from __future__ import annotations

from importlib import import_module

from .families import OPERATORS, missing

__all__ = [*OPERATORS]


def __getattr__(name: str) -> object:
    """Return the operator called `name`, or `stir`. Raises AttributeError with a reason if not."""
    if name in OPERATORS:
        return OPERATORS[name]
    if name == "stir":
        return import_module(f"{__name__}.stir")
    raise AttributeError(missing(name))


def __dir__() -> list[str]:
    return sorted({*globals(), *OPERATORS})
