"""Several models in one program: names set apart, weights that they share kept once.

    GraphSource("encode", m1)   x -> h   weight w     symbols  x, h, w
    GraphSource("decode", m2)   x -> y   weight w     symbols  decode.x, y, w

Graphs share a weight where it is one tensor: the same memory under whatever name, or equal content
under one name. What passes derive from such weights alone is shared if it is equal. Of weights
without content, which are states, the caller says which are one: those that share a region.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from pef.states import SHARED_REGIONS, WEIGHT_STATES
from pef.wording import listed

from .errors import CompileError
from .facts import State
from .frontend import Inputs, Model, Source
from .graph.absent import is_absent
from .graph.named import NamedModel
from .graph.names import FreshNames, value_names
from .graph.origins import origins
from .graph.traversal import all_graphs, own_values
from .planning.program_plan import LoweredGraphs
from .tensor_bytes import tensor_bytes


@dataclass(frozen=True)
class GraphSource:
    """A model that becomes the graph `name` of a program; `inputs` as in `compile`."""

    name: str
    model: Model
    inputs: Inputs | None = None


@dataclass(frozen=True)
class Loaded:
    """A graph before it is lowered; `owners` says by weight which graph's weight it is.

    An owner is a pair of the number of the first graph that has the weight and its name there.
    """

    name: str
    source: Source
    owners: Mapping[str, tuple[int, str]]


def check_names(graphs: Sequence[GraphSource]) -> None:
    """Raise `CompileError` unless there are graphs, each with a name of its own."""
    if not graphs:
        raise CompileError("there is no graph to compile; give one or more")
    counts = Counter(graph.name for graph in graphs)
    twice = [f"'{name}'" for name, count in counts.items() if count > 1]
    if twice:
        raise CompileError(f"two graphs are called {listed(twice)}; give each its own name")
    if "" in counts:
        raise CompileError("a graph has an empty name; give it one")


def find_shared(names: Iterable[str], sources: Iterable[Source]) -> tuple[Loaded, ...]:
    """Return the graphs with what is known of weights that are one."""
    by_memory: dict[object, tuple[int, str]] = {}
    by_name: dict[str, list[tuple[int, ir.TensorProtocol]]] = {}
    alive = []  # an address means something only while nobody gives the memory back
    loaded = []
    for number, (graph, source) in enumerate(zip(names, sources, strict=True)):
        owners = {}
        for name, value in source.model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None or is_absent(tensor) or tensor.dtype == ir.DataType.STRING:
                continue
            alive.append(tensor.numpy())
            key, same = _memory(alive[-1]), by_name.setdefault(name, [])
            equal = next((at for at, other in same if _equal(tensor, other)), None)
            owner = by_memory.get(key) if key else None
            if owner is None:
                owner = (number if equal is None else equal, name)
            owners[name] = owner
            if key:
                by_memory.setdefault(key, owner)
            if equal is None:
                same.append((number, tensor))
        loaded.append(Loaded(graph, source, owners))
    return tuple(loaded)


def join(
    loaded: Sequence[Loaded], lowered: Sequence[LoweredGraphs], shared: Mapping[str, str]
) -> LoweredGraphs:
    """Return the graphs of `lowered`, one each, as those of one program, with `shared` regions.

    Their models are changed: no two values of different graphs have one name, but for weights that
    are shared.
    """
    tenants, ports = _regions(loaded, lowered, shared)
    merger = _Merger(tenants)
    graphs: list[NamedModel] = []
    defaults: dict[str, ir.TensorProtocol] = {}
    for each, one in zip(loaded, lowered, strict=True):
        (graph,) = one.graphs
        renamed = merger.add(each, graph.model, one)
        graphs.append(
            NamedModel(
                each.name,
                graph.model,
                {public: renamed.get(value, value) for public, value in graph.inputs.items()},
                {public: renamed.get(value, value) for public, value in graph.outputs.items()},
            )
        )
        defaults |= {renamed.get(name, name): value for name, value in one.defaults.items()}
    return LoweredGraphs(
        tuple(graphs),
        defaults,
        states=merger.states,
        warnings=tuple(warning for one in lowered for warning in one.warnings),
        aliases=merger.aliases,
        features=(
            *((SHARED_REGIONS,) if ports else ()),
            *((WEIGHT_STATES,) if merger.states else ()),
        ),
        shared=ports,
    )


def _regions(
    loaded: Iterable[Loaded], lowered: Iterable[LoweredGraphs], shared: Mapping[str, str]
) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Divide `shared` into the regions of states, by graph and state, and those of ports by name.

    A state is named as `graph.state`, or by its name alone, which means that of every graph.
    """
    tenants: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    for each, one in zip(loaded, lowered, strict=True):
        for state in one.states:
            spelled = next((n for n in (f"{each.name}.{state}", state) if n in shared), None)
            if spelled is not None:
                tenants[each.name, state] = shared[spelled]
                used.add(spelled)
    ports = {name: region for name, region in shared.items() if name not in used}
    both = [f"'{region}'" for region in {*tenants.values()} & {*ports.values()}]
    if both:
        raise CompileError(
            f"shared: {listed(both)} is the region of weights, so no input or output can be in it"
        )
    return tenants, ports


