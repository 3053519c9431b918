"""Updates by gradients that nobody has clipped, in programs that were compiled to clip: told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import pef
from sambarun.arrays import Array
from sambarun.device.memory import Memory
from sambarun.linking.schedule import calls_of

_ROUNDED = 1.01
"""How far the norm of gradients that were clipped, and rounded to 16 bits, may be above it."""


class Clipping(NamedTuple):
    """What calls of a graph that clips do with its gradients.

    `leaves` tells whether those that they leave are clipped, None if they make none. `bare` are the
    gradients by which they update without GRADNORM. `largest` is the symbol of the norm clipped to,
    None where GRADNORM balances only.
    """

    leaves: bool | None
    bare: tuple[int, ...]
    largest: int | None


def clipping_of(program: pef.Program, graph: int, calls: Sequence[int]) -> Clipping | None:
    """Return what `calls` of `graph` do with gradients; None if nothing there clips them."""
    kinds = pef.SectionType
    whole = [program.sections[program.schedule[call]] for call in calls_of(program, graph)]
    norms = [section for section in whole if section.type is kinds.GRADNORM]
    if not norms:
        return None
    made = [program.sections[program.schedule[call]] for call in calls]
    types = {section.type for section in made}
    clips = kinds.GRADNORM in types
    updates = [] if clips else [section for section in made if section.type is kinds.OPT]
    read = dict.fromkeys(symbol for section in updates for symbol in section.inputs)
    argins = {row.symbol for row in program.argins if row.option == "max_grad_norm"}
    return Clipping(
        clips if clips or kinds.BCKWD in types else None,
        tuple(s for s in read if program.symbols[s].kind is pef.SymbolKind.GRADIENT),
        next((s for section in norms for s in section.inputs if s in argins), None),
    )


class Unclipped:
    """Tells of updates by gradients that are not clipped, as far as that can be known.

    What was given or written may be clipped elsewhere: its norm says whether it matters.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._clipped: dict[int, bool] = {}

    def forget(self) -> None:
        """Note that gradients may have other values now than sections gave them."""
        self._clipped.clear()

    def note(self, graph: int, clipping: Clipping | None) -> None:
        """Note what calls of `graph` leave, which have been made."""
        if clipping is not None and clipping.leaves is not None:
            self._clipped[graph] = clipping.leaves

    def tell(self, graph: int, clipping: Clipping | None) -> None:
        """Warn of calls of `graph` that update by gradients without clipping."""
        if clipping is None or not clipping.bare:
            return
        here = clipping.leaves is False
        given = not here and not self._memory.feeds.keys().isdisjoint(clipping.bare)
        known = None if given else self._clipped.get(graph)
        if here or known is False or (known is None and not self._are_small(clipping)):
            # Imported here: few processes ask for this, and all wait for imports.
            from pef.warned import warn

            warn(
                f"OPT runs without GRADNORM, which clips gradients, and takes them as "
                f"{'BCKWD gives them' if here else 'they are'}; name GRADNORM before OPT"
            )

    def _are_small(self, clipping: Clipping) -> bool:
        """Tell whether there are gradients, and none that clipping would change."""
        if clipping.largest is None:
            return False
        squares = sum(_squares(self._memory.view(symbol)) for symbol in clipping.bare)
        largest = float(self._memory.view(clipping.largest))
        return 0 < math.sqrt(squares) <= largest * _ROUNDED


def _squares(array: Array) -> float:
    with np.errstate(over="ignore"):
        flat = array.reshape(-1).astype(np.float64)
        return float(flat @ flat)
