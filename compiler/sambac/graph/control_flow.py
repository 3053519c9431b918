"""Control flow as one operator, whose branches and bodies are written like graphs: If and Scan.

then = lambda b: b.op("Exp", x)        # a branch
y = choose(b, condition, then, lambda b: b.op("Neg", x))

def step(b, states, elements):         # one step of a recurrence: c = f * c + u
    (c,), (f, u) = states, elements
    c = b.op("Add", b.op("Mul", f, c), u)
    return [c], [b.op("Identity", c)]

(last,), (every,) = scan(b, step, [start], [forget, update])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from .editor import Editor, shape_of

Branch: TypeAlias = Callable[[Editor], ir.Value]
Values: TypeAlias = Sequence[ir.Value]
Step: TypeAlias = Callable[[Editor, Values, Values], tuple[Values, Values]]


def choose(b: Editor, condition: ir.Value, then: Branch, otherwise: Branch) -> ir.Value:
    """Append an If; return what `then` makes where `condition` [] holds, else `otherwise`.

    Both get an editor that appends to their branch, and return values of one type and shape. They
    have to be results of operators of the branch, which may read values of the main graph.
    """
    branches = []
    for name, branch in (("then", then), ("otherwise", otherwise)):
        graph = ir.Graph(
            [], [], nodes=[], opset_imports=b.model.opset_imports, name=f"{b.scope}{name}"
        )
        graph.outputs.append(branch(b.inside(graph)))
        branches.append(graph)
    made = branches[0].outputs[0]
    result = b.fresh("chosen", made.dtype, shape_of(made))
    graphs = {"then_branch": branches[0], "else_branch": branches[1]}
    b.put(ir.node("If", [condition], graphs, outputs=[result]))
    return result


@dataclass(frozen=True)
class Ways:
    """Which sequences a Scan walks from their end, and which stacks it fills from theirs."""

    sequences: tuple[bool, ...]
    stacks: tuple[bool, ...]


def scan(
    b: Editor, step: Step, states: Values, sequences: Values, *, backwards: bool | Ways = False
) -> tuple[tuple[ir.Value, ...], tuple[ir.Value, ...]]:
    """Append a Scan over the first axis; return the last states, and what each step gave, stacked.

    `sequences` share the size of their first axis, which is walked from its end if `backwards`;
    what is stacked then lies in the order of the sequences all the same; `Ways` say it for each.
    `step` gets the states before and the slices of the sequences, and returns the states after, of
    the same types and shapes, and what to stack; all of these are results of operators of the step,
    each another one. It may read values of the main graph.
    """
    length = shape_of(sequences[0])[0]
    body = ir.Graph([], [], nodes=[], opset_imports=b.model.opset_imports, name=f"{b.scope}step")
    inner = b.inside(body)
    before = [inner.fresh("state", value.dtype, shape_of(value)) for value in states]
    slices = [inner.fresh("slice", value.dtype, shape_of(value)[1:]) for value in sequences]
    body.inputs.extend((*before, *slices))
    after, given = step(inner, before, slices)
    body.outputs.extend((*after, *given))
    if not isinstance(backwards, Ways):
        backwards = Ways((backwards,) * len(sequences), (backwards,) * len(given))
    ends = {"scan_output_directions": [int(back) for back in backwards.stacks]} if given else {}
    results = [b.fresh("last", value.dtype, shape_of(value)) for value in after]
    results += [b.fresh("stack", value.dtype, (length, *shape_of(value))) for value in given]
    b.put(
        ir.node(
            "Scan",
            [*states, *sequences],
            {
                "body": body,
                "num_scan_inputs": len(sequences),
                "scan_input_directions": [int(back) for back in backwards.sequences],
                **ends,
            },
            outputs=results,
        )
    )
    return tuple(results[: len(after)]), tuple(results[len(after) :])
