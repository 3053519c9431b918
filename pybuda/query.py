"""Predicates of operators: `name_regex("enc.*") & op_type("matmul").negate()`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class QueriedNode:
    """What is known of an operator, or of a module of torch: its name and type."""

    name: str
    op_type: str


@dataclass(frozen=True)
class NodePredicateBuilder:
    """A predicate of operators, which `&`, `|` and `negate` make others of."""

    holds: Callable[[QueriedNode], bool]

    def __and__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(lambda node: self.holds(node) and other.holds(node))

    def __or__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(lambda node: self.holds(node) or other.holds(node))

    def negate(self) -> NodePredicateBuilder:
        """Return what holds where this does not."""
        return NodePredicateBuilder(lambda node: not self.holds(node))


def name_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators whose whole name fits `pattern`."""
    return NodePredicateBuilder(lambda node: re.fullmatch(pattern, node.name) is not None)


def layer_regex(pattern: str) -> NodePredicateBuilder:
    """Return what holds for operators in a module, itself, whose whole name fits `pattern`."""
    return name_regex(rf"(?:{pattern})\.[^.]*")


def op_type(kind: str) -> NodePredicateBuilder:
    """Return what holds for operators of a type, such as `matmul`, or `reduce_sum`."""
    return NodePredicateBuilder(lambda node: node.op_type == kind)
