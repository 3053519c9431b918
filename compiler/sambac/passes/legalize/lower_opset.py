"""Take a model for one of an older opset, where onnxruntime has kernels only for that.

onnxruntime implements a new version of an operator later than the ONNX standard defines it, even
where the new version merely accepts more types: RoiAlign of opset 22 has no kernel, though for
float tensors it is RoiAlign of opset 16. Nor have random numbers of opset 22.

    y = RMSNormalization(x, s), z = RandomUniformLike(y)   of opset 23
        ->  what RMSNormalization is made of, z = RandomUniformLike(y)   of opset 21
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.function_bodies import body_of, may_have_body
from sambac.graph.nodes import all_nodes
from sambac.graph.opsets import FIRST_COMPARABLE, keeps_meaning
from sambac.kernels.registry import KernelCall, why_no_kernel, why_not_runnable
from sambac.ops import gradient_of
from sambac.passes.base import WITHOUT_KERNEL, Pass

from .inline_functions import expand_all
from .insert_casts import wider_call


@dataclass(frozen=True)
class LowerOpset(Pass):
    """Lower the model's ONNX opset to the newest that runs nodes which nothing else helps.

    Done only if every node means the same there and none becomes impossible to run. What the older
    opset lacks, or has no kernel for, is replaced by its body first, where that can be had there;
    with `keep_differentiable` nothing with a gradient rule is, as that beats the gradient of the
    body. Types must be known; they and the shapes are inferred anew where something was expanded.
    """

    name: ClassVar[str] = "lower_opset"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL})
    keep_differentiable: bool = False

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lower the opset of `model`, if that helps."""
        opsets = model.opset_imports
        opset = opsets.get("", 0)
        nodes = [node for node in all_nodes(model.graph) if node.domain == ""]
        stuck = [node for node in nodes if not _is_served(node, opsets)]
        for lower in range(opset - 1, FIRST_COMPARABLE - 1, -1) if stuck else ():
            step = _Lowering(dict(opsets), {**opsets, "": lower})
            if all(_is_served(node, step.after) for node in stuck) and all(
                step.keeps(node) or (step.keeps_body(node) and self._may_expand(node))
                for node in nodes
            ):
                while expand_all(model, step.loses):
                    pass
                opsets[""] = lower
                return ir.passes.PassResult(model, modified=True)
        return ir.passes.PassResult(model, modified=False)

    def _may_expand(self, node: ir.Node) -> bool:
        return not self.keep_differentiable or gradient_of(node) is None


@dataclass(frozen=True)
class _Lowering:
    """From the opsets `before` to those `after`."""

    before: Mapping[str, int]
    after: Mapping[str, int]

    def keeps(self, node: ir.Node) -> bool:
        """Tell whether `node` means the same, and runs if it did."""
        return self._keeps_meaning(node) and (
            _is_served(node, self.after) or not _is_served(node, self.before)
        )

    def loses(self, node: ir.Node, _model: ir.Model) -> bool:
        """Tell whether `node` does not."""
        return not self.keeps(node)

    def keeps_body(self, node: ir.Node) -> bool:
        """Tell whether all that `node` is made of means the same, and there are kernels for it."""
        body = body_of(node, self.before)
        return body is not None and all(
            (self._keeps_meaning(part) and _is_part_served(part, self.after))
            or self.keeps_body(part)
            for part in all_nodes(body)
        )

    def _keeps_meaning(self, node: ir.Node) -> bool:
        return node.domain != "" or keeps_meaning(node, self.before[""], self.after[""])


def _is_served(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Tell whether `node` runs, on wider types perhaps, or what it is made of."""
    if why_not_runnable(node, opsets) is None or wider_call(node, opsets) is not None:
        return True
    body = body_of(node, opsets)
    return body is not None and all(_is_part_served(part, opsets) for part in all_nodes(body))


def _is_part_served(part: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Tell whether there are kernels for a part of a body, whose types are not known."""
    return (
        part.op_type == "Constant"
        or may_have_body(part, opsets)
        or why_no_kernel(KernelCall.of(part, opsets)) is None
    )
