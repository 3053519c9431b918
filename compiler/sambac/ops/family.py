"""What a family of operators is, and the few measures that its rules are written in.

A flop rule counts the arithmetic operations of one execution of a node: a multiply and an add are
two, and what a chip evaluates as a polynomial (exponentials, logarithms, roots, trigonometry)
counts as `POLYNOMIAL`. Open dimensions count as 1; a rule returns 0 where not even the rank of
what it needs is known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, modelled_shape

FlopRule = Callable[[ir.Node], int]

# Makes the gradient of one input; called only if somebody needs it.
InputGradient = Callable[[], ir.Value]


@dataclass(frozen=True)
class Joinable:
    """An `InputGradient` that may be made together with others of the same value and `key`.

    `part` makes what is this one's alone, and `join` the sum of the gradients of all parts.
    """

    key: Hashable
    part: Callable[[], Any]
    join: Callable[[Sequence[Any]], ir.Value]

    def __call__(self) -> ir.Value:
        """Make this gradient alone."""
        return self.join([self.part()])


# From an editor, a node and the gradients of its outputs (None: zero, nothing depends on that
# output) to one maker for each input (None: no gradient flows there). Missing ones count as None.
# A gradient may have the broadcast shape of the output: the walker sums it down to the input's.
GradientRule = Callable[
    [Editor, ir.Node, Sequence[ir.Value | None]], Sequence[InputGradient | None]
]

# Why an operator cannot be trained through: always, or, from a node, for some of its forms (None:
# this one can).
Refusal = str | Callable[[ir.Node], str | None]

# Eight operations evaluate a polynomial of degree four, which is about what BF16 needs.
POLYNOMIAL = 8

QUANTIZED = "quantised models are not trained: train the model first, then quantise it"
"""Why nobody trains through operators on codes."""


@dataclass(frozen=True)
class Family:
    """Operators that cost alike, keyed by `qualified` name.

    `anchor` families do so much arithmetic that a pipelined kernel is built around each of their
    operators; `random` ones give different results on equal inputs. `second` says at which input
    the second operand of a product stands, the filters of a convolution, where that is not 1, and
    `packed` of which products it is one matrix, whatever its shape.

    An operator of the default domain stands in one of three tables. `gradients` has its rule.
    `constant` names those through which no gradient flows: comparisons, rounding, indices, shapes.
    `undifferentiable` has the reason why nobody can train through it, or through the forms that its
    rule does not cover. One in none of them is differentiated through the body that ONNX defines.
    """

    name: str
    flops: Mapping[str, FlopRule]
    anchor: bool = False
    random: bool = False
    second: Mapping[str, int] = field(default_factory=dict)
    packed: frozenset[str] = frozenset()
    gradients: Mapping[str, GradientRule] = field(default_factory=dict)
    constant: frozenset[str] = frozenset()
    undifferentiable: Mapping[str, Refusal] = field(default_factory=dict)


def each(names: str | Iterable[str], rule: FlopRule, domain: str = "") -> dict[str, FlopRule]:
    """Give `rule` to every operator in `names` (a string is split at blanks) of one domain."""
    listed = names.split() if isinstance(names, str) else names
    return {qualified(domain, name): rule for name in listed}


def qualified(domain: str, op_type: str) -> str:
    """Return the key of an operator: `Conv`, or `com.microsoft.FusedConv`."""
    return f"{domain}.{op_type}" if domain else op_type


def elements(value: ir.Value | None) -> int:
    """Return the number of elements of `value`, 0 if it is absent or its rank is not known."""
    dims = modelled_shape(value)
    return 0 if dims is None else prod(dims)


def dim(value: ir.Value | None, axis: int) -> int:
    """Return one dimension of `value`, 1 if it is open, 0 if there is none."""
    dims = modelled_shape(value) or ()
    return dims[axis] if -len(dims) <= axis < len(dims) else 0


def nothing(node: ir.Node) -> int:
    """0: the operator moves data, or computes no numbers."""
    return 0


def per_output(count: int) -> FlopRule:
    """`count` operations for each element of the first output."""
    return lambda node: count * elements(node.outputs[0] if node.outputs else None)


def per_input(count: int, index: int = 0) -> FlopRule:
    """`count` operations for each element of one input."""
    return lambda node: count * elements(input_at(node, index))
