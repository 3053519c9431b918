"""The exporter's optimizer takes 1e-8 for 0 and 1.000001 for 1; while it runs, here, it does not.

Its rules that remove `x + 0` and `x * 1` compare numbers with a tolerance, so that they remove the
epsilon of `log(x + 1e-8)` too, and a decay of 0.999999.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from onnxscript.rewriter import _ir_utils, _matcher

from .guards import replaced


@contextmanager
def exact_numbers() -> Iterator[None]:
    """Let numbers in the patterns of the exporter's optimizer match themselves alone."""
    exactly = SimpleNamespace(isclose=_are_equal)
    with replaced(_matcher, "math", exactly), replaced(_ir_utils, "math", exactly):
        yield


def _are_equal(found: float, wanted: float, **tolerances: float) -> bool:
    return found == wanted
