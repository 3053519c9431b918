"""A network between processes, modelled by waiting: what it hides depends on the schedule alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Timeline:
    """How long each call of a training step takes, and what its schedule says of reductions.

    `seconds` are those of each call in order, `sent` the bytes that a call of a REDUCE section
    sends, `awaited` the earlier such calls whose gradients a call reads.
    """

    seconds: Mapping[int, float]
    sent: Mapping[int, int]
    awaited: Mapping[int, Iterable[int]] = field(default_factory=dict)

    def exposed(self, bandwidth: float) -> float:
        """Return the seconds that pass with nothing to do but wait for the network.

        Sections run in the order of the schedule, each as soon as its gradients are there; what
        the network does meanwhile costs nothing.
        """
        now = free = 0.0
        arrival: dict[int, float] = {}
        for call, took in self.seconds.items():
            if call in self.sent:
                arrival[call] = free = max(free, now) + self.sent[call] / bandwidth
                continue
            now = max([now, *(arrival[other] for other in self.awaited.get(call, ()))]) + took
        return now - sum(took for call, took in self.seconds.items() if call not in self.sent)


def timeline(program: pef.Program, spans: Iterable[sambarun.Span]) -> Timeline:
    """Return the timeline of a training step whose calls took as long as `spans` say."""
    from pef.states import states_of
    from sambarun.execution.reductions import waiting_for

    graph = program.graphs[0]
    calls = range(graph.first_call, graph.first_call + graph.calls)
    seconds = dict.fromkeys(calls, 0.0)
    for span in spans:
        seconds[span.call] += 1e-9 * span.duration
    reduces = {program.schedule[call]: call for call in calls if _reduces(program, call)}
    awaited = waiting_for(program, states_of(program))
    return Timeline(
        seconds,
        {
            call: sum(program.symbols[index].size for index in program.sections[section].inputs)
            for section, call in reduces.items()
        },
        {
            call: [reduces[other] for other in awaited.get(program.schedule[call], ())]
            for call in calls
        },
    )


def _reduces(program: pef.Program, call: int) -> bool:
    return program.sections[program.schedule[call]].type.name == "REDUCE"
