"""From a graph with seeds to one with gradients: expand, refuse, backpropagate.

In the walk gradients of outputs become gradients of what is trained: it is the one place where
gradients of a value used several times are summed, or made at once where their rules say how, and
where the gradient of a broadcast input is summed down to the input's shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import prod

import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError, InternalError
from sambac.graph.decisions import Decisions
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import has_subgraphs, reads, static_shape
from sambac.graph.origins import begin_parts, place_of
from sambac.ops import gradient_of, undifferentiable
from sambac.ops.control import THROUGH_CONTROL_FLOW
from sambac.ops.family import InputGradient, Joinable
from sambac.ops.gradients.rules import column_sums, reshape

from .expansion import active_values, expand_bodies, needed_nodes

_MOST_LISTED = 20


def differentiate(
    model: ir.Model,
    seeds: Mapping[ir.Value, ir.Value],
    trained: Sequence[ir.Value],
    decisions: Decisions | None = None,
) -> dict[ir.Value, ir.Value]:
    """Append the gradients of `trained` to the main graph; return them by trained value.

    `seeds` maps each differentiated output to its gradient, a value of the same type and shape.
    A trained value that no seeded output depends on is absent from the result. Operators without
    a rule are replaced by their bodies, so a seeded output may end up as another value of the
    same name. All types and shapes must be known. `decisions` say which formulations gradients
    have, where there are several.

    Raises `CompileError` for operators between them that have no gradient, all of them at once.
    """
    found = obstacles(model, seeds, trained)
    if found:
        current = expand_bodies(model, seeds, trained)
        seeds = {current[target]: seed for target, seed in seeds.items()}
        found = obstacles(model, seeds, trained)
    if found:
        raise CompileError(
            f"no gradient flows through {listed(found, _MOST_LISTED)}; "
            "freeze the parameters before them, or rewrite the model without them"
        )
    return backpropagate(model, seeds, trained, decisions)


def obstacles(
    model: ir.Model, targets: Iterable[ir.Value], trained: Sequence[ir.Value]
) -> list[str]:
    """Return, a phrase each, the nodes between `trained` and `targets` that have no gradient."""
    active = active_values(model.graph, trained)
    return [
        f"{node.op_type} '{node.name}'{place_of(node)} ({_reason(node)})"
        for node in needed_nodes(model.graph, active, targets)
        if gradient_of(node) is None or _opens(node, active)
    ]


def backpropagate(
    model: ir.Model,
    seeds: Mapping[ir.Value, ir.Value],
    trained: Sequence[ir.Value],
    decisions: Decisions | None,
) -> dict[ir.Value, ir.Value]:
    """Append the gradients of `trained` to the main graph; return them by trained value.

    `seeds` maps each differentiated output to its gradient, a value of the same type and shape.
    A trained value that no seeded output depends on is absent from the result. Every node between
    them must have a rule (see `obstacles`), and all shapes must be known.
    """
    active = active_values(model.graph, trained)
    nodes = needed_nodes(model.graph, active, seeds)
    firsts = {x: node for node in reversed(nodes) for x in reads(node) if x in active}
    walk = _BackwardWalk(Editor(model, "grad/", decisions), firsts, dict(seeds))
    for node in reversed(nodes):
        walk.step(node)
    return {value: walk.gradients[value] for value in trained if value in walk.gradients}


class _BackwardWalk:
    """The gradients found so far, by value; `firsts` are the first readers of active values."""

    def __init__(
        self,
        editor: Editor,
        firsts: Mapping[ir.Value, ir.Node],
        gradients: dict[ir.Value, ir.Value],
    ) -> None:
        self._editor = editor
        self._firsts = firsts
        self._waiting: dict[ir.Value, list[Joinable]] = {}
        self.gradients = gradients

    def step(self, node: ir.Node) -> None:
        """Pass the gradients of the outputs of `node` on to its inputs.

        What can be joined waits for the last reader that the walk comes to.
        """
        self._pass_on(node)
        for value in dict.fromkeys(reads(node)):
            if self._firsts.get(value) is node:
                self._join(value)

    def _pass_on(self, node: ir.Node) -> None:
        incoming = [self.gradients.get(value) for value in node.outputs]
        if all(gradient is None for gradient in incoming):
            return
        rule = gradient_of(node)
        if rule is None:
            raise InternalError(f"no gradient rule for {node.op_type} '{node.name}'")
        editor = self._editor
        editor.scope = f"grad/{node.name}/"
        editor.origin = node
        begin_parts(node)
        makers = self._nothing(node) or rule(editor, node, incoming)
        if len(makers) > len(node.inputs):
            raise InternalError(f"the rule of {node.op_type} has {len(makers)} gradients")
        for value, make in zip(node.inputs, makers, strict=False):
            if value is None or make is None or value not in self._firsts:
                continue
            if isinstance(make, Joinable):
                self._waiting.setdefault(value, []).append(make)
            else:
                self._add(value, unbroadcast(editor, make(), value))

    def _join(self, value: ir.Value) -> None:
        """Add the gradients that waited for each other, all of one key at once."""
        by_key: dict[Hashable, list[Joinable]] = {}
        for each in self._waiting.pop(value, ()):
            by_key.setdefault(each.key, []).append(each)
        for joined in by_key.values():
            self._add(value, joined[0].join([each.part() for each in joined]))

    def _nothing(self, node: ir.Node) -> Sequence[InputGradient | None]:
        """Return zeros if all outputs that have gradients are empty, else no gradients.

        The rules may count on results with elements, and divide by sizes.
        """
        if any(0 not in shape_of(y) for y in node.outputs if y in self.gradients):
            return ()
        zeros = self._editor.zeros
        return [None if x is None else partial(zeros, x) for x in node.inputs]

    def _add(self, value: ir.Value, gradient: ir.Value) -> None:
        if gradient.dtype != value.dtype:
            raise InternalError(f"the gradient of '{value.name}' is {gradient.dtype}")
        before = self.gradients.get(value)
        self.gradients[value] = (
            gradient if before is None else self._editor.op("Add", before, gradient)
        )


def unbroadcast(b: Editor, gradient: ir.Value, like: ir.Value) -> ir.Value:
    """Sum `gradient` over the axes along which `like` was broadcast to its shape."""
    have, want = shape_of(gradient), shape_of(like)
    if have == want:
        return gradient
    extra = len(have) - len(want)
    if extra < 0:
        raise InternalError(f"a gradient of shape {have} for '{like.name}' of shape {want}")
    broadcast = [
        axis < extra or (want[axis - extra] == 1 and size != 1) for axis, size in enumerate(have)
    ]
    leading = next((axis for axis, summed in enumerate(broadcast) if not summed), 0)
    others = [axis for axis in range(leading, len(have)) if broadcast[axis] and have[axis] != 1]
    if others:
        gradient = b.op("ReduceSum", gradient, others, keepdims=1)
    rows = prod(have[:leading])
    if rows != 1:
        columns = prod(shape_of(gradient)[leading:])
        gradient = column_sums(b, reshape(b, gradient, (rows, columns)))
    return reshape(b, gradient, want)


def _opens(node: ir.Node, active: set[ir.Value]) -> bool:
    """Tell whether `node` is where sizes stop being known on the way of the gradients."""
    entering = [value for value in node.inputs if value in active]
    return _has_open((*node.outputs, *node.inputs)) and not _has_open(entering)


def _has_open(values: Iterable[ir.Value | None]) -> bool:
    # A node may lack an output: that value has no name and no shape.
    return any(value and value.name and static_shape(value) is None for value in values)


_SELECTING = ("Compress", "GatherND", "NonZero")
"""What is made of x[mask], in PyTorch and elsewhere."""


def _reason(node: ir.Node) -> str:
    if gradient_of(node) is not None:
        what = "its result" if _has_open(node.outputs) else "what it reads"
        kept = "; where(mask, x, 0) keeps it" if node.op_type in _SELECTING else ""
        return f"the size of {what} depends on data{kept}"
    if has_subgraphs(node):
        return THROUGH_CONTROL_FLOW
    return undifferentiable(node) or "it has no gradient rule"
