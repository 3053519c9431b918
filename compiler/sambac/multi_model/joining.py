"""Models that were lowered become the graphs of one program: names set apart, weights kept once.

    GraphSource("encode", m1)   x -> h   weight w     symbols  x, h, w
    GraphSource("decode", m2)   x -> y   weight w     symbols  decode.x, y, w

What passes derive from shared weights alone is shared if it is equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from pef.graphs import AmbiguousNameError, Namespace, group_of, taken_apart
from pef.program import GraphRole
from pef.states import SEVERAL_MODELS, SHARED_REGIONS, TRAINING, WEIGHT_STATES
from pef.symbols import SymbolKind
from pef.wording import listed
from sambac.errors import CompileError
from sambac.facts import Hyperparameter, Record, State, StepFacts, renamed
from sambac.graph.constants import equal_tensors
from sambac.graph.names import FreshNames
from sambac.graph.nodes import all_graphs, own_values
from sambac.graph.origins import origins
from sambac.planning.plans import LoweredGraphs, NamedModel
from sambac.training.selection import optimizer_names

from .sharing import Loaded

_Tenants = Mapping[tuple[str, str], Hashable]
"""The regions of states, by the name of the model and that of the state."""


def join(
    loaded: Sequence[Loaded], lowered: Sequence[LoweredGraphs], shared: Mapping[str, str]
) -> LoweredGraphs:
    """Return the graphs of `lowered`, a model each, as those of one program, with `shared` regions.

    Their models are changed: no two values of different models have one name, but for weights that
    are shared.
    """
    tenants, ports = _regions(loaded, lowered, shared)
    merger = _Merger(tenants)
    graphs: list[NamedModel] = []
    defaults: dict[str, ir.TensorProtocol] = {}
    steps: dict[str, StepFacts] = {}
    namesakes: dict[str, list[str]] = {}
    for each, one in zip(loaded, lowered, strict=True):
        found = merger.add(each, one)
        for name, new in found.items():
            namesakes.setdefault(name, []).append(new)
        for graph in one.graphs:
            name = each.name if graph.role is GraphRole.INFERENCE else f"{each.name}/{graph.name}"
            graphs.append(_called(graph, name, each.name, found))
            if graph.name in one.steps:
                facts = renamed(one.steps[graph.name], found)
                steps[name] = replace(facts, argins=merger.argins_of(each.name, facts.argins))
        defaults |= {found.get(name, name): value for name, value in one.defaults.items()}
    merger.check_full_names()
    return LoweredGraphs(
        tuple(graphs),
        defaults,
        states=merger.states,
        warnings=_of_each(loaded, [one.warnings for one in lowered]),
        record=Record(
            applied=_of_each(loaded, [one.record.applied for one in lowered]),
            layers=tuple(layer for one in lowered for layer in one.record.layers),
            choices=tuple(choice for one in lowered for choice in one.record.choices),
        ),
        aliases=merger.aliases,
        steps=steps,
        features=_features(lowered, ports),
        shared=ports,
        namesakes=namesakes,
    )


def _of_each(loaded: Sequence[Loaded], said: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return what is said of models, each line once; what not all say bears a model's name."""
    everywhere = [line for line in dict.fromkeys(said[0]) if all(line in lines for lines in said)]
    return (
        *everywhere,
        *(
            f"{model.name}: {line}"
            for model, lines in zip(loaded, said, strict=True)
            for line in lines
            if line not in everywhere
        ),
    )


def _called(graph: NamedModel, name: str, model: str, renames: Mapping[str, str]) -> NamedModel:
    """Return `graph` of `model` under its name among several."""
    inputs, outputs = (
        {public: renames.get(value, value) for public, value in ports.items()}
        for ports in (graph.inputs, graph.outputs)
    )
    return replace(graph, name=name, of=model, inputs=inputs, outputs=outputs)


def _features(lowered: Sequence[LoweredGraphs], ports: Mapping[str, str]) -> tuple[str, ...]:
    """Return what a runtime has to know to run the graphs of `lowered` together."""
    found = {feature for one in lowered for feature in one.features}
    if TRAINING in found:  # which says that there are states, and more
        found = found - {WEIGHT_STATES} | {SEVERAL_MODELS}
    return tuple(sorted(found | {SHARED_REGIONS} if ports else found))


