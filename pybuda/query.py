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
        lambda node: found.fullmatch(node.name) is not None,
        f"name_regex({pattern!r})",
        (pattern,),
    )


def layer_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators in a module, itself, whose whole name fits `pattern`."""
    inside = name_regex(rf"(?:{_compiled(pattern).pattern})\.[^.]*")
    return NodePredicateBuilder(inside.holds, f"layer_regex({pattern!r})", (pattern,))


def op_type(kind: str) -> NodePredicateBuilder:
    """Return what holds for operators of a type, such as `matmul`, or `reduce_sum`."""
    if not isinstance(kind, str):
        raise PyBudaError(f"{shown(kind)} is no type of operators, such as 'matmul'")
    return NodePredicateBuilder(
        lambda node: node.op_type == kind, f"op_type({kind!r})", (re.escape(kind),)
    )


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern to compare with. Raises `PyBudaError` for what is none."""
    if not isinstance(pattern, str):
        raise PyBudaError(f"{shown(pattern)} is no regular expression: it is no text")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PyBudaError(f"{shown(pattern)} is no regular expression: {error}") from error
