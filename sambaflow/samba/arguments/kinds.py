"""What arguments of public functions may be: a truthy text is no flag, and True is no number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from operator import index

import numpy as np
import torch
from torch import Tensor, nn

from pef import arguments


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """Arguments of a kind: `words` for them, and a function that tells whether one `fits`.

    Instances of the types `plain` fit without a look.
    """

    words: str
    fits: Callable[[object], bool]
    plain: frozenset[type] = frozenset()

    def or_none(self) -> ArgumentKind:
        """Return the kind of arguments that may be left out, too."""
        words, plain = f"{self.words}, or None", self.plain | {type(None)}
        return ArgumentKind(words, lambda value: value is None or self.fits(value), plain)


def instance(kind: type | tuple[type, ...], words: str) -> ArgumentKind:
    """Return the kind of the instances of a class, or of one of several."""
    return ArgumentKind(words, lambda value: isinstance(value, kind))


def some(kind: ArgumentKind, words: str) -> ArgumentKind:
    """Return the kind of lists of one kind; what is taken one by one is seen then."""

    def fits(value: object) -> bool:
        if not isinstance(value, Collection) or isinstance(value, (str, bytes, Tensor, Mapping)):
            return isinstance(value, Iterator)
        return all(map(kind.fits, value))

    return ArgumentKind(words, fits)


def dict_of(kind: ArgumentKind, words: str) -> ArgumentKind:
    """Return the kind of dicts by name with values of one kind."""

    def fits(value: object) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(key, str) and kind.fits(item) for key, item in value.items()
        )

    return ArgumentKind(words, fits)


def whole(value: object) -> int:
    """Return a whole number as Python's; raises TypeError for what is none, as True."""
    if FLAG.fits(value) or (isinstance(value, Tensor) and value.dtype is torch.bool):
        raise TypeError(f"{value!r} is no whole number")
    return index(value)  # type: ignore[arg-type]  # which is asked here


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_rate(value: object) -> bool:
    return _is_number(value) or (isinstance(value, Tensor) and value.numel() == 1)


def _is_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_empty(value: object) -> bool:
    return isinstance(value, str) and not value


FLAG = ArgumentKind("True or False", lambda v: isinstance(v, (bool, np.bool_)), frozenset({bool}))
COUNT = ArgumentKind("a whole number", _is_whole, frozenset({int}))
NUMBER = ArgumentKind("a number", _is_number, frozenset({int, float}))
LIMIT = ArgumentKind(arguments.LIMIT.words, lambda v: _is_number(v) and arguments.LIMIT.fits(v))
"""A number that others are compared with, which neither NaN nor infinity is of use for."""
RATE = ArgumentKind("a number", _is_rate, frozenset({int, float}))
"""A number of an optimizer, which torch takes as a tensor of one element, too."""
NAME = ArgumentKind("a name", lambda v: isinstance(v, str), frozenset({str}))
PATH = ArgumentKind("a path", lambda v: _is_empty(v) or arguments.PATH.fits(v))
MODULE = instance(nn.Module, "a torch.nn.Module")
TENSOR = instance(Tensor, "a tensor")
MAPPING = ArgumentKind("a dict by name", _is_by_name)
NAMES = some(NAME, "a list of names")
SIZES = some(COUNT, "a list of whole numbers")
DIMS = some(NAME.or_none(), "a list of names and None")
CALLABLE = ArgumentKind("a function", callable)
OPTIONS = ArgumentKind(
    "the options of a command line, as parse_app_args returns them",
    lambda v: hasattr(v, "__dict__") and not (callable(v) or isinstance(v, Tensor)),
)

BY_ANNOTATION: Mapping[str, ArgumentKind | None] = {
    "bool": FLAG,
    "int": COUNT,
    "float": NUMBER,
    "str": NAME,
    "str | os.PathLike[str]": PATH,
    "AnyPath": PATH,
    "nn.Module": MODULE,
    "Namespace": OPTIONS,
    "Tensor": TENSOR,
    "torch.Tensor": TENSOR,
    "Mapping[str, object]": MAPPING,
    "Iterable[str]": NAMES,
    "Sequence[str]": NAMES,
    "Iterable[str | None]": DIMS,
    "Iterable[int]": SIZES,
    "Sequence[int]": SIZES,
    "Mapping[str, torch.Tensor]": MAPPING,
    "_DataType": instance(torch.dtype, "a type of torch"),
    "torch.dtype": instance(torch.dtype, "a type of torch"),
    "Materializer": CALLABLE,
    "Callable[..., object]": CALLABLE,
    "Callable[[], object]": CALLABLE,
    "Callable[..., Tensor]": CALLABLE,
    "ParserFunction": CALLABLE,
    "object": None,
    "Inputs": None,
    "Optimizers": None,
    "LossIndices": None,
}
"""What a parameter may be, by its annotation; the same with ` | None` may be left out, too.

None is for what functions look at themselves, as it takes more than a type.
"""


def kind_of(annotation: str) -> ArgumentKind | None:
    """Return the kind of a parameter with this annotation, None if anything goes.

    Raises KeyError for an annotation that no kind is known for.
    """
    plain = annotation.removesuffix(" | None")
    kind = BY_ANNOTATION[plain]
    return kind.or_none() if kind is not None and plain != annotation else kind
