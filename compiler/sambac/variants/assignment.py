"""Which operators work on blocks: the choice with which the least is put into another order.

Operators that gain by blocks have them, those that cannot work on blocks do without, and between
the two there is a choice. A value is reordered once if it is made in one order and anything reads
it in the other, which costs as much as it has elements. The cheapest choice is a minimum cut: what
works on blocks is on the side of the source. For each value, made by m and read by r, s, ..., two
nodes a and b stand for its two orders:

    m -> a, at the cost;  a -> r, s, ... without a limit        made in blocks, read in order
    r, s, ... -> b without a limit;  b -> m, at the cost        made in order, read in blocks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

_BLOCKS, _ORDER = "in blocks", "in order"
_ELEMENT = 4  # capacity for each element
ALWAYS = math.inf
LIKELY = 1 / _ELEMENT  # decides between choices that cost the same
RARELY = -LIKELY


@dataclass(frozen=True)
class Choice:
    """An operator: what it makes, reads in order, and reads in blocks when it works on blocks.

    What it reads in blocks, if it works on them, it reads in order otherwise. `gain` is how much
    faster it is then, in elements whose reordering takes as long; None if it cannot work on blocks.
    """

    makes: Sequence[str]
    ordered: Sequence[str]
    images: Sequence[str] = ()
    gain: float | None = None


@dataclass
class _Value:
    """Nodes of the network: who makes a value, and who reads it."""

    maker: str = _ORDER
    readers: set[str] = field(default_factory=set)


def on_blocks(
    choices: Sequence[Choice], results: Sequence[str], size: Callable[[str], int]
) -> list[bool]:
    """Tell for each operator whether it should work on blocks.

    `results` are read in order; `size` is asked for the elements of what may be in blocks.
    """
    sides = [_side(index, choice) for index, choice in enumerate(choices)]
    values = _values(choices, sides, results)
    network: nx.DiGraph[str] = nx.DiGraph()
    network.add_nodes_from((_BLOCKS, _ORDER))
    for choice, side in zip(choices, sides, strict=True):
        if choice.gain is None or choice.gain == ALWAYS:
            continue
        ends = (_BLOCKS, side) if choice.gain > 0 else (side, _ORDER)
        network.add_edge(*ends, capacity=round(_ELEMENT * abs(choice.gain)))
    for name, value in values.items():
        if value.readers - {value.maker}:
            _add_value(network, name, value, _ELEMENT * size(name))
    _, (blocks, _) = nx.minimum_cut(network, _BLOCKS, _ORDER)
    return [side in blocks for side in sides]


def _side(index: int, choice: Choice) -> str:
    """Return the node of an operator: an end of the network where there is nothing to choose."""
    if choice.gain is None:
        return _ORDER
    return _BLOCKS if choice.gain == ALWAYS else f"operator {index}"


def _values(
    choices: Sequence[Choice], sides: Sequence[str], results: Sequence[str]
) -> Mapping[str, _Value]:
    """Return by name what some operator may make or read in blocks."""
    values: dict[str, _Value] = {}
    for choice, side in zip(choices, sides, strict=True):
        if side == _ORDER:
            continue
        for name in choice.makes:
            values.setdefault(name, _Value()).maker = side
        for name in choice.images:
            values.setdefault(name, _Value()).readers.add(side)
    for choice, side in zip(choices, sides, strict=True):
        unblocked = choice.ordered if side != _ORDER else (*choice.ordered, *choice.images)
        for name in values.keys() & unblocked:
            values[name].readers.add(_ORDER)
    for name in values.keys() & results:
        values[name].readers.add(_ORDER)
    return values


def _add_value(network: nx.DiGraph[str], name: str, value: _Value, cost: int) -> None:
    """Add both orders of a value to the network."""
    blocked, ordered = f"blocks of {name}", f"order of {name}"
    network.add_edge(value.maker, blocked, capacity=cost)
    network.add_edge(ordered, value.maker, capacity=cost)
    for reader in sorted(value.readers):
        network.add_edge(blocked, reader)  # without a capacity: infinite
        network.add_edge(reader, ordered)
