"""Parts of a model that bring their own gradients, as an autograd.Function of PyTorch does.

    d = IncomingGradient(y)                         # stands for the gradient of y, has its shape
    y' = OwnGradient(y, d, x, dx)                   # y, whose gradient goes to x as dx

`dx` is computed from `d`. With several results and operands there are as many of each, in this
order: OwnGradient(y.., d.., x.., dx..). Both operators exist until gradients are made, alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

DOMAIN, INCOMING, OWN = "sambac.gradients", "IncomingGradient", "OwnGradient"


@dataclass(frozen=True)
class OwnGradient:
    """The operands of such a node: results, what stands for their gradients, sources, gradients."""

    results: tuple[ir.Value, ...]
    incoming: tuple[ir.Value, ...]
    sources: tuple[ir.Value, ...]
    gradients: tuple[ir.Value, ...]

    @classmethod
    def of(cls, node: ir.Node) -> OwnGradient:
        """Take a node apart."""
        values = tuple(value for value in node.inputs if value is not None)
        results = len(node.outputs)
        sources = len(values) // 2 - results
        ends = (results, 2 * results, 2 * results + sources)
        return cls(*(values[slice(*each)] for each in zip((0, *ends), (*ends, None), strict=True)))
