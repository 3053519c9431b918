"""A network between processes, modelled by waiting: what it hides depends on the schedule alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    import pef
    import sambarun


@dataclass
class Link:
    """A reducer over a serial link: a gradient is there once its bytes have passed.

    It passes `bandwidth` bytes a second, one gradient after the other, in the order in which they
    are started. The processor has nothing to do with it and is idle while it waits. Values stay as
    they are, as if all processes had the same gradients. `waited` counts the seconds until arrival
    for which somebody had to wait.
    """

    bandwidth: float
    waited: float = 0.0
    _free: float = 0.0

    def start(self, name: str, buffer: np.ndarray) -> Passage:
        """Send `buffer` behind what is on its way."""
        self._free = max(self._free, time.perf_counter()) + buffer.nbytes / self.bandwidth
        return Passage(self, self._free)


@dataclass(frozen=True)
class Passage:
    """A gradient that is on its way until `arrives`, in seconds of `perf_counter`."""

    link: Link
    arrives: float

    def done(self) -> bool:
        """Return whether it has arrived."""
        return time.perf_counter() >= self.arrives

    def wait(self) -> None:
        """Sleep until it has arrived."""
        left = self.arrives - time.perf_counter()
        if left > 0:
            self.link.waited += left
            time.sleep(left)


def exposed(program: pef.Program, spans: Iterable[sambarun.Span], bandwidth: float) -> float:
    """Return the seconds that pass with nothing to do but wait for the network.

    Sections take as long as `spans` say and run in the order of the schedule, each as soon as its
    gradients are there; what the network does meanwhile costs nothing.
    """
    from sambac.replicas import simulate

    graph = program.graphs[0]
    calls = range(graph.first_call, graph.first_call + graph.calls)
    seconds = dict.fromkeys(calls, 0.0)
    for span in spans:
        seconds[span.call] += 1e-9 * span.duration
    step = simulate(program, graph, seconds, lambda nbytes: nbytes / bandwidth, "inorder")
    return step.waited
