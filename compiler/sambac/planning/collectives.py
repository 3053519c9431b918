"""What several chips tell each other when they share the work of every operator.

This is tensor parallelism: a product with a weight whose first operand is the same on all chips
gives each of them a part of the columns. Operators on parts give parts. A product with a weight
whose first operand is in parts adds up, and so do all chips together (an all-reduce), after which
its result is the same everywhere. A normalization needs whole rows: parts are gathered before it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from sambac.arch import Arch
from sambac.ops import is_anchor, is_normalization

from .view import DataflowView, OpFacts, ValueRole


def collectives_of(view: DataflowView, states: Collection[str]) -> dict[str, int]:
    """Return the bytes that chips exchange for operators of `view` that need a collective.

    `states` are the inputs that are weights.
    """
    found: dict[str, int] = {}
    in_parts: set[str] = set()
    for op in view.ops.values():
        parts = not in_parts.isdisjoint(op.inputs)
        if _is_weighed(view, op, states):
            if parts:
                found[op.name] = _nbytes(view, op.outputs[:1])
            parts = not parts
        elif parts and is_normalization(op.domain, op.op_type):
            found[op.name] = _nbytes(view, in_parts.intersection(op.inputs))
            parts = False
        if parts:
            in_parts.update(op.outputs)
    return found


def link_time(arch: Arch, nbytes: Collection[int]) -> float:
    """Return the seconds of collectives over so many bytes each, one after another.

    What is not known counts as no time.
    """
    latency = arch.link_latency.value if arch.link_latency else 0.0
    bandwidth = arch.link_bandwidth.value if arch.link_bandwidth else inf
    return ring_time(nbytes, arch.chips, latency, bandwidth)


def ring_time(nbytes: Collection[int], members: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of reductions over so many bytes each, one after another.

    latency + 2 (n - 1) / n * bytes / bandwidth, for a ring of n (Patarasu and Yuan, 2009).
    """
    share = 2 * (members - 1) / members
    return latency * len(nbytes) + share * sum(nbytes) / bandwidth


def _is_weighed(view: DataflowView, op: OpFacts, states: Collection[str]) -> bool:
    """Tell whether `op` is a product with a weight of two or more dimensions."""
    if not is_anchor(op.domain, op.op_type):
        return False
    bases = [view.values[base] for value in op.inputs for base in view.behind(value)]
    return any(
        (facts.role is ValueRole.WEIGHT or facts.name in states) and len(facts.shape or ()) > 1
        for facts in bases
    )


def _nbytes(view: DataflowView, values: Collection[str]) -> int:
    return sum(view.values[value].modelled_nbytes for value in values)
