"""Predicates of operators: `name_regex("enc.*") & op_type("matmul").negate()`."""

from __future__ import annotations

from sambahost.predicates import NodePredicateBuilder, by_layer, by_name, by_type

from .errors import PyBudaError


def name_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators whose whole name fits `pattern`."""
    return by_name(pattern, PyBudaError)


def layer_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators in a module, itself, whose whole name fits `pattern`."""
    return by_layer(pattern, PyBudaError)


def op_type(kind: str) -> NodePredicateBuilder:
    """Return what holds for operators of a type, such as `matmul`, or `reduce_sum`."""
    return by_type(kind, PyBudaError)
