"""Predicates of operators: `name_regex("enc.*") & op_type("matmul").negate()`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pef.arguments import shown

from .errors import PyBudaError


@dataclass(frozen=True)
class QueriedNode:
    """What is known of an operator, or of a module of torch: its name and type."""

    name: str
    op_type: str


@dataclass(frozen=True)
class NodePredicateBuilder:
    """A predicate of operators, which `&`, `|` and `negate` make others of; `says` is what of."""

    holds: Callable[[QueriedNode], bool]
    says: str = "a predicate"

    def __and__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(
            lambda node: self.holds(node) and other.holds(node), f"({self} & {other})"
        )

    def __or__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(
            lambda node: self.holds(node) or other.holds(node), f"({self} | {other})"
        )

    def negate(self) -> NodePredicateBuilder:
        """Return what holds where this does not."""
        return NodePredicateBuilder(lambda node: not self.holds(node), f"{self}.negate()")

    def __str__(self) -> str:
        return self.says


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
