"""Transposed matrices around a Gemm, left to its flags.

    Gemm(Transpose(A), B, C)               ->  Gemm(A, B, C) with the other transA; B likewise
    Transpose(Gemm(A, B))                  ->  Gemm(B, A) with the other transB and transA

where nothing else reads the product. onnxruntime does so too, but only inside one section: the
transposed weight of a layer would else be kept from its forward to its backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute

from .rewriting import Rule, RulePass, has_one_reader, made_by


def absorb_inputs(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(Transpose(A), B) -> Gemm(A, B) with the other flag."""
    inputs, flags = list(node.inputs), {}
    for index, flag in enumerate(("transA", "transB")):
        inner = made_by(inputs[index], "Transpose")
        if inner is not None and _turns(inner):
            inputs[index] = inner.inputs[0]
            flags[flag] = 1 - int_attribute(node, flag)
    if not flags:
        return "no input is a transposed matrix"
    new = editor.replace(node, "Gemm", *inputs)
    new.attributes.update(node.attributes)
    _set(new, flags)
    return None


def absorb_result(editor: Editor, node: ir.Node) -> str | None:
    """Transpose(Gemm(A, B)) -> Gemm(B, A) with the other flags."""
    value = node.inputs[0]
    product = made_by(value, "Gemm")
    if product is None or value is None or not (_turns(node) and has_one_reader(value)):
        return "the input is no product that nothing else reads"
    if len(product.inputs) > 2 and product.inputs[2] is not None:
        return "something is added to the product"
    new = editor.replace(node, "Gemm", product.inputs[1], product.inputs[0])
    new.attributes.update(product.attributes)
    flags = {name: 1 - int_attribute(product, name) for name in ("transA", "transB")}
    _set(new, {"transA": flags["transB"], "transB": flags["transA"]})
    editor.remove(product)
    return None


def _turns(node: ir.Node) -> bool:
    """Tell whether the Transpose of a matrix swaps its axes."""
    order = node.attributes.get("perm")
    return order is None or tuple(order.as_ints()) == (1, 0)


def _set(node: ir.Node, flags: Mapping[str, int]) -> None:
    for name, flag in flags.items():
        node.attributes[name] = ir.AttrInt64(name, flag)


@dataclass(frozen=True)
class AbsorbTransposes(RulePass):
    """Let matrix products read and write transposed matrices."""

    name: ClassVar[str] = "absorb_transposes"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Transpose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gemm": (absorb_inputs,),
        "Transpose": (absorb_result,),
    }
