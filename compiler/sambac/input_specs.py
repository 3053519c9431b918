"""Shapes and types that a user gives inputs, and how the command line spells them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pef.arguments import WHOLE, some
from pef.dtypes import BY_NAME as DTYPES
from pef.text import whole_of
from pef.wording import did_you_mean

from .errors import CompileError, require_arguments


@dataclass(frozen=True)
class InputSpec:
    """A shape, and optionally an ONNX element type number, for one model input."""

    shape: tuple[int, ...]
    dtype: int | None = None

    def __post_init__(self) -> None:
        require_arguments(
            shape=(self.shape, some(WHOLE.at_least(0), "a tuple of sizes, such as (1, 3),")),
            dtype=(self.dtype, WHOLE.or_none()),
        )
        # Numbers of numpy are numbers, but not all of them can be looked up.
        object.__setattr__(self, "shape", tuple(map(int, self.shape)))
        if self.dtype is not None:
            object.__setattr__(self, "dtype", int(self.dtype))


def no_specs(inputs: Mapping[str, object]) -> Iterator[str]:
    """Yield a sentence for each input that is given something else, such as a bare shape."""
    for name, spec in inputs.items():
        if not isinstance(spec, InputSpec):
            shape = spec if isinstance(spec, tuple | list) else (8, 3)
            yield f"Input '{name}' is given {spec!r}; give InputSpec({shape!r})."


def parse_input(text: str) -> tuple[str, InputSpec]:
    """Return the name and the specification in `NAME=1x3x224x224:float32`.

    Raises `CompileError` for anything else.
    """
    name, _, spec = text.rpartition("=")
    dims, colon, dtype = spec.partition(":")
    words = dims.split("x") if dims else []
    sizes = [size for size in map(whole_of, words) if size is not None and size >= 0]
    if not name or len(sizes) < len(words):
        raise CompileError(
            "expected NAME=SHAPE or NAME=SHAPE:DTYPE, "
            "for instance data=1x3x224x224 or ids=1x128:int64."
        )
    if colon and dtype not in DTYPES:
        hint = did_you_mean(dtype, DTYPES) or f"; known are {', '.join(DTYPES)}"
        raise CompileError(f"{dtype!r} is no element type{hint}.")
    number = DTYPES[dtype].number if colon else None
    return name, InputSpec(shape=tuple(sizes), dtype=number)


def by_name(pairs: Iterable[tuple[str, InputSpec]]) -> dict[str, InputSpec]:
    """Return specifications by name; raise `CompileError` for a name that is there twice."""
    found: dict[str, InputSpec] = {}
    for name, spec in pairs:
        if name in found:
            raise CompileError(f"input '{name}' is given twice.")
        found[name] = spec
    return found
