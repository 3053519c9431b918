"""Which results are handed over: computed in memory that becomes the caller's, without a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pef
from pef import dtypes
from sambarun.arrays import is_bindable

from .weights import static_shape

HANDED_BYTES = 1 << 20
"""From this size on a copy costs more than new memory that is bound for each run."""


def handed_over(program: pef.Program, beside: Collection[int]) -> frozenset[int]:
    """Return the results that a run of a whole model may hand over: large, and read by nothing.

    `beside` are symbols whose memory others find them in: states, and what shares its place.
    """
    ports = [port.symbol for graph in program.graphs for port in (*graph.inputs, *graph.outputs)]
    named = Counter(ports)
    read = {symbol for section in program.sections for symbol in section.inputs}
    return frozenset(
        port.symbol
        for graph in program.graphs
        if graph.role is pef.GraphRole.INFERENCE
        for port in graph.outputs
        if named[port.symbol] == 1
        and port.symbol not in read
        and port.symbol not in beside
        and _is_large(program.symbols[port.symbol])
    )


def _is_large(symbol: pef.Symbol) -> bool:
    """Tell whether a symbol is a large tensor of fixed shape, of whole bytes."""
    shape = static_shape(symbol)
    if shape is None or not is_bindable(symbol.type) or dtypes.BY_NUMBER[symbol.dtype].bits < 8:
        return False
    return dtypes.nbytes(symbol.dtype, shape) >= HANDED_BYTES