def _regions(
    loaded: Iterable[Loaded], lowered: Iterable[LoweredGraphs], shared: Mapping[str, str]
) -> tuple[_Tenants, dict[str, str]]:
    """Divide the regions into those of states and those of ports, the latter by name.

    A state is named as `graph.state`, or by its name alone, which means that of every graph. That
    of an optimizer may belong to weights that no loss of a graph reaches: there it is nothing.
    """
    tenants: dict[tuple[str, str], Hashable] = {}
    names = Namespace(
        ((each.name,), state, (each.name, state))
        for each, one in zip(loaded, lowered, strict=True)
        for state in one.states
    )
    try:
        chosen = names.chosen(shared)
    except AmbiguousNameError as error:
        raise CompileError(f"shared: {error}") from None
    used = {*chosen.values()}
    for each, one in zip(loaded, lowered, strict=True):
        idle = _idle(each, one)
        used.update(name for name in shared if taken_apart(name)[0] in idle)
        for state in one.states:
            if (each.name, state) in chosen:
                tenants[each.name, state] = shared[chosen[each.name, state]]
            elif state in each.regions:
                tenants[each.name, state] = each.regions[state]
    ports = {name: region for name, region in shared.items() if name not in used}
    both = [f"'{region}'" for region in {*tenants.values()} & {*ports.values()}]
    if both:
        raise CompileError(
            f"shared: {listed(both)} is the region of weights, so no input or output can be in it"
        )
    return tenants, ports


def _idle(model: Loaded, lowered: LoweredGraphs) -> set[str]:
    """Return what has no state of an optimizer in a model that trains, under all its names.

    They are parameters that it does not train, and optimizers that find nothing to count.
    """
    if not lowered.steps:
        return set()
    trained = {name for facts in lowered.steps.values() for name in facts.gradients}
    weights = {name for name, s in lowered.states.items() if s.kind is SymbolKind.WEIGHT}
    counting = {state.optimizer for state in lowered.states.values()}
    idle = (weights - trained) | set(optimizer_names(model.options.optimizers)) - counting
    return {spelled for name in idle for spelled in (name, f"{model.name}.{name}")}


