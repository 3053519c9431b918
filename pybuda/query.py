"""Predicates of operators: `name_regex("enc.*") & op_type("matmul").negate()`."""

from __future__ import annotations

import re

from pef.arguments import shown
from sambahost.predicates import NodePredicateBuilder

from .errors import PyBudaError


def name_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators whose whole name fits `pattern`."""
    found = _compiled(pattern)
    return NodePredicateBuilder(
        lambda node: found.fullmatch(node.name) is not None, f"name_regex({pattern!r})"
    )


def layer_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators in a module, itself, whose whole name fits `pattern`."""
    inside = name_regex(rf"(?:{pattern})\.[^.]*")
    return NodePredicateBuilder(inside.holds, f"layer_regex({pattern!r})")


def op_type(kind: str) -> NodePredicateBuilder:
    """Return what holds for operators of a type, such as `matmul`, or `reduce_sum`."""
    return NodePredicateBuilder(lambda node: node.op_type == kind, f"op_type({kind!r})")


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern to compare with. Raises `PyBudaError` for what is none."""
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise PyBudaError(f"{shown(pattern)} is no regular expression: {error}") from error
