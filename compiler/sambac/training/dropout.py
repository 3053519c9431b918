"""Dropout with masks that the host makes: repeatable, and the same forward and backward.

    y, kept = Dropout(x, p, True)  ->  y = Mul(x, mask), kept = Greater(mask, 0)

`mask` is an input of the graph with elements 0 and 1 / (1 - p), in float32. The rate p is an argin,
unless x is a constant: then the mask is all that was wanted (spatial and alpha dropout multiply by
it what they scale and shift themselves), and p stands in other constants of the model too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from pef.symbols import SymbolKind
from sambac.errors import CompileError
from sambac.facts import Hyperparameter, Mask, State
from sambac.graph.editor import Editor, shape_of
from sambac.graph.names import FreshNames
from sambac.graph.nodes import static_shape, supersede
from sambac.graph.origins import module_of
from sambac.passes.rewriting import constant

_SEED = "seed"


@dataclass(frozen=True)
class Masks:
    """The masks of a model by graph input, and the argins that say how to make them."""

    masks: Mapping[str, Mask] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)
    argins: tuple[Hyperparameter, ...] = ()


def take_masks(model: ir.Model) -> Masks:
    """Replace each dropout that drops by a product with a mask, in place.

    Raises `CompileError` for one whose size is not known.
    """
    masks: dict[str, Mask] = {}
    states: dict[str, State] = {}
    argins: list[Hyperparameter] = []
    fresh = FreshNames()
    editor = Editor(model, "dropout/")
    for node in tuple(model.graph):
        rate = _rate(node)
        if rate is None:
            continue
        site = fresh(module_of(node) or str(node.name))
        name, rate_name = f"{site}.mask", f"{site}.p"
        masks[name] = Mask(len(masks), rate_name, _SEED)
        states[rate_name] = argin(rate)
        if constant(node.inputs[0]) is None:
            argins.append(Hyperparameter(rate_name, rate_name, site, "p"))
        _mask(editor, node, name)
    if masks:
        states[_SEED] = argin(0.0)
        argins.append(Hyperparameter(_SEED, _SEED, "", _SEED))
    for name in states:
        editor.input(name, ir.DataType.DOUBLE, ())
    return Masks(masks, states, tuple(argins))


def argin(value: float) -> State:
    """Return a scalar that is given at run time, `value` by default."""
    return State(SymbolKind.ARGIN, ir.Tensor(np.asarray(value, np.float64)))


def _rate(node: ir.Node) -> float | None:
    """Return the rate of a dropout that drops, else None."""
    if node.op_type != "Dropout" or node.domain != "":
        return None
    ratio, training = (
        constant(node.inputs[index]) if index < len(node.inputs) else None for index in (1, 2)
    )
    if training is None or not training.any():
        return None
    return 0.5 if ratio is None else float(ratio.reshape(-1)[0])


def _mask(b: Editor, node: ir.Node, name: str) -> None:
    """Put a product with the mask `name` in the place of `node`."""
    x = node.inputs[0]
    assert x is not None
    if static_shape(x) is None:
        raise CompileError(
            f"the mask of the dropout '{node.name}' is made before a run, and its size depends on "
            "data; select behind the dropout, or where(mask, x, 0) keeps the size"
        )
    b.go_before(node)
    mask = b.input(name, ir.DataType.FLOAT, shape_of(x))
    scaled = mask if x.dtype == ir.DataType.FLOAT else b.op("Cast", mask, to=int(x.dtype or 1))
    results = [b.op("Mul", x, scaled)]
    if len(node.outputs) > 1:
        results.append(b.op("Greater", mask, 0.0))
    for old, new in zip(node.outputs, results, strict=True):
        supersede(old, new)
    b.remove(node)
