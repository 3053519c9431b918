"""Graphs of a program: which of them belong to one model, and what names of tensors mean in them.

A model has a graph for inference, or a training step and its evaluation. Their `model` and `role`
say it; how a graph is called is for people:

a model alone     main; or train, eval
several models    encode, decode; a model `fit` that trains has the graphs fit/train, fit/eval

Where several graphs have tensors of one name:

    x           the tensor x; or the x of every graph that has an input, output or weight x
    decode.x    the x of the graph `decode`, even if that is called x alone

What belongs to a tensor is called after it:

    x__grad     the gradient of x
    x__exp_avg  what an optimizer keeps of x; adamw__step, what it keeps of all

Everything that takes names of tensors asks here: options of the compiler, `read` and `write` of
the runtime, the verifier, the Python APIs. A name that somebody has spelled is taken apart nowhere
else, and that of a symbol nowhere at all: `Symbol.parameter` says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from .marks import SymbolIndex
from .program import GraphRole, NamedGraph, Port, Program


def callers(name: str, model: str) -> tuple[str, ...]:
    """Return how a graph is called in front of its inputs and outputs: its name, or its model's.

    >>> callers("fit/train", "fit"), callers("train", "")
    (('fit/train', 'fit'), ('train',))
    """
    return tuple(dict.fromkeys(filter(None, (name, model))))


def graph_of(graphs: Sequence[NamedGraph], model: str, role: GraphRole) -> int | None:
    """Return the position of the graph of `model` in that role, None if there is none."""
    return next(
        (at for at, graph in enumerate(graphs) if (graph.model, graph.role) == (model, role)), None
    )


def trained_models(graphs: Iterable[NamedGraph]) -> tuple[str, ...]:
    """Return the models that train, in the order of their training steps."""
    return tuple(graph.model for graph in graphs if graph.role is GraphRole.TRAIN)


def group_of(model: str, group: str) -> str:
    """Return what a program of several models calls a parameter group of one of them.

    >>> group_of("fit", "adamw"), group_of("", "adamw"), group_of("fit", "")
    ('fit.adamw', 'adamw', 'fit')
    """
    return ".".join(filter(None, (model, group)))


def data_inputs(graph: NamedGraph) -> tuple[Port, ...]:
    """Return the inputs of a graph but the gradients from which its backward pass starts."""
    starts = {port.gradient for port in graph.outputs}
    return tuple(port for port in graph.inputs if port.symbol not in starts)


def inner_symbols(program: Program) -> Iterator[tuple[tuple[str, ...], SymbolIndex]]:
    """Yield what the sections of each graph read and write, and how the graph is called.

    Of a program of one model, whose symbols need no name in front, that is nothing.
    """
    for graph in (graph for graph in program.graphs if graph.model):
        calls = program.schedule[graph.first_call : graph.first_call + graph.calls]
        sections = [program.sections[section] for section in dict.fromkeys(calls)]
        found = [i for s in sections for i in (*s.inputs, *s.weights, *s.outputs)]
        for symbol in dict.fromkeys(found):
            yield callers(graph.name, graph.model), symbol


def chips_of(graph: NamedGraph) -> tuple[range, ...]:
    """Return the calls of each chip of a pipeline: all of one, unless breaks say otherwise."""
    starts = (graph.first_call, *graph.chip_calls, graph.first_call + graph.calls)
    return tuple(range(start, end) for start, end in pairwise(starts))


_BELONGS = "__"


def belonging(owner: str, what: str) -> str:
    """Return how `what` belongs to a tensor, or to an optimizer, is called.

    >>> belonging("layer.weight", "exp_avg")
    'layer.weight__exp_avg'
    """
    return f"{owner}{_BELONGS}{what}"


def gradient_name(name: str) -> str:
    """Return how the gradient of a tensor is called."""
    return belonging(name, "grad")


def taken_apart(spelled: str) -> tuple[str, str]:
    """Return whose the tensor is that somebody calls so, and what; no owner if it says none.

    >>> taken_apart("layer.weight__exp_avg"), taken_apart("layer.weight")
    (('layer.weight', 'exp_avg'), ('', 'layer.weight'))
    """
    owner, _, what = spelled.rpartition(_BELONGS)
    return owner, what


T = TypeVar("T", bound=Hashable)
V = TypeVar("V")


class AmbiguousNameError(ValueError):
    """A name that means different things; the message says which."""


class Namespace(Generic[T]):
    """Names of tensors, which stand for anything hashable (`T`).

    `members` are what graphs have: how a graph is called, the name there, and what it is. `tensors`
    are names that mean one thing whatever the graph, and `inner` those of them that belong to a
    graph, whose name may stand in front. Things for which `one` returns the same are one tensor.
    """

    def __init__(
        self,
        members: Iterable[tuple[Sequence[str], str, T]],
        tensors: Iterable[tuple[str, T]] = (),
        one: Callable[[T], Hashable] = lambda thing: thing,
        *,
        inner: Iterable[tuple[Sequence[str], str, T]] = (),
    ) -> None:
        self._one = one
        # Dictionaries serve as sets that keep their order.
        self._tensors: dict[str, dict[T, None]] = {}
        self._members: dict[str, dict[T, None]] = {}
        self._qualified: dict[str, dict[T, None]] = {}
        self._splits: dict[str, dict[tuple[str, str], dict[T, None]]] = {}
        for name, tensor in tensors:
            self._tensors.setdefault(name, {})[tensor] = None
        for callers, name, tensor in members:
            self._members.setdefault(name, {})[tensor] = None
            self._qualify(callers, name, tensor)
        for callers, name, tensor in inner:
            self._qualify(callers, name, tensor)

    def _qualify(self, callers: Sequence[str], name: str, tensor: T) -> None:
        for caller in callers:
            full = f"{caller}.{name}"
            self._qualified.setdefault(full, {})[tensor] = None
            split = self._splits.setdefault(full, {})
            split.setdefault((caller, name), {})[tensor] = None

    def find(self, name: str) -> tuple[T, ...]:
        """Return what `name` means: nothing if it is unknown, several if several graphs have it.

        Raises `AmbiguousNameError` if it is a name in itself, and another thing's in a graph.
        """
        own, each = self._tensors.get(name, {}), self._members.get(name, {})
        full = self._qualified.get(name, {})
        plain = {**own, **each}
        if full and plain and self._distinct(full) != self._distinct(plain):
            graph, inner = next(iter(self._splits[name]))
            raise AmbiguousNameError(
                f"'{name}' may be the tensor of that name, or '{inner}' of graph '{graph}'; give "
                f"the graph another name"
            )
        self._require_one_split(name)
        if each and not self._distinct(own) <= self._distinct(each):
            raise AmbiguousNameError(
                f"'{name}' may be a tensor inside of a graph, or an input or output; put the name "
                f"of its graph in front of the latter"
            )
        return tuple({**plain, **full})

    def _require_one_split(self, name: str) -> None:
        """Raise `AmbiguousNameError` where `a.b.x` is `b.x` of graph `a`, and `x` of `a.b`."""
        splits = self._splits.get(name, {})
        if len(splits) > 1 and len({frozenset(self._distinct(of)) for of in splits.values()}) > 1:
            (graph, inner), (other, its), *_ = splits
            raise AmbiguousNameError(
                f"'{name}' may be '{inner}' of graph '{graph}', or '{its}' of graph '{other}'; "
                f"give one of the graphs another name"
            )

    def find_owner(self, name: str) -> tuple[T, ...]:
        """Return what `name` means, and whose it is if it means what belongs to something."""
        owner, _ = taken_apart(name)
        return (*self.find(name), *(self.find(owner) if owner else ()))

    def _distinct(self, things: Iterable[T]) -> set[Hashable]:
        return {self._one(thing) for thing in things}

    def chosen(self, wanted: Mapping[str, V]) -> dict[T, str]:
        """Return which name in `wanted` speaks of each thing; that of one graph's goes before.

        Names that mean nothing here are passed over. Raises `AmbiguousNameError` as `find` does.
        """
        found = {item: name for name in wanted for item in self.find(name)}
        found |= {i: name for name in wanted if name in self._qualified for i in self.find(name)}
        return found

    @property
    def qualified(self) -> tuple[str, ...]:
        """The names with that of a graph in front."""
        return tuple(self._qualified)

    @property
    def known(self) -> tuple[str, ...]:
        """Every name that means something: those of graphs' members first, then full names."""
        return tuple(dict.fromkeys((*self._members, *self._qualified, *self._tensors)))


def symbol_names(program: Program) -> Namespace[SymbolIndex]:
    """Return what names of tensors mean in `program`.

    A symbol has its own name, those of public inputs and outputs behind which it stands (after the
    name of their graph or model too: `decode.x`), and its further names (aliases). Where there are
    several models, the name of a graph may stand in front of the symbols that it uses.
    """
    return Namespace(
        (
            (callers(graph.name, graph.model), port.name, port.symbol)
            for graph in program.graphs
            for port in (*graph.inputs, *graph.outputs)
        ),
        (
            *((symbol.name, index) for index, symbol in enumerate(program.symbols)),
            *((alias.name, alias.symbol) for alias in program.aliases),
        ),
        inner=(
            (called, program.symbols[index].name, index) for called, index in inner_symbols(program)
        ),
    )
