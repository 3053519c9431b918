"""Formulations: several ways to write one gradient, of which sizes decide the fastest.

A table holds those of one kind of problem. An entry says for which problems it is right, what it
is guessed to cost and how it is written; the cheapest that fits is taken. Guesses are nanoseconds
on one core of a processor with AVX-512, of which only their order matters. They count what any
processor does: multiply, copy in runs, and read what no longer is in its cache. A choice follows
from sizes alone, so that a program is the same wherever it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import onnx_ir as ir

from sambac.errors import InternalError
from sambac.graph.editor import Editor

Problem = TypeVar("Problem")

_PRODUCTS = 75  # multiplications and additions in a nanosecond, in large products
_ELEMENT, _RUN = 0.1, 2.5  # copying: for each element, and for each run
_NEAR = 2**20  # as many elements stay in a cache until they are read
_FAR = 0.25  # for each element of more


@dataclass(frozen=True)
class Formulation(Generic[Problem]):
    """One way to solve a kind of problem."""

    name: str
    fits: Callable[[Problem], bool]
    cost: Callable[[Problem], float]
    build: Callable[[Editor, Problem], ir.Value]


def cheapest(table: Sequence[Formulation[Problem]], problem: Problem) -> Formulation[Problem]:
    """Return the entry that is right for `problem` at the least cost; of equals, the first."""
    fitting = [entry for entry in table if entry.fits(problem)]
    if not fitting:
        raise InternalError(f"no formulation fits {problem}")
    return min(fitting, key=lambda entry: entry.cost(problem))


def product(count: float) -> float:
    """Return the cost of so many multiplications with an addition, in large products."""
    return count / _PRODUCTS


def copying(elements: int, run: int, piece: int | None = None) -> float:
    """Return the cost of copying elements in runs, and reading them again piece by piece."""
    far = _FAR if (elements if piece is None else piece) > _NEAR else 0
    return elements * (_ELEMENT + _RUN / run + far)
