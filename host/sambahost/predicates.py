"""Predicates of operators, by what is known of each before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pef.arguments import shown

Raises: TypeAlias = "Callable[[str], Exception]"
"""Makes the error of an API that says a sentence."""


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


def by_name(pattern: str, raises: Raises) -> NodePredicateBuilder:
    """Return what holds for operators whose whole name fits `pattern`, else raise an error."""
    return _fitting(_compiled(pattern, raises), f"name_regex({pattern!r})", pattern)


def by_layer(pattern: str, raises: Raises) -> NodePredicateBuilder:
    """Return what holds for operators in a module, itself, whose whole name fits `pattern`."""
    inside = rf"(?:{_compiled(pattern, raises).pattern})\.[^.]*"
    return _fitting(re.compile(inside), f"layer_regex({pattern!r})", pattern)


def by_type(kind: str, raises: Raises) -> NodePredicateBuilder:
    """Return what holds for operators of a type, else raise an error."""
    if not isinstance(kind, str):
        raise raises(f"{shown(kind)} is no type of operators, such as 'matmul'")
    says = f"op_type({kind!r})"
    return NodePredicateBuilder(lambda node: node.op_type == kind, says, (re.escape(kind),))


def _fitting(found: re.Pattern[str], says: str, word: str) -> NodePredicateBuilder:
    return NodePredicateBuilder(lambda node: found.fullmatch(node.name) is not None, says, (word,))


def _compiled(pattern: str, raises: Raises) -> re.Pattern[str]:
    """Return a pattern to compare with, else raise an error."""
    if not isinstance(pattern, str):
        raise raises(f"{shown(pattern)} is no regular expression: it is no text")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise raises(f"{shown(pattern)} is no regular expression: {error}") from error
