"""Names of the operators that programs were compiled with, and names that none of them has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pef.program import Program
from pef.warned import warn
from pef.wording import did_you_mean

from .compiled_step import AnyPart
from .onnx_part import OnnxPart


class KnownOperators:
    """What operators, modules and tensors of all programs so far are called."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._held: set[str] = set()
        self._told: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Take names into account."""
        self._names.update(names)

    def add_program(self, program: Program) -> None:
        """Take the names of the operators and tensors of a program into account."""
        for section in program.sections:
            self.add(operator.name for group in section.groups for operator in group.operators)
        self.add(symbol.name for symbol in program.symbols)

    def add_held(self, predicate: str) -> None:
        """Take into account that a predicate, which this spells, holds for an operator."""
        self._held.add(predicate)

    def tell(
        self, names: Iterable[str], patterns: Iterable[str], predicates: Iterable[str] = ()
    ) -> None:
        """Warn, once each, of names that no operator has and patterns that fit none, all at once.

        Nothing is told before there is an operator.
        """
        if not self._names:
            return
        asked = {**{each: each for each in patterns}, **{each: re.escape(each) for each in names}}
        idle = [
            f"'{words}'{did_you_mean(words, sorted(self._names))}"
            for words, pattern in asked.items()
            if words not in self._told
            if not any(map(re.compile(pattern).fullmatch, self._names))
        ]
        spelt = dict.fromkeys(predicates)
        idle += [each for each in spelt if each not in self._told and each not in self._held]
        self._told.update(asked, spelt)
        if idle:
            warn(f"no operator that was compiled fits {', '.join(idle)}; it has no effect")


def names_in(part: AnyPart) -> Iterator[str]:
    """Yield what users may call operators, modules and parameters of `part`."""
    if isinstance(part, OnnxPart):
        for node in part.model.graph.node:
            yield from (node.name, *node.output)
        yield from (port.name for port in part.model.graph.input)
        yield from (weight.name for weight in part.model.graph.initializer)
        return
    # What stands in two places has two names.
    yield from (path for path, _ in part.named_modules(remove_duplicate=False))
    yield from (path for path, _ in part.named_parameters(remove_duplicate=False))
    yield from (path for path, _ in part.named_buffers(remove_duplicate=False))
