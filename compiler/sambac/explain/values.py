"""How values are called that have no name in the file."""

from __future__ import annotations

from sambac.planning.view import DataflowView
from sambac.reconstruct.rebuilt import Rebuilt

from .facts import quoted


def value_text(rebuilt: Rebuilt, view: DataflowView, value: str) -> str:
    """Return the name of the symbol that `value` is in, or else who makes it.

    A copy of a clone is called after what the clone reads.
    """
    plans = rebuilt.plans
    for base in (value, *view.behind(value)):
        symbol = plans.persistent.symbol(base)
        if symbol in plans.lifetimes:
            return quoted(symbol)
        maker = view.producer.get(base)
        if maker is not None and not view.ops[maker].cloned:
            return f"what {quoted(maker)} makes"
    return "a constant"
