"""Refuse operands whose sizes cannot fit, where shape inference lets them pass, in one message.

    Conv, ConvInteger   x [N, C, ...], w [M, C / group, ...], group divides M, bias [M]
    ConvTranspose       x [N, C, ...], w [C, M / group, ...], bias [M]
    Gemm                bias that broadcasts to [M, N]
    PRelu               slope that broadcasts to x

Sizes that are open may fit. Branches are not looked at, as they may never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.nodes import input_at, int_attribute
from sambac.graph.origins import place_of

from .base import Pass

Sizes = Sequence[object]


def _sizes(node: ir.Node, index: int) -> Sizes | None:
    """Return the dimensions of an input of `node`, numbers where they are known."""
    value = input_at(node, index)
    return None if value is None or value.shape is None else tuple(value.shape)


def _differ(one: object, other: object) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one != other


def _convolution(node: ir.Node) -> Iterator[str]:
    x, w, bias = (_sizes(node, index) for index in range(3))
    group = int_attribute(node, "group", 1)
    if x is None or w is None or len(x) < 3 or len(w) != len(x):
        return
    if isinstance(w[1], int) and _differ(x[1], w[1] * group):
        yield (
            f"the input has {x[1]} channels, and the weights {_spell(w)} in {group} "
            f"group{'s' * (group > 1)} are for {w[1] * group}"
        )
    if isinstance(w[0], int) and w[0] % group:
        yield f"the weights {_spell(w)} have {w[0]} channels, which {group} groups do not divide"
    if node.op_type == "Conv" and bias and _differ(bias[0], w[0]):
        yield f"the bias {_spell(bias)} does not fit the {w[0]} channels of the result"


def _transposed(node: ir.Node) -> Iterator[str]:
    x, w, bias = (_sizes(node, index) for index in range(3))
    group = int_attribute(node, "group", 1)
    if x is None or w is None or len(x) < 3 or len(w) != len(x):
        return
    if _differ(x[1], w[0]):
        yield f"the input has {x[1]} channels, and the weights {_spell(w)} are for {w[0]}"
    if isinstance(w[1], int) and bias and _differ(bias[0], w[1] * group):
        yield f"the bias {_spell(bias)} does not fit the {w[1] * group} channels of the result"


def _product(node: ir.Node) -> Iterator[str]:
    a, b, bias = (_sizes(node, index) for index in range(3))
    if a is None or b is None or bias is None or len(a) != 2 or len(b) != 2:
        return
    result = (a[int_attribute(node, "transA")], b[1 - int_attribute(node, "transB")])
    if not _broadcasts(bias, result):
        yield f"the third input {_spell(bias)} does not broadcast to the result {_spell(result)}"


def _slope(node: ir.Node) -> Iterator[str]:
    x, slope = _sizes(node, 0), _sizes(node, 1)
    if x is not None and slope is not None and not _broadcasts(slope, x):
        yield f"the slope {_spell(slope)} does not broadcast to the input {_spell(x)}"


def _broadcasts(sizes: Sizes, wanted: Sizes) -> bool:
    """Tell whether `sizes` may broadcast to `wanted`, which stays what it is."""
    pairs = zip(reversed(sizes), reversed(wanted), strict=False)
    fits = all(size == 1 or not _differ(size, want) for size, want in pairs)
    return fits and len(sizes) <= len(wanted)


def _spell(sizes: Sizes) -> str:
    return f"[{', '.join(map(str, sizes))}]"


_CHECKS: Mapping[str, Callable[[ir.Node], Iterator[str]]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed,
    "Gemm": _product,
    "PRelu": _slope,
}


@dataclass(frozen=True)
class CheckShapes(Pass):
    """Raise `CompileError` listing every operator whose operands do not fit each other."""

    name: ClassVar[str] = "check_shapes"
    operators: ClassVar[frozenset[str] | None] = frozenset(_CHECKS)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Check `model`, which is not changed."""
        wrong = [
            f"  {node.op_type} '{node.name}'{place_of(node)}: {reason}"
            for node in model.graph
            if node.domain == "" and node.op_type in _CHECKS
            for reason in _CHECKS[node.op_type](node)
        ]
        if wrong:
            raise CompileError(
                "\n".join(("sizes do not fit; correct the weights or the inputs:", *wrong))
            )
        return ir.passes.PassResult(model, modified=False)
