"""A workspace: one executable's memory, and a run in it: inputs in, steps, results out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cached_property
from typing import NamedTuple

import pef
from pef import dtypes
from sambarun.arrays import Array, is_bindable
from sambarun.device.access import Access
from sambarun.device.fitted import Fitted, asked_by
from sambarun.device.footprint import MemoryUse, private_bytes, touched_bytes
from sambarun.device.image import Image
from sambarun.device.inputs import Feeds, Inputs
from sambarun.device.memory import Memory, TensorAt
from sambarun.device.state import StateStore
from sambarun.errors import INPUTS, RunError, require
from sambarun.forks import keep_in_child, tell_child
from sambarun.linking.schedule import Chosen
from sambarun.turns import NoTurn, Turn

from .host_steps import Host
from .plan import Plan, apart, make_plan
from .planner import Result
from .runs import Runs, overwritten

_BUSY = (
    "This executable is at work already, in another thread or further up in this one; give each "
    "thread its own clone()."
)
_CLOSED = "This executable has been closed; load the program again."
_ELSEWHERE = (
    "This executable is of the process that this one was forked from, without the threads that it "
    "computes with; load the program again here."
)


class WorkspaceLock:
    """Gives a workspace to one caller at a time: to the function of a `with`, until it is left.

    What an interrupted call has left behind is cleaned up before the next one begins. This is not
    a generator, as entering one takes longer than many a run.
    """

    __slots__ = ("__weakref__", "_busy", "_turn", "_workspace")

    def __init__(self, workspace: Workspace) -> None:
        self._workspace: Workspace | None = workspace
        self._turn = Turn()
        self._busy = _BUSY
        keep_in_child(self)
        tell_child(self)

    def __enter__(self) -> Workspace:
        if not self._turn.take(sys._getframe(1)):
            raise RunError(self._busy)
        workspace = self._workspace
        if workspace is None:
            self._turn.give_back()
            raise RunError(_CLOSED)
        workspace.finish()
        return workspace

    def __exit__(self, *error: object) -> None:
        workspace = self._workspace
        if workspace is not None:
            workspace.let_go()
        self._turn.give_back()

    def close(self) -> bool:
        """Give up the workspace, and return whether it was this process's.

        Raises `RunError` while a caller has it. A second call does no harm.
        """
        if self._busy is _ELSEWHERE:
            return False
        if not self._turn.take(sys._getframe()):
            raise RunError(self._busy)
        self._workspace = None
        self._turn.give_back()
        return True

    def leave_to_parent(self) -> None:
        """Let nobody in: this process was forked from the one that loaded the program."""
        self._busy, self._turn = _ELSEWHERE, NoTurn()


_NOTHING: frozenset[int] = frozenset()


class _Settled(NamedTuple):
    """Where a plan that was bound finds what it takes: in `feeds`, and `computed` in its places."""

    feeds: Mapping[int, TensorAt]
    computed: frozenset[int]


class Workspace:
    """Memory, and the plans that are bound to it. Nothing in it may be used by two threads.

    `runs` runs what `attach` has prepared.
    """

    def __init__(self, image: Image, host: Host) -> None:
        self._image = image
        self._host = host
        self._before = private_bytes()
        self._memory = Memory(image.program, image.states, image.tuning.provider)
        self.state = StateStore(image, self._memory)
        self.runs = Runs(image, self._memory, self.state, host)
        self._inputs: dict[int, Inputs] = {}
        self._asked = asked_by(image.program)
        self._fitted: dict[frozenset[int], Fitted] = {}
        self._plans: dict[tuple[Chosen, bool, bool, frozenset[int]], Plan] = {}
        self._lasting: set[int] = set()
        self._settled: dict[int, _Settled] = {}
        self._seen: Mapping[int, TensorAt] | None = None
        self._borrowed: Feeds | None = None
        self._defaults: dict[int, TensorAt | Array] = {}
        packs = image.states.packs
        self._parts = {part: flat for flat, parts in packs.items() for part in parts}
        self._objects = tuple(
            index
            for index, symbol in enumerate(image.program.symbols)
            if symbol.kind is pef.SymbolKind.INPUT and not is_bindable(symbol.type)
        )

    def plan(self, chosen: Chosen, link: bool, *, hand: bool = False) -> Plan:
        """Return the steps that run `chosen` now; with `hand`, large results are the caller's."""
        zeros = self.state.zeros(self._asked) if self._asked else _NOTHING
        hand = hand and bool(self._memory.for_caller)
        plan = self._plans.get((chosen, link, hand, zeros))
        if plan is None:
            fitted = self._fit(zeros)
            plan = make_plan(fitted, self._memory, self._host, chosen, link=link, hand=hand)
            self._plans[chosen, link, hand, zeros] = plan
            self._lasting.add(id(plan))
            self.runs.expect_new()
        return plan

    def profiled(self, chosen: Chosen, folder: str) -> tuple[Plan, Fitted]:
        """Return steps that run `chosen` section by section, and what keeps times in `folder`.

        Their sessions are made for that, and are gone with what is returned.
        """
        zeros = self.state.zeros(self._asked) if self._asked else _NOTHING
        fitted = Fitted(self._image, zeros, folder)
        plan = make_plan(fitted, self._memory, self._host, chosen, link=False)
        self.runs.expect_new()
        return plan, fitted

    def _fit(self, zeros: frozenset[int]) -> Fitted:
        fitted = self._fitted.get(zeros)
        if fitted is None:
            fitted = self._fitted[zeros] = Fitted(self._image, zeros)
        return fitted

    def providers(self, sections: Iterable[int]) -> dict[int, str]:
        """Return the providers that run `sections`, each alone, by section."""
        fitted = self._fit(self.state.zeros(self._asked) if self._asked else _NOTHING)
        found = apart(fitted, sections)
        return {unit.sections[0]: fitted.compile(unit, len(found)).provider for unit in found}

    def set_hyperparams(self, given: Mapping[str, float]) -> None:
        """Set argins by name; one that seeds masks, set anew, begins to count forward runs anew.

        Raises `RunError` as `StateStore.set_hyperparams` does.
        """
        if self.state.set_hyperparams(given):
            self._host.clock.forwards = 0

    def attach(self, plan: Plan, inputs: Mapping[str, object]) -> None:
        """Check `inputs` and bind them to the steps of `plan`."""
        if type(inputs) is not dict:  # what the names are is looked at with the values
            require(inputs=(inputs, INPUTS))
        if inputs or not self._is_attached(plan):
            self._attach(plan, inputs)

    def _is_attached(self, plan: Plan) -> bool:
        """Tell whether `plan`, which is given nothing, finds all as in its last run.

        Other plans may have run since; what changes where things are makes other `feeds`.
        """
        memory, settled = self._memory, self._settled.get(id(plan))
        if settled is None or memory.feeds is not self._seen:
            return False
        memory.feeds = self._seen = settled.feeds
        return not settled.computed or (not memory.values and memory.hold(settled.computed))

    def _attach(self, plan: Plan, inputs: Mapping[str, object]) -> None:
        memory = self._memory
        if memory.feeds is not self._seen:
            self._settled.clear()
        self._settled.pop(id(plan), None)
        expected = self._inputs.get(plan.graph) or self._inputs_of(plan.graph)
        feeds = expected.check(inputs)
        feeds.copy_views_of(memory)
        if not plan.produced.isdisjoint(feeds.tensors) or feeds.values:
            self._refuse_computed(plan, feeds)
        if self.state.absent or self.state.torn:
            self._require_states(plan)
        if self._parts and not self._parts.keys().isdisjoint(feeds.tensors):
            self._take_parts(feeds)
        self._borrow(feeds)
        missing = [
            symbol
            for symbol, _ in plan.externals
            if symbol not in feeds.tensors and not self._provide(symbol, feeds)
        ]
        if missing:
            raise expected.missing(missing, self._makers(missing))
        if memory.shared:
            self._place_shared(plan, feeds)
        for symbol, steps in plan.externals:
            for step in steps:
                step.attach(memory, symbol)
        if not inputs:
            self._borrowed = None
            self._settle(plan)

    def _borrow(self, feeds: Feeds) -> None:
        """Let steps find what the caller gave, until `let_go`."""
        self._borrowed = feeds  # first: an interrupt may come between any two lines
        memory = self._memory
        memory.feeds = feeds.tensors
        for symbol in self._objects:  # defaults of an earlier run do not count
            memory.values.pop(symbol, None)
        memory.values.update(feeds.values)

    def _require_states(self, plan: Plan) -> None:
        anew = overwritten(plan.steps, self._image.states) & self.state.torn
        self.state.require(plan.reads - anew)

    def _settle(self, plan: Plan) -> None:
        """Note, if it is so, that all that `plan` takes stays where it is until `feeds` change."""
        memory = self._memory
        computed = frozenset(s for s, _ in plan.externals if s not in memory.feeds)
        elsewhere = self._objects or memory.shared or self.state.absent
        if not (elsewhere or (computed and memory.values)) and id(plan) in self._lasting:
            self._settled[id(plan)] = _Settled(memory.feeds, computed)
            self._seen = memory.feeds

    def let_go(self) -> None:
        """Forget what the caller gave: its arrays are borrowed until a run returns, or fails."""
        if self._borrowed is not None:
            self._memory.feeds = {}
            for symbol in self._borrowed.values:
                self._memory.values.pop(symbol, None)
            self._borrowed = None
        self._memory.handed.clear()

    def _place_shared(self, plan: Plan, feeds: Feeds) -> None:
        """Copy given inputs that share memory there, so that others find them too."""
        memory = self._memory
        for symbol, _ in plan.externals:
            if symbol in memory.shared and symbol in feeds.tensors:
                place = memory.tensor(symbol)
                if feeds.tensors[symbol] is not place:
                    memory.write(symbol, feeds.tensors[symbol])
                    feeds.tensors[symbol] = place
                    self.runs.forget_last()
        memory.feeds = feeds.tensors

    def _take_parts(self, feeds: Feeds) -> None:
        """Copy given parts of packs to where operators over the whole pack read them."""
        for symbol in [symbol for symbol in feeds.tensors if symbol in self._parts]:
            self._memory.take(symbol, feeds.tensors.pop(symbol))
            self.runs.forget_last()

    def finish(self) -> None:
        """Make good what an interrupted call has left, if there was one."""
        if self._memory.unfinished is not None:
            self._memory.finish()
        self.let_go()

    def results(self, plan: Plan, copy: bool) -> dict[str, Array]:
        """Return the results of `plan`, which has run; with `copy` they are the caller's."""
        if copy:
            return self.copies(plan.results)
        return {
            result.name: self._value(result) if result.view is None else result.view
            for result in plan.results
        }

    def copies(self, results: Iterable[Result]) -> dict[str, Array]:
        """Return copies of some of the results of the plan that has run."""
        return {
            result.name: self._value(result) if result.view is None else result.view.copy()
            for result in results
        }

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Return copies of symbols by name, which must hold a value."""
        return self._access.read(names)

    def write(self, given: Mapping[str, object]) -> None:
        """Copy values to symbols by name."""
        self.runs.forget_last()  # what it wrote may be written over now
        if self._access.write(given):
            self._host.clock.forwards = 0

    def input_buffer(self, name: str) -> Array:
        """Return the memory in which an input stays from run to run."""
        return self._access.input_buffer(name)

    def take_from(self, other: Workspace) -> None:
        """Take over the states and the written inputs of another executable of the same program."""
        self.state.take_from(other.state)
        for index, tensor in other._memory.kept.items():
            self._memory.keep(index, tensor)
        for index in other._memory.shared:
            if other._memory.holds(index):
                self._memory.write(index, other._memory.tensor(index))

    @cached_property
    def _access(self) -> Access:
        return Access(self._image, self._memory, self.state)

    def memory_use(self) -> MemoryUse:
        """Return what the executable holds now."""
        now, beside = private_bytes(), None
        if now is not None and self._before is not None:
            beside = max(0, now - self._before - touched_bytes(self._memory.buffers))
        return MemoryUse(self._memory.regions(), beside)

    def _value(self, result: Result) -> Array:
        """Return a result that has no unpacked place in the planned memory."""
        memory = self._memory
        if result.symbol in memory.handed:
            return memory.handed.pop(result.symbol)
        symbol = self._image.program.symbols[result.symbol]
        given = result.symbol in memory.feeds or result.symbol in memory.values
        if symbol.data is not None and not given:
            content = self._content(result.symbol)
            return (content.view() if isinstance(content, TensorAt) else content).copy()
        found = memory.copy(result.symbol)
        # What a run was given is not handed out as its result.
        borrowed = self._borrowed is not None and result.symbol in self._borrowed.values
        own = deepcopy(found) if borrowed else found
        return own  # type: ignore[return-value]  # or a list, None

    def _refuse_computed(self, plan: Plan, feeds: Feeds) -> None:
        """Raise an error if something is given that `plan` is going to compute."""
        computed = [s for s in (*feeds.tensors, *feeds.values) if s in plan.produced]
        if computed:
            raise self._inputs[plan.graph].computed(computed, self._makers(computed))

    def _inputs_of(self, graph: int) -> Inputs:
        found = self._inputs[graph] = Inputs(self._image.program, graph, self._image.states.all)
        return found

    def _provide(self, index: int, feeds: Feeds) -> bool:
        """Find an input that is no given tensor.

        It is another value, one that was written, a default, or an earlier result.
        """
        if index in feeds.values:
            return True
        if (kept := self._memory.kept.get(index)) is not None:
            feeds.tensors[index] = kept
            return True
        symbol = self._image.program.symbols[index]
        if index in self._memory.shared and self._memory.holds(index):
            feeds.tensors[index] = self._memory.tensor(index)
            return True
        if symbol.kind is not pef.SymbolKind.INPUT:
            return self._memory.holds(index)
        if symbol.data is not None:
            default = self._content(index)
            if isinstance(default, TensorAt):
                feeds.tensors[index] = default
            else:
                self._memory.values[index] = default
        elif dtypes.is_optional(symbol.type):
            self._memory.values[index] = None
        else:
            return False
        return True

    def _content(self, index: int) -> TensorAt | Array:
        """Return what the file holds for symbol `index`: a tensor over the map, or strings."""
        found = self._defaults.get(index)
        if found is None:
            found = self._image.content(self._image.program.symbols[index])
            self._defaults[index] = found
        return found

    def _makers(self, symbols: Iterable[int]) -> dict[int, str]:
        """Return what computes each of `symbols`."""
        wanted = set(symbols)
        return {
            symbol: f"section {index} '{section.name}'"
            for index, section in enumerate(self._image.program.sections)
            for symbol in section.outputs
            if symbol in wanted
        }
