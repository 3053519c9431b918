"""Which of two open sizes is smaller, where what is known of them says it.

    min(16 past + 16, 32 past + 32)  ->  16 past + 16      past is not negative

PyTorch knows between which numbers each size is, and asks that of single sizes alone: what it
cannot decide it asks of the example, and then refuses sizes that are to stay open. Attention over a
cache of keys and values that several heads share is such a case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.value_ranges import bound_sympy

from sambac.frontend.torch.patching import replaced

_simplify = ShapeEnv.simplify


@contextmanager
def decided_minima() -> Iterator[None]:
    """Let PyTorch decide between sizes, meanwhile, by the bounds of their differences."""
    with replaced(ShapeEnv, "simplify", _simplified):
        yield


def _simplified(sizes: ShapeEnv, expr: sympy.Basic, *options: object, **named: object) -> object:
    found = _simplify(sizes, expr, *options, **named)
    if not found.has(Min, Max):
        return found

    signs = {Min: 1, Max: -1}
    for kind, sign in signs.items():
        found = found.replace(kind, partial(_decided, sizes, kind, sign))
    return found


def _decided(sizes: ShapeEnv, kind: type[sympy.Expr], sign: int, *parts: sympy.Expr) -> sympy.Expr:
    part = _first_below(sizes, parts, sign)
    return kind(*parts) if part is None else part


def _first_below(sizes: ShapeEnv, parts: tuple[sympy.Expr, ...], sign: int) -> sympy.Expr | None:
    """Return the part from which all others differ by 0 or more, times `sign`."""
    for part in parts:
        gaps = (sympy.expand(sign * (other - part)) for other in parts if other is not part)
        if all(bound_sympy(gap, sizes.var_to_range).lower >= 0 for gap in gaps):
            return part
    return None