def joint_source(loaded: Sequence[Loaded]) -> Source:
    """Return the first source under the names and the hash of all."""
    sources = [each.source for each in loaded]
    digest = hashlib.sha256("".join(source.sha256 for source in sources).encode()).hexdigest()
    names = "+".join(dict.fromkeys(source.name for source in sources))
    return replace(sources[0], name=names, sha256=digest)


class _Merger:
    """Names taken so far, and the weights and states that later graphs may share.

    `tenants` are the regions of states, by the name of the graph and that of the state.
    """

    def __init__(self, tenants: Mapping[tuple[str, str], str]) -> None:
        self.aliases: dict[str, str] = {}
        self.states: dict[str, State] = {}
        self._tenants = tenants
        self._homes: dict[str, ir.Value] = {}
        self._taken: set[str] = set()
        self._nodes: set[str] = set()
        self._weights: dict[object, list[tuple[str, ir.TensorProtocol]]] = {}
        self._keys: dict[ir.Value, object] = {}

    def add(self, graph: Loaded, model: ir.Model, lowered: LoweredGraphs) -> dict[str, str]:
        """Rename what clashes in `model`; return new names of values by the old ones."""
        fresh = value_names(model)
        for name in sorted(self._taken):
            fresh(name)
        shared = {**self._shared(graph, model), **self._settled(graph, model, lowered.states)}
        renamed = {name: found for name, found in shared.items() if name != found}
        for value in _values(model):
            name = str(value.name)
            if name not in shared and name in self._taken:
                renamed[name] = fresh(f"{graph.name}.{name}")
        self.aliases |= {
            old: new
            for old, new in renamed.items()
            if old in shared and old in graph.owners and old not in self._taken
        }
        _rename(model, renamed)
        self._take_states(graph.name, lowered, renamed)
        self._rename_nodes(graph.name, model)
        self._taken.update(str(value.name) for value in _values(model))
        for value in model.graph.initializers.values():
            if value.const_value is not None and value.name not in shared.values():
                known = self._weights.setdefault(self._keys[value], [])
                known.append((str(value.name), value.const_value))
        return renamed

    def _settled(
        self, graph: Loaded, model: ir.Model, states: Mapping[str, State]
    ) -> dict[str, str]:
        """Return, for states whose region an earlier graph has, their names there.

        Other states settle in their regions. Raises `CompileError` for states that differ in type
        or shape, and for two of one graph in one region.
        """
        values = {str(value.name): value for value in model.graph.inputs}
        known = dict(self._homes)
        found: dict[str, str] = {}
        problems = []
        for state in states:
            region = self._tenants.get((graph.name, state))
            home = known.pop(region, None) if region else None
            if region and home is None and region in self._homes:
                problems.append(f"region '{region}' has several weights of graph '{graph.name}'")
            elif home is not None and _spelled(home) != _spelled(values[state]):
                problems.append(
                    f"'{graph.name}.{state}' is {_spelled(values[state])}, what region '{region}' "
                    f"has already is {_spelled(home)}"
                )
            elif home is not None:
                found[state] = str(home.name)
            elif region:
                self._homes[region] = values[state]
        if problems:
            raise CompileError(f"shared: {listed(problems)}")
        return found

    def _take_states(self, graph: str, lowered: LoweredGraphs, renamed: Mapping[str, str]) -> None:
        """Keep the states of a graph, under their new names and as `graph.name` too."""
        homes = {name: renamed.get(name, name) for name in lowered.states}
        for name, home in homes.items():
            known = self.states.get(home)
            if known is None or known.content is None:
                self.states[home] = lowered.states[name]
        spelled = {**homes, **{name: homes[state] for name, state in lowered.aliases.items()}}
        for name, home in spelled.items():
            for alias in (name, f"{graph}.{name}"):
                if alias != home and alias not in self._taken and alias not in self.states:
                    self.aliases.setdefault(alias, home)

    def _shared(self, graph: Loaded, model: ir.Model) -> dict[str, str]:
        """Return, for constants of `model` that an earlier graph has too, their names there."""
        shared: dict[str, str] = {}
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                continue
            key = self._keys[value] = self._key(graph, value, tensor)
            used = set(shared.values())
            known = self._weights.get(key, [])
            found = next((n for n, t in known if n not in used and _equal(tensor, t)), None)
            if found is not None:
                shared[name] = found
        return shared

    def _key(self, graph: Loaded, value: ir.Value, tensor: ir.TensorProtocol) -> object:
        """Return what must be equal for two constants to be one, beside their content."""
        sources = origins(value)
        owners = tuple(graph.owners.get(name, (-1, name)) for name in sources)
        own = owners or str(value.name)  # the compiler's own: equal under one name
        return own, int(tensor.dtype), tuple(tensor.shape.numpy())

    def _rename_nodes(self, prefix: str, model: ir.Model) -> None:
        fresh = FreshNames((*self._nodes, *(str(node.name) for node in model.graph)))
        for node in model.graph:
            if node.name in self._nodes:
                node.name = fresh(f"{prefix}.{node.name}")
        self._nodes.update(str(node.name) for node in model.graph)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the values of a model, those of subgraphs included, that have a name."""
    for graph in all_graphs(model.graph):
        yield from (value for value in own_values(graph) if value.name)


def _rename(model: ir.Model, renamed: Mapping[str, str]) -> None:
    """Rename values of `model`; two may change places.

    Tensors, which may be the caller's own, keep the names that they bear themselves.
    """
    for graph in all_graphs(model.graph):
        constants = [(v, v.const_value) for v in graph.initializers.values() if v.name in renamed]
        for value, _ in constants:
            del graph.initializers[str(value.name)]
            value.const_value = None
        for value in (*own_values(graph), *(value for value, _ in constants)):
            value.name = renamed.get(str(value.name), value.name)
        for value, tensor in constants:
            value.const_value = tensor
            graph.register_initializer(value)


def _memory(array: np.ndarray) -> object:
    """Return where an array lies and how its elements are arranged, None for an empty one."""
    if not array.size:
        return None
    address = array.__array_interface__["data"][0]
    return address, array.strides, array.dtype.str, array.shape


def _spelled(value: ir.Value) -> str:
    """Return the type and shape of a state."""
    shape = value.shape.numpy() if value.shape is not None else ()
    return f"{value.dtype}{list(shape)}"


def _equal(one: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    if one is other:
        return True
    kinds = [(t.dtype, tuple(t.shape.numpy())) for t in (one, other)]
    if kinds[0] != kinds[1]:
        return False
    if one.dtype == ir.DataType.STRING:
        return one.tobytes() == other.tobytes()
    first, second = (np.frombuffer(tensor_bytes(tensor), np.uint8) for tensor in (one, other))
    return bool(np.array_equal(first, second))
