"""Content that is no plain tensor: the runtime checks it when it is used, these rules before."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from pef import dtypes
from pef.defaults import decode
from pef.errors import PefError
from pef.program import Program, Symbol

_DOUBLE = Struct("<d")


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


def argin_defaults(program: Program) -> Iterator[str]:
    """The content of an argin is its default."""
    for argin in program.argins:
        symbol = program.symbols[argin.symbol]
        if symbol.data is None or symbol.dtype != dtypes.DOUBLE or symbol.data.size != _DOUBLE.size:
            continue  # the fault of the rules of training, if it is one
        (found,) = _DOUBLE.unpack(program.segments[symbol.data.segment].content(symbol.data))
        if found != argin.default:
            yield f"argin '{argin.name}' has the default {argin.default}, its content is {found}"


def _is_sized(symbol: Symbol) -> bool:
    return dtypes.static_nbytes(symbol.dtype, symbol.shape) is not None


RULES = (defaults, argin_defaults)
