"""The one table over all families, and the questions the planners ask of it."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.nodes import input_at, int_attribute, modelled_shape, subgraphs

from . import (
    attention,
    classical,
    control,
    convolution,
    elementwise,
    matmul,
    movement,
    normalization,
    own_gradients,
    pooling,
    quantization,
    randomness,
    recurrent,
    reduction,
    sampling,
    selection,
    signal,
    text,
)
from .family import Family, GradientRule, elements, qualified

FAMILIES: tuple[Family, ...] = tuple(
    module.FAMILY
    for module in (
        attention, classical, control, convolution, elementwise, matmul, movement, normalization,
        own_gradients, pooling, quantization, randomness, recurrent, reduction, sampling, selection,
        signal, text,
    )
)  # fmt: skip

# Operators that belong to no family, with the reason.
WITHOUT_FAMILY = MappingProxyType({
    "ImageDecoder": "what it decodes is known only at run time, and no kernel exists",
    "ai.onnx.preview.training.Adagrad": "lowered to other operators before anything is planned",
    "ai.onnx.preview.training.Adam": "lowered to other operators before anything is planned",
    "ai.onnx.preview.training.Gradient": "lowered to other operators before anything is planned",
    "ai.onnx.preview.training.Momentum": "lowered to other operators before anything is planned",
})  # fmt: skip

_BYTE_PRODUCTS = frozenset({
    "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "com.microsoft.DynamicQuantizeMatMul", "com.microsoft.MatMulIntegerToFloat",
    "com.microsoft.QGemm",
})  # fmt: skip


def _by_operator(families: Iterable[Family]) -> dict[str, Family]:
    table: dict[str, Family] = {}
    for family in families:
        for operator in family.flops:
            if operator in table:
                raise ValueError(f"{operator} is in {table[operator].name} and in {family.name}")
            table[operator] = family
    return table


_FAMILY_OF = MappingProxyType(_by_operator(FAMILIES))


def family_of(domain: str, op_type: str) -> Family | None:
    """Return the family of an operator, or None if it has none."""
    return _FAMILY_OF.get(qualified(domain, op_type))


def is_anchor(domain: str, op_type: str) -> bool:
    """Return whether a pipelined kernel is built around each operator of this type."""
    family = family_of(domain, op_type)
    return family is not None and family.anchor


def held_whole(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return what a pipeline around `node` keeps on chip as a whole; all else streams through.

    A matrix product keeps the smallest of its three matrices: a weight past which many rows stream,
    a few rows past which a large weight streams, or sums over many rows. Of products in a batch one
    at a time is on chip. A convolution keeps its filters.
    """
    found = keepable(node)
    return (min(found, key=elements),) if found else ()


def keepable(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the values of `node` of which it keeps the smallest, the first of equal ones."""
    family = family_of(node.domain, node.op_type)
    if family is None or not family.anchor:
        return ()
    name = qualified(node.domain, node.op_type)
    first, second = input_at(node, 0), input_at(node, family.second.get(name, 1))
    if first is None or second is None:
        return ()
    if family is convolution.FAMILY:
        return (second,)
    in_a_batch = name not in family.packed and len(modelled_shape(second) or (0, 0, 0)) > 2
    if family is not matmul.FAMILY or in_a_batch:
        return ()
    return second, first, node.outputs[0]


def is_byte_product(domain: str, op_type: str) -> bool:
    """Return whether an operator multiplies whole numbers of eight bits."""
    return qualified(domain, op_type) in _BYTE_PRODUCTS


def is_elementwise(domain: str, op_type: str) -> bool:
    """Return whether each element of the result depends only on the elements at its place."""
    return family_of(domain, op_type) is elementwise.FAMILY


def is_normalization(domain: str, op_type: str) -> bool:
    """Return whether an operator scales values by statistics over several of them."""
    return family_of(domain, op_type) is normalization.FAMILY


def is_random(node: ir.Node) -> bool:
    """Return whether two executions of `node` on equal inputs may differ."""
    family = family_of(node.domain, node.op_type)
    if family is not None and family.random:
        return True
    # Dropouts draw numbers in training mode, which an input says; sampling searches always do.
    draws = node.op_type.endswith(("Dropout", "Sampling"))
    return draws or int_attribute(node, "training_mode") != 0


def flops_of(node: ir.Node) -> int:
    """Return the arithmetic operations of one execution, with 1 for every open dimension.

    An operator without a family counts as elementwise. A node with subgraphs costs what its
    dearest subgraph costs, times the executions that are known beforehand.
    """
    inner = [sum(flops_of(child) for child in graph) for graph in subgraphs(node)]
    if inner:
        return max(inner) * control.executions(node)
    family = family_of(node.domain, node.op_type)
    if family is None:
        return sum(elements(value) for value in node.outputs)
    return family.flops[qualified(node.domain, node.op_type)](node)


def gradient_of(node: ir.Node) -> GradientRule | None:
    """Return the gradient rule of `node`, or None if there is none for it."""
    family = family_of(node.domain, node.op_type)
    if family is None or undifferentiable(node) is not None:
        return None
    return family.gradients.get(qualified(node.domain, node.op_type))


def blocks_gradients(node: ir.Node) -> bool:
    """Return whether no gradient flows through `node`, because its result is locally constant."""
    family = family_of(node.domain, node.op_type)
    return family is not None and qualified(node.domain, node.op_type) in family.constant


def undifferentiable(node: ir.Node) -> str | None:
    """Return why `node` cannot be trained through, or None if no family says so."""
    family = family_of(node.domain, node.op_type)
    if family is None:
        return None
    refusal = family.undifferentiable.get(qualified(node.domain, node.op_type))
    return refusal(node) if callable(refusal) else refusal
