"""Recurrent layers of a training step, in the formulation that suits their sizes.

Between two passes a layer has further outputs, which its gradient rule reads: for each Scan that it
is going to be, what that keeps. An attribute says which formulation that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, prod
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at, redirect

from .formulations import ChoicePoint, Formulation, Sizes, product
from .recurrent import OUTPUTS, STYLE, part, recurrent_rule
from .recurrent_cell import concat
from .recurrent_kept import KEPT, Walked, Weights, walk_forth
from .recurrent_walk import STYLES, LayerWalk, Style, walks
from .rules import dtype_of, operand, reshape, zeros

FIELDS = ("sequence", "hidden", "directions")
_GATES: Mapping[str, int] = MappingProxyType({"GRU": 3, "LSTM": 4})


_CALL = 1200  # for each operator of a step
_CALLS: Mapping[str, int] = MappingProxyType({"GRU": 16, "LSTM": 17})
_CALLS_TOGETHER: Mapping[str, int] = MappingProxyType({"GRU": 26, "LSTM": 23})
_PACKED = 0.1  # for each weight of a step that is put in order for a product
_FAR = 0.22  # the same of weights that no longer stay in a cache
_NEAR = 2**17  # as many weights do
_COLUMNS = 16  # products work on so many columns at once
_TURNED = 0.45  # for each element of a step that is transposed, forth and back
_TURNS: Mapping[str, int] = MappingProxyType({"GRU": 11, "LSTM": 10})
"""How many times the elements of a hidden state these are."""
_BESIDE = 2.5  # for each element of a step's gates that is put beside those of another direction


@dataclass(frozen=True)
class Recurrence:
    """The sizes of a layer that keeps what its gradients read, and the type of its numbers."""

    op_type: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    directions: int
    dtype: ir.DataType

    @property
    def gates(self) -> int:
        """How many rows the weights of a direction have."""
        return _GATES[self.op_type] * self.hidden

    @property
    def sizes(self) -> Sizes:
        """What makes these sizes again, without what is as usual."""
        several = {} if self.directions == 1 else {"directions": (self.directions,)}
        return {
            "sequence": (self.steps, self.batch, self.inputs),
            "hidden": (self.hidden,),
            **several,
        }

    @property
    def operands(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of X, W, R, B, of the states to begin with, and of the gradient of Y."""
        states = [(self.directions, self.batch, self.hidden)] * len(KEPT[self.op_type].states)
        return (
            (self.steps, self.batch, self.inputs),
            (self.directions, self.gates, self.inputs),
            (self.directions, self.gates, self.hidden),
            (self.directions, 2 * self.gates),
            *states,
            (self.steps, self.directions, self.batch, self.hidden),
        )

    @property
    def result(self) -> tuple[int]:
        """The shape of Y and of the gradients of all operands, one behind the other, flat."""
        return (sum(map(prod, self.operands)),)


def recurrence_of(op_type: str, sizes: Sizes, dtype: ir.DataType) -> Recurrence:
    """Return the layer with these sizes; raise `ValueError` where they do not go together."""
    sequence, hidden = sizes.get("sequence", ()), sizes.get("hidden", ())
    directions = sizes.get("directions", (1,))
    if (len(sequence), len(hidden)) != (3, 1) or directions not in ((1,), (2,)):
        raise ValueError("its sizes are not those of a sequence, its hidden state and 1 or 2 ways")
    if 0 in (*sequence, *hidden):
        raise ValueError("a size is 0")
    steps, batch, inputs = sequence
    return Recurrence(op_type, steps, batch, inputs, hidden[0], directions[0], dtype)


def keep(b: Editor, node: ir.Node, formulation: str) -> None:
    """Let a layer give out what a formulation keeps."""
    x, cell = operand(node, 0), KEPT[node.op_type]
    stem = b.add_output(node, 0).name
    steps, batch, _ = shape_of(x)
    hidden = shape_of(operand(node, 2))[2]
    style, first = STYLES[formulation], OUTPUTS[node.op_type]
    node.attributes[STYLE] = ir.AttrString(STYLE, formulation)
    shapes = []
    for walk in walks(node, style):
        rows = len(walk.numbers) * batch
        shape = (steps, hidden, rows) if style.columns else (steps, rows, hidden)
        shapes += [(f"{stem}_{name}", shape) for name in cell.names]
    node.resize_outputs(first + len(shapes))
    for absent in node.outputs[1:first]:
        absent.name = absent.name or ""
    for value, (name, shape) in zip(node.outputs[first:], shapes, strict=True):
        value.name = b.names.value(name)
        value.type = x.type
        value.shape = ir.Shape(shape)


