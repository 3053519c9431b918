"""Names of the operators that programs were compiled with, and names that none of them has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pef.program import Program, SectionType
from pef.warned import warn
from pef.wording import did_you_mean
from sambac import NumberRule

from .compiled_step import AnyPart
from .onnx_part import OnnxPart
from .predicates import NodePredicateBuilder


class KnownOperators:
    """What operators, modules and tensors of all programs so far are called."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._types: set[str] = set()
        self._held: set[str] = set()
        self._told: set[str] = set()
        self._idle_rules: dict[str, bool] = {}

    def add(self, names: Iterable[str]) -> None:
        """Take names into account."""
        self._names.update(names)

    def add_program(self, program: Program, rules: Iterable[NumberRule] = ()) -> None:
        """Take the names of the operators and tensors of a program into account.

        `rules` are those of numbers that it was compiled with.
        """
        trains = any(section.type == SectionType.BCKWD for section in program.sections)
        for rule in rules:
            said = str(rule.record())
            idle = any(said in text for text in program.warnings)
            if idle and (trains or rule.stage != "bwd"):
                self._idle_rules.setdefault(said, True)
            elif not idle:
                self._idle_rules[said] = False
        for section in program.sections:
            self.add(operator.name for group in section.groups for operator in group.operators)
        self.add(symbol.name for symbol in program.symbols)

    def add_types(self, types: Iterable[str]) -> None:
        """Take types of operators into account, which predicates ask for."""
        self._types.update(types)

    def add_held(self, predicate: str) -> None:
        """Take into account that a predicate, which this spells, holds for an operator."""
        self._held.add(predicate)

    def tell(
        self,
        names: Iterable[str],
        patterns: Iterable[str],
        predicates: Iterable[NodePredicateBuilder] = (),
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
        spelt = {str(each): each for each in predicates}
        idle += [
            f"{said}{self._meant(each.words)}"
            for said, each in spelt.items()
            if said not in self._told and said not in self._held
        ]
        self._told.update(asked, spelt)
        if idle:
            warn(f"no operator that was compiled fits {', '.join(idle)}; it has no effect")

    def _meant(self, words: Iterable[str]) -> str:
        """Return a hint for the first word of a predicate that no name and no type fits."""
        known = sorted(self._types | self._names)
        hints = (
            did_you_mean(word, known)
            for word in words
            if not any(map(re.compile(word).fullmatch, known))
        )
        return next(filter(None, hints), "")

    def tell_rules(self, rules: Iterable[NumberRule]) -> None:
        """Warn, once each, of rules of numbers that say nothing of any operator so far."""
        for said in (str(rule.record()) for rule in rules):
            if self._idle_rules.get(said) and said not in self._told:
                self._told.add(said)
                warn(f"no operator that was compiled fits the rule {said}; it has no effect")


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
