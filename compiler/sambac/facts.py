"""What stages tell each other beside the graph: frozen, keyed by names of graph values.

    Roles, State                      what frontends know of initializers, and what becomes of them
    Record, LayerNumbers, ChosenForm  what is said of a compilation in the program's record and log
    StepFacts, Hyperparameter,        what is known of the graph of a training step
    Mask, Pack

In the graph of a step every value is defined once. A tensor that lives in device memory from step
to step is a graph input (its old value) and, where something updates it, a graph output (its new
value); `StepFacts.updates` says which output overwrites which input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from pef.program import SectionType
from pef.symbols import SymbolKind


@dataclass(frozen=True)
class State:
    """A tensor that lives in device memory from run to run: a graph input of the step.

    `kind` is WEIGHT (a parameter), BUFFER, OPT_STATE, GRADIENT (one that accumulates) or ARGIN.
    `content` is its first value. Without one, optimizer state and gradients start as zeros, and
    parameters and buffers are absent: somebody has to load or initialise them before a run. The
    state of an optimizer belongs to one `parameter`, or to all that this `optimizer` updates.
    """

    kind: SymbolKind
    content: ir.TensorProtocol | None = None
    parameter: str | None = None
    optimizer: str | None = None

    def renamed(self, names: Mapping[str, str]) -> State:
        """Return the state after values of its graph were renamed; others keep their names."""
        if self.parameter is None:
            return self
        return replace(self, parameter=names.get(self.parameter, self.parameter))


@dataclass(frozen=True)
class Roles:
    """What the initializers of a model are to training, by name, as its frontend knows them.

    `parameters` and `buffers` are disjoint; every other initializer is a constant. Parameters in
    `frozen` get no gradient. `aliases` maps further names of a shared (tied) tensor to the one in
    the graph. `updates` maps a buffer to the graph output that holds its next value (running
    statistics); these outputs follow the public ones.
    """

    parameters: tuple[str, ...] = ()
    frozen: frozenset[str] = frozenset()
    buffers: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerNumbers:
    """How a layer that can be quantised computes, and how far that is from float32.

    `layer` is the name of its operator, of type `operator`; `precision` says in which numbers it
    computes, and `scale` what one is worth, or how many share a scale. Errors are relative, the
    length of a difference over that of what is exact: of `weights`; of the layer's result `alone`,
    from exact data, and `in_sequence`, behind all other layers, where there were data to measure
    it. `share` is that of the model's arithmetic, `time` that of the time of its operators, each by
    itself on the modelled device.
    """

    layer: str
    operator: str
    precision: str
    scale: str
    weights: float
    share: float
    time: float
    alone: float | None = None
    in_sequence: float | None = None


@dataclass(frozen=True)
class ChosenForm:
    """Which of several formulations `operator` has for operands of these `sizes`.

    `by` says whether a guess of costs chose it or a measurement; `of` are the operators of the
    model that it belongs to.
    """

    operator: str
    sizes: str
    dtype: str
    formulation: str
    by: str
    of: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """What the program's record of its compilation says beside the options.

    `applied` is what was done, in lines; `layers` are those that can be quantised, and in which
    numbers they compute; `choices` are the formulations of operators.
    """

    applied: tuple[str, ...] = ()
    layers: tuple[LayerNumbers, ...] = ()
    choices: tuple[ChosenForm, ...] = ()


@dataclass(frozen=True)
class Hyperparameter:
    """A scalar that is given in each run, whose `symbol` is a graph input; see `pef.Argin`."""

    name: str
    symbol: str
    group: str
    option: str


@dataclass(frozen=True)
class Mask:
    """A graph input that the host makes before a training run: a dropout mask.

    Elements are 0 with probability p and 1 / (1 - p) otherwise, drawn from (seed, step, `site`).
    `rate` and `seed` are the names of the argins with p and the seed.
    """

    site: int
    rate: str
    seed: str


@dataclass(frozen=True)
class Pack:
    """States that lie one after the other in memory, and the one flat value that spans them.

    `members` are names of states (or gradients) with their offsets in bytes; `name` is the graph
    input that spans all of them, a vector of `size` bytes.
    """

    name: str
    size: int
    members: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class StepFacts:
    """What is known of the graph of one training step.

    `stages`: for each graph output, the type of the sections that compute it. An operator belongs
    to the first type, in the order ZEROGRAD, FWD, BCKWD, GRADNORM, OPT, with an output that needs
    it.
    `updates`: graph output -> the symbol it overwrites: a graph input in `states`, or another
    output (a clipped gradient overwrites the gradient).
    `states`: by graph input. `argins`: the hyperparameters (their defaults are what their states
    hold). `masks`: by graph input. `gradients`: trained parameter, or input of the
    model whose gradient is asked for -> the symbol of its gradient. `seeds`: public output that is
    differentiated -> the graph input that holds its gradient.
    `aliases`: as in `Roles`. `reduced`: the gradients, flat vectors over packs of them where there
    are some, that processes which train together sum up before GRADNORM or OPT reads them.
    `terms`: the graph inputs of argins that are worth programs of their own while they are zero,
    and what optimizers call them.
    """

    stages: Mapping[str, SectionType]
    updates: Mapping[str, str]
    states: Mapping[str, State]
    argins: tuple[Hyperparameter, ...]
    masks: Mapping[str, Mask]
    gradients: Mapping[str, str]
    seeds: Mapping[str, str]
    aliases: Mapping[str, str] = field(default_factory=dict)
    packs: tuple[Pack, ...] = ()
    reduced: tuple[str, ...] = ()
    terms: Mapping[str, str] = field(default_factory=dict)


def renamed(facts: StepFacts, names: Mapping[str, str]) -> StepFacts:
    """Return `facts` of the same graph after its values were renamed; others keep their names."""

    def new(name: str) -> str:
        return names.get(name, name)

    return replace(
        facts,
        stages={new(name): stage for name, stage in facts.stages.items()},
        updates={new(value): new(target) for value, target in facts.updates.items()},
        states={new(name): state.renamed(names) for name, state in facts.states.items()},
        argins=tuple(replace(argin, symbol=new(argin.symbol)) for argin in facts.argins),
        masks={
            new(name): replace(mask, rate=new(mask.rate), seed=new(mask.seed))
            for name, mask in facts.masks.items()
        },
        gradients={new(name): new(gradient) for name, gradient in facts.gradients.items()},
        seeds={output: new(seed) for output, seed in facts.seeds.items()},
        aliases={name: new(target) for name, target in facts.aliases.items()},
        packs=tuple(
            replace(
                pack,
                name=new(pack.name),
                members=tuple((new(member), offset) for member, offset in pack.members),
            )
            for pack in facts.packs
        ),
        reduced=tuple(map(new, facts.reduced)),
        terms={new(name): option for name, option in facts.terms.items()},
    )
