"""Arguments of the public functions, checked before anything is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pef.arguments import BY_NAME, Kind, misfits, some

from .errors import RunError

_T = TypeVar("_T")
_VALUES = Kind("a dict of arrays by the names of inputs", BY_NAME.fits)
_BATCHES = some(_VALUES, "a dict of arrays by the names of inputs, or a list of these,")
_BATCH = Kind(_BATCHES.words, lambda value: BY_NAME.fits(value) or _BATCHES.fits(value))
_HYPERPARAMETERS = Kind("a dict of numbers by name, such as {'lr': 0.1},", BY_NAME.fits).or_none()


def require(**arguments: tuple[object, Kind]) -> None:
    """Raise `RunError` with a line for each argument that is not of its kind."""
    problems = misfits(**arguments)
    if problems:
        raise RunError("\n".join(problems))


def require_given(inputs: object, hyperparams: object = None, *, several: bool = False) -> None:
    """Raise `RunError` unless `inputs` are by name, or `several` such, and so hyperparameters."""
    if type(inputs) is dict and (hyperparams is None or type(hyperparams) is dict):
        return  # as usual; what the names are is looked at with the values
    require(
        inputs=(inputs, _BATCH if several else _VALUES),
        hyperparams=(hyperparams, _HYPERPARAMETERS),
    )


def items(name: str, asked: Iterable[_T], kind: Kind) -> tuple[_T, ...]:
    """Return what an argument lists. Raises `RunError` unless it is of a kind of lists."""
    given: object = asked  # which may be anything
    listing = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    found = tuple(asked) if listing else given
    require(**{name: (found, kind)})
    return tuple(asked) if not isinstance(found, tuple) else found
