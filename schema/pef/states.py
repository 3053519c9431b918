"""What programs hold from run to run, and which symbols lie inside which.

A *state* is a tensor in the persistent part of device memory that sections bind as an input and
may update in place: a parameter, a buffer, optimizer state, a gradient that accumulates, an argin.
Training programs have them, and programs for inference that were compiled without their weights.
A *pack* is one flat vector over states (or gradients), so that one operator can update them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .program import Program
from .symbols import Duration, SymbolKind

TRAINING = "training"
"""The feature that a training program requires."""
WEIGHT_STATES = "weight_states"
"""The feature of a program for inference whose parameters and buffers are states.

The file does not hold all of them; whoever runs it supplies the others.
"""
RECOMPUTE = "recompute"
"""The feature of a program that computes activations again in BCKWD to keep fewer of them.

Its FWD and BCKWD sections hold equal operators, which must not come into one session: onnxruntime
would merge them and keep the activations after all.
"""
SHARED_REGIONS = "shared_regions"
"""The feature of a program in which inputs and outputs of graphs share memory."""
ARGIN_VARIANTS = "argin_variants"
"""The feature of a program in which some sections run one program or another by what argins are."""
SEVERAL_MODELS = "several_models"
"""The feature of a training program that has graphs of several models; see `graphs`."""
MAIN_GRAPH = "main"
"""What the graph of a program for inference is called where the user does not say."""
TRAIN_GRAPH = "train"
EVAL_GRAPH = "eval"

# What can be a state. A gradient that does not accumulate is computed anew and is none.
STATE_KINDS = frozenset(
    {
        SymbolKind.WEIGHT,
        SymbolKind.BUFFER,
        SymbolKind.OPT_STATE,
        SymbolKind.GRADIENT,
        SymbolKind.ARGIN,
    }
)
# States that start as zeros where the file holds no content; all others are absent then.
ZERO_KINDS = frozenset({SymbolKind.OPT_STATE, SymbolKind.GRADIENT})


def is_training(program: Program) -> bool:
    """Tell whether `program` trains."""
    return TRAINING in program.requires.features


def has_states(program: Program) -> bool:
    """Tell whether `program` holds something from run to run."""
    return is_training(program) or WEIGHT_STATES in program.requires.features


@dataclass(frozen=True, slots=True)
class States:
    """The states of a program, by symbol index, ascending; empty where it has none.

    `own` have a content of their own; `flat` are packs, whose content is that of their members.
    `packs` maps each flat symbol, state or gradient, to the symbols inside it.
    """

    own: tuple[int, ...] = ()
    flat: tuple[int, ...] = ()
    packs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def all(self) -> frozenset[int]:
        """Every symbol that lies in persistent memory and may be updated."""
        return frozenset((*self.own, *self.flat))


def states_of(program: Program) -> States:
    """Return the states of `program`."""
    if not has_states(program):
        return States()
    packs: dict[int, list[int]] = {}
    found = []
    for index, symbol in enumerate(program.symbols):
        if symbol.pack is not None:
            packs.setdefault(symbol.pack, []).append(index)
        if symbol.duration is Duration.STATE:
            found.append(index)
    return States(
        own=tuple(index for index in found if index not in packs),
        flat=tuple(index for index in found if index in packs),
        packs={flat: tuple(members) for flat, members in packs.items()},
    )


def shared_regions(program: Program) -> dict[int, tuple[int, ...]]:
    """Return the inputs and outputs that share a region, by allocation."""
    if SHARED_REGIONS not in program.requires.features:
        return {}
    found: dict[int, list[int]] = {
        number: [] for number, place in enumerate(program.allocations) if place.shared
    }
    for index, symbol in enumerate(program.symbols):
        if symbol.allocation in found:
            found[symbol.allocation].append(index)
    return {number: tuple(tenants) for number, tenants in found.items()}