class _Merger:
    """Names taken so far, and the weights and states that later models may share."""

    def __init__(self, tenants: _Tenants) -> None:
        self.aliases: dict[str, str] = {}
        self.states: dict[str, State] = {}
        self._full_names: dict[str, tuple[str, str, str]] = {}
        self._clashes: list[tuple[str, str, str]] = []
        self._tenants = tenants
        self._homes: dict[Hashable, ir.Value] = {}
        self._models = 0
        self._taken: set[str] = set()
        self._nodes: set[str] = set()
        self._argins: set[str] = set()
        self._weights: dict[object, list[tuple[str, ir.TensorProtocol]]] = {}
        self._keys: dict[ir.Value, object] = {}

    def add(self, source: Loaded, lowered: LoweredGraphs) -> dict[str, str]:
        """Rename what clashes in the graphs of a model; return new names of values by the old.

        Graphs of one model have names in common on purpose, and keep that.
        """
        models = [graph.model for graph in lowered.graphs]
        settled = self._settled(source, models, lowered.states)
        constants = [self._shared(source, model) for model in models]
        fresh = FreshNames((*self._taken, *(str(v.name) for m in models for v in _values(m))))
        found = dict(settled)
        for model, shared in zip(models, constants, strict=True):
            for value in _values(model):
                name = str(value.name)
                if name in self._taken and name not in found and name not in shared:
                    found[name] = fresh(f"{source.name}.{name}")
        self._note_clashes(source, {name: found[name] for name in found if name not in settled})
        self._take_states(source.name, lowered, found)
        for model, shared in zip(models, constants, strict=True):
            self._rename_all(source, model, {**found, **shared})
        self._taken.update(str(value.name) for model in models for value in _values(model))
        self._take_constants(models)
        return {name: new for name, new in found.items() if name != new}

    def argins_of(self, model: str, argins: Iterable[Hyperparameter]) -> tuple[Hyperparameter, ...]:
        """Return `argins` of a model, under names that no earlier model has for its own."""
        found = tuple(
            _of_model(model, argin) if argin.name in self._argins else argin for argin in argins
        )
        self._argins.update(argin.name for argin in found)
        return found

    def _note_clashes(self, source: Loaded, renames: Mapping[str, str]) -> None:
        """Note weights of a model alone that could not be called after it, as another tensor is."""
        for name, new in renames.items():
            full = f"{source.name}.{name}"
            if full != new and source.owners.get(name) == (self._models, name):
                self._clashes.append((full, source.name, name))
        self._models += 1

    def check_full_names(self) -> None:
        """Raise `CompileError` for tensors whose name after that of their graph means another one.

        Checkpoints and applications know states by these names, and programs read weights by them.
        """
        clashes = [
            (full, model, name)
            for full, (home, model, name) in self._full_names.items()
            if (full if full in self.states else self.aliases.get(full, home)) != home
        ]
        problems = [
            f"'{full}' would be '{name}' of graph '{model}' and another tensor: call the graph "
            f"otherwise"
            for full, model, name in dict.fromkeys((*clashes, *self._clashes))
        ]
        if problems:
            raise CompileError(listed(problems))

    def _settled(
        self, source: Loaded, models: Iterable[ir.Model], states: Mapping[str, State]
    ) -> dict[str, str]:
        """Return, for states whose region an earlier model has, their names there.

        Other states settle in their regions. Raises `CompileError` for states that differ in type,
        shape or content, and for two of one model in one region.
        """
        values = {str(value.name): value for model in models for value in model.graph.inputs}
        known = dict(self._homes)
        found: dict[str, str] = {}
        problems = []
        for state, described in states.items():
            region = self._tenants.get((source.name, state))
            if region is None or state not in values:
                continue
            home = known.pop(region, None)
            if home is None and region in self._homes:
                problems.append(f"region '{region}' has several weights of graph '{source.name}'")
            elif home is None:
                self._homes[region] = values[state]
            else:
                found[state] = str(home.name)
                problems += _difference(f"{source.name}.{state}", values[state], home)
                problems += self._other_content(f"{source.name}.{state}", described, home)
        if problems:
            raise CompileError(f"shared: {listed(problems)}")
        return found

    def _other_content(self, name: str, state: State, home: ir.Value) -> Iterator[str]:
        known = self.states[str(home.name)].content
        if known is None or state.content is None or equal_tensors(known, state.content):
            return
        yield f"'{name}' and '{home.name}', with which it shares a region, differ in their values"

    def _take_states(self, model: str, lowered: LoweredGraphs, renames: Mapping[str, str]) -> None:
        """Keep the states of a model, under their new names and as `model.name` too."""
        homes = {name: renames.get(name, name) for name in lowered.states}
        for name, home in homes.items():
            known = self.states.get(home)
            if known is None or known.content is None:
                self.states[home] = lowered.states[name].renamed(renames)
        spelled = {**homes, **{name: homes[state] for name, state in lowered.aliases.items()}}
        for name, home in spelled.items():
            self._full_names[f"{model}.{name}"] = home, model, name
            for alias in (name, f"{model}.{name}"):
                if alias != home and alias not in self._taken and alias not in self.states:
                    self.aliases.setdefault(alias, home)

    def _shared(self, source: Loaded, model: ir.Model) -> dict[str, str]:
        """Return, for constants of `model` that an earlier model has too, their names there."""
        shared: dict[str, str] = {}
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            if tensor is None:
                continue
            key = self._keys[value] = self._key(source, value, tensor)
            used = set(shared.values())
            known = self._weights.get(key, [])
            found = next((n for n, t in known if n not in used and equal_tensors(tensor, t)), None)
            if found is not None:
                shared[name] = found
        return shared

    def _key(self, source: Loaded, value: ir.Value, tensor: ir.TensorProtocol) -> object:
        """Return what must be equal for two constants to be one, beside their content."""
        owners = tuple(source.owners.get(name, (-1, name)) for name in origins(value))
        own = owners or str(value.name)  # the compiler's own: equal under one name
        return own, int(tensor.dtype), tuple(tensor.shape.numpy())

    def _rename_all(self, source: Loaded, model: ir.Model, names: Mapping[str, str]) -> None:
        """Give values and nodes of `model` new names; keep old ones of shared constants too."""
        changed = {name: new for name, new in names.items() if name != new}
        self.aliases |= {
            name: changed[name]
            for name in model.graph.initializers
            if name in changed and name in source.owners and name not in self._taken
        }
        _rename(model, changed)
        fresh = FreshNames((*self._nodes, *(str(node.name) for node in model.graph)))
        for node in model.graph:
            if node.name in self._nodes:
                node.name = fresh(f"{source.name}.{node.name}")
        self._nodes.update(str(node.name) for node in model.graph)

    def _take_constants(self, models: Iterable[ir.Model]) -> None:
        """Keep the constants of a model, so that later ones may share them."""
        for value in (value for model in models for value in model.graph.initializers.values()):
            known = self._weights.setdefault(self._keys[value], [])
            if value.const_value is not None and all(name != value.name for name, _ in known):
                known.append((str(value.name), value.const_value))


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the values of a model, those of subgraphs included, that have a name."""
    for graph in all_graphs(model.graph):
        yield from (value for value in own_values(graph) if value.name)


def _rename(model: ir.Model, names: Mapping[str, str]) -> None:
    """Rename values of `model`; two may change places.

    Tensors, which may be the caller's own, keep the names that they bear themselves.
    """
    for graph in all_graphs(model.graph):
        constants = [(v, v.const_value) for v in graph.initializers.values() if v.name in names]
        for value, _ in constants:
            del graph.initializers[str(value.name)]
            value.const_value = None
        for value in (*own_values(graph), *(value for value, _ in constants)):
            value.name = names.get(str(value.name), value.name)
        for value, tensor in constants:
            value.const_value = tensor
            graph.register_initializer(value)


def _difference(name: str, value: ir.Value, home: ir.Value) -> Iterator[str]:
    if _spelled(home) != _spelled(value):
        yield (
            f"'{name}' is {_spelled(value)}, and '{home.name}', with which it shares a region, is "
            f"{_spelled(home)}"
        )


def _spelled(value: ir.Value) -> str:
    """Return the type and shape of a state."""
    shape = value.shape.numpy() if value.shape is not None else ()
    return f"{value.dtype}{list(shape)}"


def _of_model(model: str, argin: Hyperparameter) -> Hyperparameter:
    return replace(argin, name=f"{model}.{argin.name}", group=group_of(model, argin.group))