def written(b: Editor, node: ir.Node) -> list[ir.Value]:
    """Write a layer that keeps something step by step; return what stands for its outputs."""
    style = STYLES[node.attributes[STYLE].as_string()]
    y: dict[int, ir.Value] = {}
    last: list[dict[int, ir.Value]] = [{} for _ in KEPT[node.op_type].states]
    kept: list[ir.Value] = []
    for walk in walks(node, style):
        made = _walked(b, node, walk)
        y.update(zip(walk.numbers, made.y, strict=True))
        for known, ends in zip(last, made.last, strict=True):
            known.update(zip(walk.numbers, ends, strict=True))
        kept += made.kept
    states = [_joined(b, list(known.values()), 0) for known in last]
    return [_joined(b, list(y.values()), 1), *states, *kept]


def replace(b: Editor, node: ir.Node) -> str | None:
    """Put the formulation of a layer that keeps something in its place."""
    for old, new in zip(node.outputs, written(b, node), strict=True):
        if old.name and (reason := redirect(old, new)):
            return reason
    b.remove(node)
    return None


def _walked(b: Editor, node: ir.Node, walk: LayerWalk) -> Walked:
    """Run the directions of `walk` step by step."""
    cell, x = KEPT[node.op_type], operand(node, 0)
    shape = (shape_of(x)[1], shape_of(operand(node, 2))[2])
    bias = input_at(node, 3)
    directions = []
    for d in walk.numbers:
        wb = rb = None
        if bias is not None:
            wb, rb = b.ops("Split", part(b, bias, d), outputs=2, axis=0, num_outputs=2)
        w, r = (part(b, operand(node, index), d) for index in (1, 2))
        given = [input_at(node, index) for index in cell.states]
        states = [zeros(b, x.dtype, shape) if s is None else part(b, s, d) for s in given]
        directions.append((Weights(w, r, wb, rb), states))
    return walk_forth(b, walk, cell, x, directions)


def _joined(b: Editor, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return what the directions give, along a new axis."""
    return concat(b, [b.op("Unsqueeze", value, [axis]) for value in parts], axis)


def _trained(name: str, b: Editor, of: Recurrence, *operands: ir.Value) -> ir.Value:
    """Write a layer and all of its gradients, as a training step has them."""
    *inputs, dy = operands
    y, *_ = b.ops(
        of.op_type,
        *inputs[:4],
        None,
        *inputs[4:],
        outputs=OUTPUTS[of.op_type],
        hidden_size=of.hidden,
        direction="bidirectional" if of.directions == 2 else "forward",
        linear_before_reset=1 if of.op_type == "GRU" else None,
    )
    node = y.producer()
    assert node is not None
    keep(b, node, name)
    makers = recurrent_rule(lambda _: ())(b, node, [dy])
    gradients = [make() for make in makers if make is not None]
    end = b.point
    b.go_before(node)
    results = written(b, node)
    b.point = end
    for old, new in zip(node.outputs, results, strict=True):
        old.replace_all_uses_with(new)
    b.remove(node)
    flat = [reshape(b, each, (prod(shape_of(each)),)) for each in (results[0], *gradients)]
    return b.op("Concat", *flat, axis=0)


def _cost(style: Style, of: Recurrence) -> float:
    """Return the cost of all steps, forth and back, but for what all formulations have."""
    weights, sums = of.gates * of.hidden, of.batch * of.gates
    scans = 1 if style.together else of.directions
    near = weights * (of.directions if style.together else 1) <= _NEAR
    calls = _CALL * scans * (_CALLS_TOGETHER if style.together else _CALLS)[of.op_type]
    if style.columns:
        rows = _COLUMNS * ceil(of.batch / _COLUMNS)
        turned = _TURNS[of.op_type] * of.batch * of.hidden
        each = 2 * product(weights * rows) + _TURNED * turned
    else:
        each = 2 * (product(weights * of.batch) + (_PACKED if near else _FAR) * weights)
    beside = _BESIDE * of.directions * sums if style.together else 0
    return of.steps * (of.directions * each + beside + calls)


def _fits(style: Style, of: Recurrence) -> bool:
    """Tell whether a layer can be walked so."""
    return of.directions == 2 or not style.together


FORMS: tuple[Formulation[Recurrence], ...] = tuple(
    Formulation(name, partial(_fits, style), partial(_cost, style), partial(_trained, name))
    for name, style in STYLES.items()
)
"""All of them; the last is always right."""

RECURRENT_LAYERS: Mapping[str, ChoicePoint[Recurrence]] = MappingProxyType({
    op_type: ChoicePoint(
        name=f"{op_type} layer",
        forms=FORMS,
        fields=FIELDS,
        pose=partial(recurrence_of, op_type),
        operands=lambda of: of.operands,
        result=lambda of: of.result,
    )
    for op_type in KEPT
})  # fmt: skip


def sizes_of(node: ir.Node) -> Recurrence:
    """Return the sizes of a layer, all of which are known."""
    x, r = operand(node, 0), operand(node, 2)
    steps, batch, inputs = shape_of(x)
    directions, _, hidden = shape_of(r)
    return Recurrence(node.op_type, steps, batch, inputs, hidden, directions, dtype_of(x))
