"""Content that is no plain tensor: the runtime checks it when it is used, these rules before."""

from __future__ import annotations

from collections.abc import Iterator

from pef import dtypes
from pef.defaults import decode
from pef.errors import PefError
from pef.program import Program, Symbol


def defaults(program: Program) -> Iterator[str]:
    """The default of an input whose size only a run tells is a tensor that fits the input."""
    for symbol in program.symbols:
        is_tensor = dtypes.parse(symbol.type) == symbol.dtype
        if symbol.data is None or not is_tensor or _is_sized(symbol):
            continue
        content = program.segments[symbol.data.segment].content(symbol.data)
        try:
            decode(memoryview(content), symbol)
        except PefError as error:
            yield str(error)


def _is_sized(symbol: Symbol) -> bool:
    return dtypes.static_nbytes(symbol.dtype, symbol.shape) is not None


RULES = (defaults,)
