"""Formulations: several ways to write one thing, of which sizes decide the fastest.

A choice point is a kind of problem with a table of them. An entry says for which problems it is
right, what it is guessed to cost and how it is written; the last is right for all. The cheapest by
guess is taken, unless another one was measured to be faster (`Decisions.measured`).

Guesses are nanoseconds on one core of a processor with AVX-512, of which only their order matters.
They count what any processor does: multiply, copy in runs, and read what no longer is in its cache.
A choice follows from sizes and from what was measured, so that a program is the same wherever it is
compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import onnx_ir as ir

from pef.arguments import shown
from sambac.errors import InternalError
from sambac.graph.decisions import Question
from sambac.graph.editor import Editor

from .rules import reshape

Sizes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The numbers that make a problem, by name; what is left out has its usual value."""


class SizedProblem(Protocol):
    """What a choice point has formulations for: sizes, and the type of numbers."""

    @property
    def dtype(self) -> ir.DataType:
        """The type of all operands and of the result."""

    @property
    def sizes(self) -> Sizes:
        """All that `ChoicePoint.pose` needs to make the problem again."""


Problem = TypeVar("Problem", bound=SizedProblem)

_PRODUCTS = 75  # multiplications and additions in a nanosecond, in large products
_ELEMENT, _RUN = 0.1, 2.5  # copying: for each element, and for each run
_NEAR = 2**20  # as many elements stay in a cache until they are read
_FAR = 0.25  # for each element of more
_NUMBERS: Mapping[ir.DataType, str] = {
    ir.DataType.BFLOAT16: "bfloat16",
    ir.DataType.DOUBLE: "float64",
    ir.DataType.FLOAT: "float32",
    ir.DataType.FLOAT16: "float16",
}
DTYPES: Mapping[str, ir.DataType] = {name: dtype for dtype, name in _NUMBERS.items()}
"""The types of numbers that have formulations, by the names that users know."""

_SIZE = re.compile(r"([a-z]+) ([0-9]{1,18}(?:x[0-9]{1,18})*)")


@dataclass(frozen=True)
class Formulation(Generic[Problem]):
    """One way to solve a kind of problem.

    `build` takes an editor, the problem and its operands. It gives the elements of the result in
    order, in any shape. One that `takes_bias` may be given, behind its operands, what is to be
    added to each channel.
    """

    name: str
    fits: Callable[[Problem], bool]
    cost: Callable[[Problem], float]
    build: Callable[..., ir.Value]
    takes_bias: bool = False


@dataclass(frozen=True)
class ChoicePoint(Generic[Problem]):
    """A kind of problem, and its formulations.

    `fields` are the names of its sizes; `pose` makes a problem of them, and raises `ValueError` for
    sizes that do not go together. `operands` are the shapes of what a formulation reads, `result`
    is that of what it gives.
    """

    name: str
    forms: tuple[Formulation[Problem], ...]
    fields: tuple[str, ...]
    pose: Callable[[Sizes, ir.DataType], Problem]
    operands: Callable[[Problem], tuple[tuple[int, ...], ...]]
    result: Callable[[Problem], tuple[int, ...]]

    def form(self, name: str) -> Formulation[Problem]:
        """Return the formulation that is called so; `KeyError` if there is none."""
        return {form.name: form for form in self.forms}[name]

    def fitting(self, problem: Problem) -> list[Formulation[Problem]]:
        """Return the formulations that are right for `problem`."""
        return [form for form in self.forms if form.fits(problem)]

    def guess(self, problem: Problem) -> Formulation[Problem]:
        """Return the formulation that is guessed to cost the least; of equals, the first.

        Of what has no elements nothing is to be had by choosing, and guesses divide by sizes.
        """
        fitting = self.fitting(problem)
        if not fitting:
            raise InternalError(f"no formulation of the {self.name} fits {problem}")
        if any(0 in shape for shape in self.operands(problem)):
            return fitting[-1]
        return min(fitting, key=lambda form: form.cost(problem))

    def question(self, problem: Problem) -> Question:
        """Return what is asked where `problem` comes up."""
        return Question(self.name, _NUMBERS[problem.dtype], sizes_text(problem.sizes))

    def solve(self, b: Editor, problem: Problem, *operands: ir.Value) -> ir.Value:
        """Put the formulation that is chosen for `problem`."""
        return self.write(b, self.choose(b, problem), problem, operands)

    def choose(self, b: Editor, problem: Problem) -> Formulation[Problem]:
        """Return the formulation that `choice` names.

        The editor's decisions remember it, where there is something to choose.
        """
        form = self.choice(b, problem)
        if len(self.fitting(problem)) > 1:
            origin = "" if b.origin is None else str(b.origin.name)
            b.decisions.note(self.question(problem), form.name, origin)
        return form

    def choice(self, b: Editor, problem: Problem) -> Formulation[Problem]:
        """Return the formulation that was measured to be the fastest, or is guessed to be.

        It is not remembered: for what may yet not be written.
        """
        question = self.question(problem)
        name = b.decisions.measured.get(question)
        form = self.guess(problem) if name is None else self.form(name)
        if not form.fits(problem):
            raise InternalError(f"'{form.name}' is not right for {question}")
        return form

    def write(
        self,
        b: Editor,
        form: Formulation[Problem],
        problem: Problem,
        operands: Sequence[ir.Value],
    ) -> ir.Value:
        """Put one formulation, and give its result its shape."""
        return reshape(b, form.build(b, problem, *operands), self.result(problem))


AnyPoint: TypeAlias = ChoicePoint[Any]


def sizes_text(sizes: Sizes) -> str:
    """Return sizes as tuning files and logs have them: `image 8x3x32x32, kernel 3x3`."""
    return ", ".join(f"{name} {'x'.join(map(str, each))}" for name, each in sizes.items())


def parse_sizes(text: str) -> dict[str, tuple[int, ...]]:
    """Return the sizes in `text`; raise `ValueError` for what `sizes_text` does not write."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(", "):
        match = _SIZE.fullmatch(part)
        if match is None:
            raise ValueError(f"{shown(part)} is no name with sizes, such as 'kernel 3x3'")
        if match[1] in found:
            raise ValueError(f"{match[1]!r} is given twice")
        found[match[1]] = tuple(map(int, match[2].split("x")))
    return found


def product(count: float) -> float:
    """Return the cost of so many multiplications with an addition, in large products."""
    return count / _PRODUCTS


def copying(elements: int, run: int, piece: int | None = None) -> float:
    """Return the cost of copying elements in runs, and reading them again piece by piece."""
    far = _FAR if (elements if piece is None else piece) > _NEAR else 0
    return elements * (_ELEMENT + _RUN / run + far)
