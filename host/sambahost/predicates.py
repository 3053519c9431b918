"""Predicates of operators, by what is known of each before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class QueriedNode:
    """What is known of an operator, or of a module of torch: its name and type."""

    name: str
    op_type: str


@dataclass(frozen=True)
class NodePredicateBuilder:
    """A predicate of operators, which `&`, `|` and `negate` make others of; `says` is what of.

    `words` are the names and types that it asks for, as a program spells them.
    """

    holds: Callable[[QueriedNode], bool]
    says: str = "a predicate"
    words: tuple[str, ...] = ()

    def __and__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(
            lambda node: self.holds(node) and other.holds(node),
            f"({self} & {other})",
            self.words + other.words,
        )

    def __or__(self, other: NodePredicateBuilder) -> NodePredicateBuilder:
        return NodePredicateBuilder(
            lambda node: self.holds(node) or other.holds(node),
            f"({self} | {other})",
            self.words + other.words,
        )

    def negate(self) -> NodePredicateBuilder:
        """Return what holds where this does not."""
        says = f"{self}.negate()"
        return NodePredicateBuilder(lambda node: not self.holds(node), says, self.words)

    def __str__(self) -> str:
        return self.says
