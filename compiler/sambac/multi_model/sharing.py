"""Several models for one program: what is asked of each, and which of their weights are one.

Models share a weight where it is one tensor: the same memory under whatever name, or equal content
under one name. Of weights that are states, those that are trained or have no content, equal content
says nothing: they are one where they are one memory, or where the caller gives them one region.

In regions that graphs share, outputs of whole numbers get the type that inputs read there: PyTorch
makes int64 of int32 and a Python number; a graph that reads the region expects int32.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from pef.graphs import AmbiguousNameError, Namespace
from pef.states import EVAL_GRAPH, TRAIN_GRAPH
from pef.wording import listed
from sambac.errors import CompileError
from sambac.frontend import Source
from sambac.graph.constants import equal_tensors, is_absent
from sambac.graph.names import value_names
from sambac.models import GraphSource
from sambac.option import Scope, given_in, options_of
from sambac.options import CompileOptions
from sambac.training.parameters import roles_of

Member = tuple[int, str]
"""A weight, input or output: the number of its model, and its name there."""


@dataclass(frozen=True)
class Loaded:
    """A model before it is lowered, called `name`.

    `owners` says by weight which model's weight it is: the number of the first model that has it,
    and its name there. `regions` has the weights that may be one with weights of other models:
    states of one region are one. `states` are those weights of a model for inference that became
    states by that. `alone` are those that several models train, or that any model gives a place.
    """

    name: str
    source: Source
    options: CompileOptions
    owners: Mapping[str, tuple[int, str]]
    regions: Mapping[str, Hashable]
    states: frozenset[str]
    alone: frozenset[str]


def check_sources(graphs: Sequence[GraphSource], options: CompileOptions) -> None:
    """Raise `CompileError` unless there are graphs, each with a name of its own.

    And for options of one graph that are those of the whole program, but differ from `options`.
    """
    if not graphs:
        raise CompileError("there is no graph to compile; give one or more")
    counts = Counter(graph.name for graph in graphs)
    twice = [f"'{name}'" for name, count in counts.items() if count > 1]
    if twice:
        raise CompileError(f"two graphs are called {listed(twice)}; give each its own name")
    trained = [graph.name for graph in graphs if (graph.options or options).train]
    steps = {f"{name}/{part}": name for name in trained for part in (TRAIN_GRAPH, EVAL_GRAPH)}
    for name in counts.keys() & steps.keys():
        raise CompileError(
            f"a graph is called '{name}', as one of '{steps[name]}', which trains; give it another "
            f"name"
        )
    if "" in counts:
        raise CompileError("a graph has an empty name; give it one")
    problems = [text for graph in graphs for text in _problems(graph, options)]
    if problems:
        raise CompileError(listed(problems))


def with_options(graph: GraphSource, options: CompileOptions) -> GraphSource:
    """Return `graph` with all its options: those of the program come from `options`."""
    if graph.options is None:
        return replace(graph, options=options)
    shared = {name: getattr(options, name) for name in _of_program(options)}
    return replace(graph, options=replace(graph.options, **shared))


def _of_program(options: CompileOptions) -> list[str]:
    return [name for name, each in options_of(options).items() if each.scope is Scope.PROGRAM]


def _problems(graph: GraphSource, options: CompileOptions) -> Iterator[str]:
    own = graph.options or options
    for name in _of_program(options):
        here, there = getattr(own, name), getattr(options, name)
        if here != there and name in given_in(own):
            yield (
                f"graph '{graph.name}' has {name}={here!r}, and the program {name}={there!r}: "
                f"give that to the program alone"
            )


def shared_members(
    graphs: Sequence[GraphSource],
    sources: Sequence[Source],
    weights: Sequence[Weights],
    shared: Mapping[str, str],
) -> dict[Member, str]:
    """Return the regions in `shared` by the weights, inputs and outputs that its names mean.

    Raises `CompileError` for names that mean several things. Other names are those of states, which
    are known later.
    """
    with _told("shared"):
        chosen = _names(graphs, sources, weights).chosen(shared)
    return {member: shared[name] for member, name in chosen.items()}


def _names(
    graphs: Sequence[GraphSource], sources: Sequence[Source], weights: Sequence[Weights]
) -> Namespace[Member]:
    """Return what names of weights, inputs and outputs mean; what is one memory is one tensor."""

    def tensor(member: Member) -> Hashable:
        number, name = member
        _, memory = weights[number].get(name, (None, None))
        return member if memory is None else memory

    members = (
        ((graph.name,), name, (number, name))
        for number, (graph, source) in enumerate(zip(graphs, sources, strict=True))
        for name in (
            *source.model.graph.initializers,
            *source.signature.inputs,
            *source.signature.outputs,
        )
    )
    return Namespace(members, one=tensor)


@contextmanager
def _told(option: str) -> Iterator[None]:
    """Tell of names that mean several things as those of an `option`."""
    try:
        yield
    except AmbiguousNameError as error:
        raise CompileError(f"{option}: {error}") from None


def find_shared(
    graphs: Sequence[GraphSource],
    sources: Sequence[Source],
    options: CompileOptions,
    weights: Sequence[Weights],
    shared: Mapping[Member, str],
) -> tuple[Loaded, ...]:
    """Return the models with what is known of weights that are one; `shared` has regions.

    Raises `CompileError` for names in `options.memory` that mean several things.
    """
    chosen = [graph.options or options for graph in graphs]
    groups = _regions(graphs, sources, weights, shared)
    trained = _trained(groups, sources, chosen)
    by_hand = _placed(_names(graphs, sources, weights), options.memory)
    placed = [
        {name for name in source.model.graph.initializers if (number, name) in by_hand}
        for number, source in enumerate(sources)
    ]
    settled = {
        known[name]
        for known, names in zip(groups, placed, strict=True)
        for name in names & {*known}
    }
    loaded = []
    for number, (graph, source) in enumerate(zip(graphs, sources, strict=True)):
        regions = groups[number]
        asked = {name for name in regions if (number, name) in shared}
        apart = {
            name
            for name, region in regions.items()
            if len(trained.get(region, ())) > 1 or region in settled
        }
        loaded.append(
            Loaded(
                name=graph.name,
                source=source,
                options=chosen[number],
                owners={name: owner for name, (owner, _) in weights[number].items()},
                regions=regions,
                states=frozenset(
                    name for name, region in regions.items() if name in asked or region in trained
                ),
                alone=frozenset(apart | placed[number]),
            )
        )
    return tuple(loaded)


Weights = Mapping[str, tuple[Member, Hashable]]
"""The owner of each weight, and where it lies in the memory of the host, None if unknown."""


def find_weights(sources: Iterable[Source]) -> tuple[Weights, ...]:
    """Return the weights of each source that have content, with what is known of each."""
    return tuple(_weights(sources))


def _weights(sources: Iterable[Source]) -> Iterator[Weights]:
    by_memory: dict[object, tuple[int, str]] = {}
    by_name: dict[str, list[tuple[int, ir.TensorProtocol]]] = {}
    alive = []  # an address means something only while nobody gives the memory back
    for number, source in enumerate(sources):
        found: dict[str, tuple[Member, Hashable]] = {}
        for name, value in source.model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None or is_absent(tensor) or tensor.dtype == ir.DataType.STRING:
                continue
            alive.append(tensor.numpy())
            key, same = _memory(alive[-1]), by_name.setdefault(name, [])
            equal = next((at for at, other in same if equal_tensors(tensor, other)), None)
            owner = by_memory.get(key) if key is not None else None
            if owner is None:
                owner = (number if equal is None else equal, name)
            found[name] = owner, key
            if key is not None:
                by_memory.setdefault(key, owner)
            if equal is None:
                same.append((number, tensor))
        yield found


def _regions(
    graphs: Sequence[GraphSource],
    sources: Sequence[Source],
    weights: Sequence[Weights],
    shared: Mapping[Member, str],
) -> list[dict[str, Hashable]]:
    """Return the regions of weights, a dict for each model: the caller's, or their common memory.

    Weights in one memory are in the caller's region if one of them is.
    """
    users: dict[object, Hashable] = {}
    models: dict[object, set[str]] = {}
    for number, (graph, known) in enumerate(zip(graphs, weights, strict=True)):
        for name, (_, key) in known.items():
            if key is not None:
                models.setdefault(key, set()).add(graph.name)
                if (number, name) in shared:
                    users.setdefault(key, shared[number, name])
    found: list[dict[str, Hashable]] = []
    for number, (source, known) in enumerate(zip(sources, weights, strict=True)):
        regions: dict[str, Hashable] = {}
        taken: set[Hashable] = set()
        for name in source.model.graph.initializers:
            _, key = known.get(name, (None, None))
            asked = (number, name) in shared
            region = shared[number, name] if asked else users.get(key, key)
            if asked or (len(models.get(key, ())) > 1 and region not in taken):
                regions[name] = region
                taken.add(region)
        found.append(regions)
    return found


def _trained(
    regions: Sequence[Mapping[str, Hashable]],
    sources: Iterable[Source],
    options: Iterable[CompileOptions],
) -> dict[Hashable, list[int]]:
    """Return the numbers of the models that train what is in a region, by region."""
    found: dict[Hashable, list[int]] = {}
    for number, (source, own) in enumerate(zip(sources, options, strict=True)):
        if own.train:
            roles = source.roles or roles_of(source.model)
            for name in (*roles.parameters, *roles.buffers):
                if name in regions[number]:
                    found.setdefault(regions[number][name], []).append(number)
    return found


def _placed(names: Namespace[Member], memory: Iterable[str]) -> set[Member]:
    """Return the weights whose place, or that of their state, is chosen by hand."""
    with _told("memory"):
        return {member for name in memory for member in names.find_owner(name)}


def joint_source(loaded: Sequence[Loaded]) -> Source:
    """Return the first source under the names and the hash of all."""
    sources = [each.source for each in loaded]
    digest = hashlib.sha256("".join(source.sha256 for source in sources).encode()).hexdigest()
    names = "+".join(dict.fromkeys(source.name for source in sources))
    return replace(sources[0], name=names, sha256=digest)


def _memory(array: np.ndarray) -> Hashable | None:
    """Return where an array lies and how its elements are arranged, None for an empty one."""
    if not array.size:
        return None
    address = array.__array_interface__["data"][0]
    return address, array.strides, array.dtype.str, array.shape


_WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})


def settle_types(sources: Sequence[Source], regions: Mapping[tuple[int, str], str]) -> None:
    """Convert outputs in regions whose inputs have all one other type of whole numbers, in place.

    `regions` are those of inputs and outputs, by the number of their source and their name.
    """
    types: dict[str, set[ir.DataType | None]] = {}
    for number, source in enumerate(sources):
        inputs = zip(source.signature.inputs, source.model.graph.inputs, strict=False)
        for region, value in _in_region(number, inputs, regions):
            types.setdefault(region, set()).add(value.dtype)
    for number, source in enumerate(sources):
        models = (source.model, source.evaluation)
        for model in (model for model in models if model is not None):
            outputs = [*zip(source.signature.outputs, model.graph.outputs, strict=False)]
            for region, value in _in_region(number, outputs, regions):
                wanted = types.get(region, set())
                if len(wanted) == 1 and {value.dtype, *wanted} == _WHOLE:
                    _convert(model, value, next(iter(wanted)))


def _in_region(
    number: int,
    ports: Iterable[tuple[str, ir.Value]],
    regions: Mapping[tuple[int, str], str],
) -> Iterator[tuple[str, ir.Value]]:
    """Yield the values of inputs, or outputs, that are in regions, with these."""
    for name, value in ports:
        region = regions.get((number, name))
        if region is not None:
            yield region, value


def _convert(model: ir.Model, value: ir.Value, wanted: ir.DataType | None) -> None:
    """Let `model` put out `value` as `wanted`, under its name."""
    assert wanted is not None
    graph, name = model.graph, str(value.name)
    result = ir.val("", wanted, value.shape)
    places = [place for place, output in enumerate(graph.outputs) if output is value]
    value.name = value_names(model)(f"{name}_{value.dtype}".lower())
    result.name = name
    graph.append(ir.node("Cast", [value], {"to": int(wanted)}, outputs=[result]))
    for place in places:
        graph.outputs[place] = result
