"""The dataflow between operators that have a place of their own, numbered for the planners.

Cloned operators are copied into their readers, so they are no nodes here: an operator that reads
one depends on whatever the copy reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from .view import DataflowView


@dataclass(frozen=True)
class Flow:
    """Operators in a topological order that keeps producers close to their readers.

    `reads[i]` are the values that operator `i` takes from outside, through copies of cloned
    operators too, without repetition; `preds[i]` the operators that define them, ascending.
    """

    names: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    preds: tuple[tuple[int, ...], ...]


def flow_of(view: DataflowView) -> Flow:
    """Return the flow of `view`, in depth-first order."""
    reads = reads_through_clones(view)
    producer = view.producer
    before = {
        name: tuple(dict.fromkeys(producer[value] for value in values if value in producer))
        for name, values in reads.items()
    }
    names = _depth_first(before)
    number = {name: index for index, name in enumerate(names)}
    return Flow(
        names=names,
        reads=tuple(reads[name] for name in names),
        preds=tuple(tuple(sorted(number[pred] for pred in before[name])) for name in names),
    )


def reads_through_clones(view: DataflowView) -> dict[str, tuple[str, ...]]:
    """Return, for every operator that is not cloned, the values it needs from outside itself."""
    behind: dict[str, tuple[str, ...]] = {}  # what a value of a cloned operator is made from
    reads: dict[str, tuple[str, ...]] = {}
    for op in view.ops.values():
        needed = tuple(
            dict.fromkeys(base for value in op.inputs for base in behind.get(value, (value,)))
        )
        if op.cloned:
            behind.update((value, needed) for value in op.outputs)
        else:
            reads[op.name] = needed
    return reads


def _depth_first(before: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Order operators so that each directly follows the last thing that it waits for.

    The longest way to an operator comes first: what short branches hold is then needed at once.
    `before` is in topological order.
    """
    depth: dict[str, int] = {}
    for name, preds in before.items():
        depth[name] = 1 + max((depth[pred] for pred in preds), default=0)
    waiting = {
        name: sorted(preds, key=depth.__getitem__)  # taken from the end, longest way first
        for name, preds in before.items()
    }
    order: dict[str, None] = {}
    for target in _sinks(before):
        stack = [target]
        while stack:
            name = stack[-1]
            if waiting[name]:
                pred = waiting[name].pop()
                if pred not in order:
                    stack.append(pred)
            else:
                order[stack.pop()] = None
    return tuple(order)


def _sinks(before: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the operators that no other one waits for, in the model's order."""
    awaited = {pred for preds in before.values() for pred in preds}
    return [name for name in before if name not in awaited]
