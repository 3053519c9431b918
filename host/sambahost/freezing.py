"""Parameters that are frozen while a program that trains them runs on."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from pef.warned import warn
from pef.wording import listed


class FreezeWatch:
    """Tells, once each, of parameters that are frozen after a program was compiled to train them.

    `trained` are what the program trains, by the names that users know. A program trains what it
    was compiled for, so that freezing one has no effect on it.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter] | None = None) -> None:
        found = dict(trained or {})
        self.trained: Mapping[str, nn.Parameter] = found
        self._untold = {name: item for name, item in found.items() if item.requires_grad}

    def tell(self, program: str) -> None:
        """Warn of what was frozen since the last call; `program` is what trains it all the same."""
        frozen = [name for name, item in self._untold.items() if not item.requires_grad]
        if not frozen:
            return
        for name in frozen:
            del self._untold[name]
        warn(
            f"{program} goes on training {listed(frozen, separator=', ')}, frozen since by "
            "requires_grad = False: it trains what it was compiled for. Compile it again to leave "
            "them as they are"
        )
