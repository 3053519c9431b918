"""ONNX's own training operators (ai.onnx.preview.training) as ordinary operators.

With G' = norm_coefficient X + G, and t the number of updates done before,

    Gradient(x...; xs, y)    the gradients of the value named y with respect to those named xs, at
                             the values that the node is given for them
    Adagrad(R, T, X, G, H)   H' = H + G'^2,  X' = X - R / (1 + t decay_factor) G' / (sqrt H' + eps)
    Adam(R, T, X, G, V, H)   V' = alpha V + (1 - alpha) G',  H' = beta H + (1 - beta) G'^2,
                             r = R sqrt(1 - beta^t) / (1 - alpha^t), R itself for t = 0,
                             X' = (1 - norm_coefficient_post) (X - r V' / (sqrt H' + eps))
    Momentum(R, T, X, G, V)  V' = alpha V + b G', b = 1 for t = 0, else beta,
                             X' = X - R V', or X - R (G' + alpha V') in the mode nesterov
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from sambac.autodiff import differentiate
from sambac.errors import CompileError
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import copy_node, float_attribute, redirect
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.pipelines import LEGALIZE
from sambac.passes.runner import PassContext

from .canonical import OPSET, to_training_opset

PREVIEW_DOMAIN = "ai.onnx.preview.training"


def lower_preview(model: ir.Model, name: str, passes: PassContext) -> None:
    """Replace the preview operators of `model`, in place; `name` is the model's in messages.

    Raises `CompileError` for a Gradient of what the model does not have, or of unknown sizes.
    """
    if not any(node.domain == PREVIEW_DOMAIN for node in model.graph):
        return
    if "" in model.opset_imports:
        to_training_opset(model, name)
    else:
        model.opset_imports[""] = OPSET
    typed = next(at for at, step in enumerate(LEGALIZE) if isinstance(step, InferShapes))
    passes.run(model, LEGALIZE[: typed + 1], legal_from=len(LEGALIZE))
    for node in tuple(model.graph):
        if node.domain == PREVIEW_DOMAIN:
            editor = Editor(model, f"{node.name}/", passes.decisions)
            for old, new in zip(node.outputs, _LOWERINGS[node.op_type](editor, node), strict=True):
                redirect(old, new)
            editor.remove(node)
    model.opset_imports.pop(PREVIEW_DOMAIN, None)


def _gradient(b: Editor, node: ir.Node) -> list[ir.Value]:
    names = [*node.attributes["xs"].as_strings()]
    wanted = len(names)
    names += [*node.attributes["zs"].as_strings()] if "zs" in node.attributes else []
    values = _named_values(b.model.graph)
    target = node.attributes["y"].as_string()
    unknown = [name for name in (*names, target) if name not in values]
    if unknown:
        raise CompileError(f"Gradient '{node.name}' refers to '{unknown[0]}', which does not exist")
    given = {
        values[name]: value
        for name, value in zip(names, node.inputs, strict=True)
        if value is not None
    }
    y = _evaluated_at(b, values[target], given)
    assert y.dtype is not None
    seed = b.constant(np.ones(shape_of(y), y.dtype.numpy()), "ones")
    sources = [given[values[name]] for name in names[:wanted]]
    found = differentiate(b.model, {y: seed}, list(dict.fromkeys(sources)), b.decisions)
    # The rules made an editor of their own: names given from here on must not meet theirs.
    after = Editor(b.model, b.scope)
    return [
        after.op("Identity", found[source]) if source in found else after.zeros(source)
        for source in sources
    ]


def _named_values(graph: ir.Graph) -> dict[str, ir.Value]:
    values = {str(value.name): value for value in graph.inputs}
    values.update(graph.initializers.items())
    values.update((str(value.name), value) for node in graph for value in node.outputs)
    return values


def _evaluated_at(b: Editor, y: ir.Value, given: Mapping[ir.Value, ir.Value]) -> ir.Value:
    """Return `y` with the keys of `given` replaced by its values, computed again where needed."""
    if all(value is other for value, other in given.items()):
        return y
    copies = dict(given)
    pending = [y]
    while pending:
        value = pending[-1]
        maker = value.producer()
        if value in copies or maker is None:
            copies.setdefault(value, value)
            pending.pop()
            continue
        missing = [v for v in maker.inputs if v is not None and v not in copies]
        if missing:
            pending += missing
            continue
        b.put(copy_node(maker, copies, "", partial(_fresh_name, b)))
    return copies[y]


def _fresh_name(b: Editor, value: ir.Value) -> str:
    return str(b.fresh(str(value.name), value.dtype, shape_of(value)).name)


class _Update:
    """The inputs of an optimizer node: rate, count, and so many tensors of each kind."""

    def __init__(self, b: Editor, node: ir.Node, kinds: int) -> None:
        self.b = b
        self.rate, self.count = (value for value in node.inputs[:2] if value is not None)
        tensors = [value for value in node.inputs[2:] if value is not None]
        size = len(tensors) // kinds
        self.rows = list(
            zip(*(tensors[k * size : (k + 1) * size] for k in range(kinds)), strict=True)
        )
        self._decay = float_attribute(node, "norm_coefficient", 0.0)

    def times(self, value: ir.Value, factor: float | ir.Value) -> ir.Value:
        """Return value * factor."""
        return self.b.op("Mul", value, factor)

    def plus(self, one: ir.Value, other: ir.Value | float) -> ir.Value:
        """Return one + other."""
        return self.b.op("Add", one, other)

    def minus(self, one: ir.Value, other: ir.Value) -> ir.Value:
        """Return one - other."""
        return self.b.op("Sub", one, other)

    def steps(self) -> ir.Value:
        """Return the count in the type of the rate."""
        assert self.rate.dtype is not None
        return self.b.op("Cast", self.count, to=int(self.rate.dtype))

    def first(self, then: ir.Value | float, otherwise: ir.Value | float) -> ir.Value:
        """Return `then` for a count of 0, else `otherwise`."""
        b = self.b
        assert self.rate.dtype is not None
        fresh = b.op("Equal", self.count, 0)
        values = [
            value if isinstance(value, ir.Value) else b.constant(_number(value, self.rate.dtype))
            for value in (then, otherwise)
        ]
        return b.op("Where", fresh, *values)

    def regular(self, x: ir.Value, gradient: ir.Value) -> ir.Value:
        """Return norm_coefficient x + gradient."""
        return self.plus(self.times(x, self._decay), gradient)

    def divided(self, one: ir.Value, square: ir.Value, eps: float) -> ir.Value:
        """Return one / (sqrt(square) + eps)."""
        return self.b.op("Div", one, self.plus(self.b.op("Sqrt", square), eps))


def _number(value: float, dtype: ir.DataType) -> np.ndarray:
    return np.asarray(value, dtype.numpy())


def _adagrad(b: Editor, node: ir.Node) -> list[ir.Value]:
    u = _Update(b, node, 3)
    eps = float_attribute(node, "epsilon", 1e-6)
    slower = u.plus(u.times(u.steps(), float_attribute(node, "decay_factor", 0.0)), 1.0)
    rate = b.op("Div", u.rate, slower)
    xs, hs = [], []
    for x, gradient, h in u.rows:
        g = u.regular(x, gradient)
        hs.append(u.plus(h, u.times(g, g)))
        xs.append(u.minus(x, u.divided(u.times(g, rate), hs[-1], eps)))
    return [*xs, *hs]


def _adam(b: Editor, node: ir.Node) -> list[ir.Value]:
    u = _Update(b, node, 4)
    alpha, beta = (float_attribute(node, *item) for item in (("alpha", 0.9), ("beta", 0.999)))
    eps = float_attribute(node, "epsilon", 1e-6)
    keep = 1.0 - float_attribute(node, "norm_coefficient_post", 0.0)
    rate = u.first(u.rate, _corrected(u, alpha, beta))
    xs, vs, hs = [], [], []
    for x, gradient, v, h in u.rows:
        g = u.regular(x, gradient)
        vs.append(u.plus(u.times(v, alpha), u.times(g, 1.0 - alpha)))
        hs.append(u.plus(u.times(h, beta), u.times(u.times(g, g), 1.0 - beta)))
        xs.append(u.times(u.minus(x, u.divided(u.times(vs[-1], rate), hs[-1], eps)), keep))
    return [*xs, *vs, *hs]


def _corrected(u: _Update, alpha: float, beta: float) -> ir.Value:
    """Return R sqrt(1 - beta^t) / (1 - alpha^t)."""
    steps, dtype = u.steps(), u.rate.dtype
    assert dtype is not None
    rest = [
        u.minus(
            u.b.constant(_number(1.0, dtype)),
            u.b.op("Pow", u.b.constant(_number(base, dtype)), steps),
        )
        for base in (alpha, beta)
    ]
    return u.b.op("Div", u.times(u.b.op("Sqrt", rest[1]), u.rate), rest[0])


def _momentum(b: Editor, node: ir.Node) -> list[ir.Value]:
    u = _Update(b, node, 3)
    alpha, beta = (float_attribute(node, name, 0.0) for name in ("alpha", "beta"))
    nesterov = node.attributes["mode"].as_string() == "nesterov"
    share = u.first(1.0, beta)
    xs, vs = [], []
    for x, gradient, v in u.rows:
        g = u.regular(x, gradient)
        vs.append(u.plus(u.times(v, alpha), u.times(g, share)))
        step = u.plus(g, u.times(vs[-1], alpha)) if nesterov else vs[-1]
        xs.append(u.minus(x, u.times(step, u.rate)))
    return [*xs, *vs]


_LOWERINGS: Mapping[str, Callable[[Editor, ir.Node], list[ir.Value]]] = {
    "Adagrad": _adagrad,
    "Adam": _adam,
    "Gradient": _gradient,
    "Momentum": _momentum,
}
