"""What planners see of a model: operators, values and sizes, and networkx graphs of them.

`view_of` (in `sambac.planning.from_model`) builds the view from an onnx_ir model. Planners and
their checkers see only this, so they can be tested on graphs that no model ever had.

In each of the graphs an edge leads from what makes values to what reads them, and has a `Crossing`
as its attribute `crossing`. Fusion contracts operators to groups, partitioning contracts groups to
sections; both are the graph of operators with `contracted` nodes. All are frozen. Nodes and edges
stay in the order in which they were added, which no hash decides: equal models get equal plans.

The graph of symbols is one more: which moments of the schedule touch what lies in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

import networkx as nx

from pef import dtypes
from pef.program import SectionType
from pef.symbols import Shape

_HALVES = frozenset(dtypes.BY_NAME[name].number for name in ("bfloat16", "float16"))


class ValueRole(Enum):
    """Where a value comes from."""

    INPUT = "input"
    WEIGHT = "weight"
    ACTIVATION = "activation"


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """A value of the graph. `nbytes` is None when its size is known only at run time.

    `dtype` is the ONNX element type, 0 for what is no tensor; `type` spells the type as
    onnxruntime does, for instance `tensor(float)` or `seq(tensor(int64))`. `declared` is the
    element type that the model has it in, where kernels of the host give more bits; else 0.
    """

    name: str
    role: ValueRole
    dtype: int
    shape: Shape
    type: str
    nbytes: int | None
    declared: int = 0

    @property
    def device_nbytes(self) -> int | None:
        """The bytes on a device, which needs no more bits than the model; None if open."""
        if not self.declared or self.nbytes is None:
            return self.nbytes
        return dtypes.static_nbytes(self.declared, self.shape)

    @property
    def modelled_nbytes(self) -> int:
        """The bytes that estimates count: with 1 for every open dimension, 0 for no tensor."""
        if self.nbytes is not None or self.shape is None:
            return self.device_nbytes or 0
        sizes = [size if isinstance(size, int) else 1 for size in self.shape]
        return dtypes.static_nbytes(self.declared or self.dtype, sizes) or 0


@dataclass(frozen=True, slots=True)
class OpFacts:
    """An operator (a node) of the graph.

    `inputs` are the values it reads in first-use order without repetition, what its subgraphs
    capture included; `outputs` the values it defines. Small constants are part of the operator
    and do not appear. `cloned` marks constants and shape-only operators: they are in no section
    of their own but copied into every section that reads them.
    `flops` are per execution, with 1 for every open dimension.
    `module` is the path of the module that the operator comes from, or an empty string.
    `part_of` names the operator whose gradient, or other work, this is a part of, or is empty.
    `holds` are those of its values of which every part is on chip at once while it runs, the
    smallest of those that are `keepable`.
    """

    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int = 0
    cloned: bool = False
    section_type: SectionType = SectionType.FWD
    module: str = ""
    part_of: str = ""
    holds: tuple[str, ...] = ()
    keepable: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataflowView:
    """A model as planners see it: operators in topological order, values, and the signature.

    `inputs` and `outputs` are value names in the model's order; an output may be an input or a
    weight, and may appear twice. Values with the role WEIGHT have content in the model.
    """

    ops: dict[str, OpFacts]
    values: dict[str, ValueFacts]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def producer(self) -> dict[str, str]:
        """The operator that defines each value (inputs and weights have none)."""
        return {value: op.name for op in self.ops.values() for value in op.outputs}

    @cached_property
    def consumers(self) -> dict[str, list[str]]:
        """The operators that read each value, in topological order."""
        readers: dict[str, list[str]] = {}
        for op in self.ops.values():
            for value in op.inputs:
                readers.setdefault(value, []).append(op.name)
        return readers

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of each value on a device, 0 where only a run can tell."""
        return {name: facts.device_nbytes or 0 for name, facts in self.values.items()}

    @cached_property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The values that each operator which is not cloned takes from outside itself.

        Instead of the value of a clone, those that its copy reads; in first-use order.
        """
        return {
            name: tuple(dict.fromkeys(chain(*map(self.behind, op.inputs))))
            for name, op in self.ops.items()
            if not op.cloned
        }

    @cached_property
    def held(self) -> frozenset[str]:
        """The values that some operator keeps on chip as a whole; what clones copy counts."""
        own = (op for op in self.ops.values() if op.holds and not op.cloned)
        return frozenset(base for op in own for name in op.holds for base in self.behind(name))

    @cached_property
    def rounds(self) -> dict[str, str]:
        """The casts that only narrow what another operator makes, each with that operator.

        Kernels of the host have no narrow results; a device rounds as it writes, and writes 16-bit
        numbers in more bits where somebody outside is to have them so.
        """
        return {
            cast: self.producer[source]
            for cast, source in self._casts()
            if source in self.producer
            and (
                self._grows(cast) < 0
                or (self._grows(cast) > 0 and self.values[source].dtype in _HALVES)
            )
        }

    @cached_property
    def loads(self) -> dict[str, str]:
        """The casts that only narrow float32 numbers from memory, each with who reads it first.

        Kernels of the host want what they read in one type; a device rounds as it reads.
        """
        return {
            cast: next(iter(self.placed.succ[cast]))
            for cast, source in self._casts()
            if source not in self.producer
            and self.values[source].dtype == dtypes.FLOAT
            and self._grows(cast) < 0
            and self.placed.succ[cast]
        }

    def _casts(self) -> Iterator[tuple[str, str]]:
        """Yield the casts that are no clones, each with what it reads."""
        for name, values in self.reads.items():
            op = self.ops[name]
            if (op.op_type, op.domain, len(values)) == ("Cast", "", 1):
                yield name, values[0]

    def _grows(self, cast: str) -> int:
        """Return how many bytes a cast makes more than it reads; 0 where one size is open."""
        made, read = self.ops[cast].outputs[0], self.reads[cast][0]
        after, before = (self.values[name].nbytes or 0 for name in (made, read))
        return after - before if after and before else 0

    def buffered(self, ops: Iterable[str]) -> set[str]:
        """Return what `ops` read, but for what is only rounded by whoever makes or reads it."""
        members = set(ops)
        readers = (op for op in members if self.rounds.get(op) not in members)
        loaded = {self.ops[op].outputs[0] for op in members if op in self.loads}
        return {value for op in readers for value in self.reads[op]} - loaded

    def behind(self, value: str) -> tuple[str, ...]:
        """Return what a copy of a clone that makes `value` reads; else `value` itself."""
        return self._bases.get(value, (value,))

    def part(
        self, ops: dict[str, OpFacts], leaves: Callable[[str], bool], read: Iterable[str] = ()
    ) -> DataflowView:
        """Return the view that has these `ops` of it alone.

        What others make is an input there, and so is what the part is said to `read` beside. What
        `leaves` it, or the whole, is an output.
        """
        made = {value for op in ops.values() for value in op.outputs}
        touched = chain(read, *((*op.inputs, *op.outputs) for op in ops.values()))
        values = {
            name: _seen_from_part(self.values[name], name in made)
            for name in dict.fromkeys(touched)
        }
        returned = set(self.outputs)
        outputs = tuple(
            value
            for op in ops.values()
            if not op.cloned
            for value in op.outputs
            if value in returned or leaves(value)
        )
        inputs = tuple(name for name, facts in values.items() if facts.role is ValueRole.INPUT)
        return DataflowView(ops=ops, values=values, inputs=inputs, outputs=outputs)

    @cached_property
    def _bases(self) -> dict[str, tuple[str, ...]]:
        bases: dict[str, tuple[str, ...]] = {}
        for op in self.ops.values():
            if op.cloned:
                read = (base for value in op.inputs for base in bases.get(value, (value,)))
                bases.update(dict.fromkeys(op.outputs, tuple(dict.fromkeys(read))))
        return bases

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """All operators, clones too, with what flows between them (see `dataflow`)."""
        reads = {name: op.inputs for name, op in self.ops.items()}
        return dataflow(reads, self.producer, self.sizes)

    @cached_property
    def placed(self) -> nx.DiGraph[str]:
        """The operators that have a place of their own; copies of clones are in their readers."""
        return dataflow(self.reads, self.producer, self.sizes)

    @cached_property
    def copies(self) -> nx.DiGraph[str]:
        """All operators, with an edge from each to the clones that it reads from."""
        copies: nx.DiGraph[str] = nx.DiGraph()
        copies.add_nodes_from(self.ops)
        copies.add_edges_from(
            (reader, maker) for maker, reader in self.graph.edges if self.ops[maker].cloned
        )
        nx.freeze(copies)
        return copies

    def with_clones(self, ops: Iterable[str]) -> frozenset[str]:
        """Return `ops` and every clone that they read, directly or through clones."""
        return frozenset(chain(*nx.bfs_layers(self.copies, list(ops))))


Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Crossing:
    """What flows along an edge: values, and the bytes of all of them.

    A size known only at run time counts as 0.
    """

    values: tuple[str, ...]
    nbytes: int


def dataflow(
    reads: Mapping[Node, Iterable[str]], maker: Mapping[str, Node], sizes: Mapping[str, int]
) -> nx.DiGraph[Node]:
    """Return a graph of the keys of `reads`, each with an edge from every `maker` of what it reads.

    Values without a maker, inputs and weights, are on no edge.
    """
    graph: nx.DiGraph[Node] = nx.DiGraph()
    graph.add_nodes_from(reads)
    for reader, values in reads.items():
        taken: dict[Node, list[str]] = {}
        for value in values:
            if value in maker:
                taken.setdefault(maker[value], []).append(value)
        for source, found in taken.items():
            graph.add_edge(source, reader, crossing=_crossing(found, sizes))
    nx.freeze(graph)
    return graph


def _seen_from_part(facts: ValueFacts, made_here: bool) -> ValueFacts:
    if facts.role is ValueRole.ACTIVATION and not made_here:
        return replace(facts, role=ValueRole.INPUT)
    return facts


def contracted(
    graph: nx.DiGraph[Node], parts: Sequence[Iterable[Node]], sizes: Mapping[str, int]
) -> nx.DiGraph[int]:
    """Return the graph of `parts`, which are numbered; each node of `graph` is in one of them.

    What flows within a part is on no edge.
    """
    home = {node: number for number, part in enumerate(parts) for node in part}
    taken: dict[tuple[int, int], dict[str, None]] = {}
    for source, reader, crossing in crossings(graph):
        edge = (home[source], home[reader])
        if edge[0] != edge[1]:
            taken.setdefault(edge, {}).update(dict.fromkeys(crossing.values))
    result: nx.DiGraph[int] = nx.DiGraph()
    result.add_nodes_from(range(len(parts)))
    for (first, second), values in taken.items():
        result.add_edge(first, second, crossing=_crossing(values, sizes))
    nx.freeze(result)
    return result


def crossings(graph: nx.DiGraph[Node]) -> Iterator[tuple[Node, Node, Crossing]]:
    """Yield the edges of a graph."""
    yield from graph.edges(data="crossing")


def given(graph: nx.DiGraph[Node], node: Node) -> Iterator[tuple[Node, Crossing]]:
    """Yield what each other node gives to `node`."""
    for source, edge in graph.pred[node].items():
        yield source, edge["crossing"]


def first_reaching(graph: nx.DiGraph[Node], starts: Iterable[Iterable[Node]]) -> dict[Node, int]:
    """Return the number of the first of `starts` from which each node can be reached, if any."""
    left: nx.DiGraph[Node] = nx.DiGraph(graph.edges)
    left.add_nodes_from(graph)
    found: dict[Node, int] = {}
    for number, nodes in enumerate(starts):
        reached = list(chain(*nx.bfs_layers(left, [node for node in nodes if node in left])))
        found.update(dict.fromkeys(reached, number))
        left.remove_nodes_from(reached)  # what they lead to is found already
    return found


def _crossing(values: Iterable[str], sizes: Mapping[str, int]) -> Crossing:
    found = tuple(values)
    return Crossing(found, sum(sizes[value] for value in found))


def depth_first(graph: nx.DiGraph[str]) -> list[str]:
    """Order operators so that each directly follows the last thing that it waits for.

    The longest way to an operator comes first: what short branches hold is then needed at once.
    """
    generations = enumerate(nx.topological_generations(graph))
    depth = {name: number for number, names in generations for name in names}
    waits: nx.DiGraph[str] = nx.DiGraph()
    # The search begins at what nothing waits for, in the order of the graph.
    waits.add_nodes_from(name for name in graph if not graph.out_degree(name))
    waits.add_edges_from((name, before) for name in graph for before in graph.pred[name])
    return list(
        nx.dfs_postorder_nodes(
            waits, sort_neighbors=lambda names: sorted(names, key=depth.__getitem__)[::-1]
        )
    )


class Moment(NamedTuple):
    """A position of the schedule: of a call, or of the caller, who gives before and takes after."""

    position: int
    is_call: bool


SymbolGraph: TypeAlias = "nx.DiGraph[str | Moment]"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Positions in the schedule, inclusive: -1 is before the first call, its length after the last.

    `accesses` counts the calls that write or read the value, the caller's own included.
    """

    first: int
    last: int
    accesses: int
