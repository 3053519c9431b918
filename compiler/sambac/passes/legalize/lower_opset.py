"""Take a model for one of an older opset, where onnxruntime has kernels only for that.

onnxruntime implements a new version of an operator later than the ONNX standard defines it, even
where the new version merely accepts more types: RoiAlign of opset 22 has no kernel, though for
float tensors it is RoiAlign of opset 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.function_bodies import has_body
from sambac.graph.nodes import all_nodes
from sambac.graph.opsets import FIRST_COMPARABLE, keeps_meaning
from sambac.kernels.registry import why_not_runnable
from sambac.passes.base import WITHOUT_KERNEL, Pass

from .insert_casts import wider_call


@dataclass(frozen=True)
class LowerOpset(Pass):
    """Lower the model's ONNX opset to the newest that runs nodes which nothing else helps.

    Done only if every node means the same there and none becomes impossible to run.
    Types must be known.
    """

    name: ClassVar[str] = "lower_opset"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lower the opset of `model`, if that helps."""
        opsets = model.opset_imports
        opset = opsets.get("", 0)
        nodes = [node for node in all_nodes(model.graph) if node.domain == ""]
        stuck = [node for node in nodes if not _runs(node, opsets) and not has_body(node, opsets)]
        for lower in range(opset - 1, FIRST_COMPARABLE - 1, -1) if stuck else ():
            trial = {**opsets, "": lower}
            if all(_runs(node, trial) for node in stuck) and all(
                keeps_meaning(node, opset, lower) and _no_worse(node, opsets, trial)
                for node in nodes
            ):
                opsets[""] = lower
                return ir.passes.PassResult(model, modified=True)
        return ir.passes.PassResult(model, modified=False)


def _runs(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    return why_not_runnable(node, opsets) is None or wider_call(node, opsets) is not None


def _no_worse(node: ir.Node, now: Mapping[str, int], trial: Mapping[str, int]) -> bool:
    return _runs(node, trial) or not _runs(node, now)
