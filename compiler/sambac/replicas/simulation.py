"""A training step of several replicas, played through: sections on the chip, gradients on the link.

Sections take what a program estimates and run in the order of its schedule. A gradient that is
reduced occupies the link alone, in the order in which reductions begin. What differs is when they
begin and who waits, as the runtime does it (`sambarun.execution.reductions`):

    normal    all begin when the backward pass has ended, and are over before what follows
    inorder   each begins at its place in the schedule, and what touches its gradients waits for it
    optimal   the same, and of the sections behind the last one those run first whose gradients
              have arrived

Each replica has a batch of its own, so that a step of n replicas does the work of n steps of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from pef.program import NamedGraph, Program, Section, SectionType
from pef.states import states_of
from pef.wording import did_you_mean
from sambac.errors import CompileError

from .links import Link

Mode = Literal["normal", "inorder", "optimal"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class ScaledStep:
    """A step in one mode: seconds in all, of its sections, and of the link.

    `waited` are the seconds in which no section runs, because gradients are on their way.
    """

    replicas: int
    mode: Mode
    seconds: float
    sections: float
    network: float

    @property
    def waited(self) -> float:
        """The seconds of the link that are not hidden behind sections."""
        return self.seconds - self.sections

    @property
    def hidden(self) -> float:
        """The part of the time of the link during which sections run."""
        return max(1 - self.waited / self.network, 0.0) if self.network else 1.0

    @property
    def efficiency(self) -> float:
        """The time of a replica alone as a part of this one."""
        return self.sections / self.seconds if self.seconds else 1.0


def training_graph(program: Program, name: str | None) -> NamedGraph:
    """Return the graph whose gradients are reduced, by name where there are several.

    Raises `CompileError` if there is none, or no such one.
    """
    found = {graph.name: graph for graph in program.graphs if _reductions(program, graph)}
    if not found:
        raise CompileError(
            "this program reduces no gradients: compile it with --train --data-parallel and an "
            "--optimizer."
        )
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name is None:
        raise CompileError(f"several graphs train; choose one with --graph: {', '.join(found)}.")
    if name not in found:
        raise CompileError(
            f"no graph {name!r} reduces gradients{did_you_mean(name, found)}; {', '.join(found)} "
            "does."
        )
    return found[name]


def scale(
    program: Program, graph: NamedGraph, replicas: Iterable[int], link: Link
) -> list[ScaledStep]:
    """Return a step of each number of `replicas` in each mode, by the estimates of `program`."""
    calls = _calls(graph)
    sections = program.sections
    seconds = {call: sections[program.schedule[call]].estimate.latency for call in calls}

    def step(count: int, mode: Mode) -> ScaledStep:
        return simulate(program, graph, seconds, lambda n: link.reduction(n, count), mode, count)

    return [step(count, mode) for count in replicas for mode in MODES]


def simulate(
    program: Program,
    graph: NamedGraph,
    seconds: Mapping[int, float],
    reduction: Callable[[int], float],
    mode: Mode,
    replicas: int = 2,
) -> ScaledStep:
    """Play a step through in which calls take `seconds`, and so many bytes on the link `reduction`.

    REDUCE sections take no time of their own.
    """
    run = _Playback(program, seconds, reduction)
    calls = _calls(graph)
    reduces = _reductions(program, graph)
    last = reduces[-1]
    before = [call for call in calls if call < last and call not in reduces]
    behind = [call for call in calls if call > last]
    if mode == "normal":
        run.sections(before)
        for call in reduces:
            run.begin(call)
        run.wait_for_all()
        run.sections(behind)
    else:
        for call in range(graph.first_call, last + 1):
            run.begin(call) if call in reduces else run.in_order(call)
        if mode == "inorder":
            for call in behind:
                run.in_order(call)
        else:
            run.by_arrival(behind)
        run.wait_for_all()
    return ScaledStep(
        replicas,
        mode,
        run.now,
        sum(seconds[call] for call in (*before, *behind)),
        sum(reduction(program.symbols[index].size) for index in run.begun),
    )


def _calls(graph: NamedGraph) -> range:
    return range(graph.first_call, graph.first_call + graph.calls)


def _reductions(program: Program, graph: NamedGraph) -> list[int]:
    """Return the calls of a graph that reduce gradients."""
    sections = program.sections
    return [
        call
        for call in _calls(graph)
        if sections[program.schedule[call]].type is SectionType.REDUCE
    ]


class _Playback:
    """The clock of the chip, and when each gradient whose reduction has `begun` arrives."""

    def __init__(
        self, program: Program, seconds: Mapping[int, float], reduction: Callable[[int], float]
    ) -> None:
        self.now = 0.0
        self.begun: dict[int, float] = {}
        self._program = program
        self._seconds = seconds
        self._reduction = reduction
        self._free = 0.0
        self._inside: dict[int, tuple[int, ...]] = {}
        for flat, members in states_of(program).packs.items():
            self._inside[flat] = members
            self._inside.update((member, (flat,)) for member in members)

    def begin(self, call: int) -> None:
        """Begin the reductions of a call: their gradients queue up for the link."""
        for index in self._section(call).inputs:
            took = self._reduction(self._program.symbols[index].size)
            self._free = self.begun[index] = max(self._free, self.now) + took

    def sections(self, calls: Iterable[int]) -> None:
        """Run sections one after another."""
        for call in calls:
            self.now += self._seconds[call]

    def in_order(self, call: int) -> None:
        """Run a section as soon as the gradients that it touches have arrived."""
        self.now = max([self.now, *(self.begun[index] for index in self._needs(call))])
        self.sections((call,))

    def by_arrival(self, calls: Sequence[int]) -> None:
        """Run sections in the order in which their gradients arrive, as far as they may.

        Where none can run, the chip waits for the one gradient whose reduction began first.
        """
        needs = {call: self._needs(call) for call in calls}
        left = list(calls)
        while left:
            free = [call for at, call in enumerate(left) if self._may_overtake(call, left[:at])]
            ready = [c for c in free if all(self.begun[g] <= self.now for g in needs[c])]
            if ready:
                left.remove(ready[0])
                self.sections(ready[:1])
                continue
            wanted = {index for call in free for index in needs[call]}
            late = (at for index, at in self.begun.items() if index in wanted and at > self.now)
            self.now = next(late)

    def wait_for_all(self) -> None:
        """Wait for everything that is on its way."""
        self.now = max([self.now, *self.begun.values()])

    def _needs(self, call: int) -> list[int]:
        section = self._section(call)
        touched = self._spread((*section.inputs, *section.outputs))
        return [index for index in self.begun if index in touched]

    def _spread(self, symbols: Iterable[int]) -> set[int]:
        """Return symbols, and what spans them or lies inside of them."""
        found = set(symbols)
        return found.union(*(self._inside.get(index, ()) for index in found))

    def _may_overtake(self, call: int, earlier: Sequence[int]) -> bool:
        """Tell whether nothing that `call` uses is written by what comes before, nor otherwise."""
        mine = self._section(call)
        return not any(
            self._meet(other.outputs, (*mine.inputs, *mine.outputs))
            or self._meet(other.inputs, mine.outputs)
            for other in map(self._section, earlier)
        )

    def _meet(self, some: Sequence[int], others: Sequence[int]) -> bool:
        """Tell whether symbols share memory."""
        if not set(some).isdisjoint(others):
            return True
        places = [*filter(None, map(self._place, others))]
        return any(
            mine[0] == other[0] and mine[1] < other[2] and other[1] < mine[2]
            for mine in filter(None, map(self._place, some))
            for other in places
        )

    def _place(self, index: int) -> tuple[int, int, int] | None:
        """Return the region, the first address and the end of a symbol that has memory."""
        symbol = self._program.symbols[index]
        if symbol.allocation is None or not symbol.size:
            return None
        place = self._program.allocations[symbol.allocation]
        begin = place.address + symbol.offset
        return place.region, begin, begin + symbol.size

    def _section(self, call: int) -> Section:
        return self._program.sections[self._program.schedule[call]]
