r"""In which digits which operators compute: rules, as plain data, and the file that lists some.

    - op_type: matmul             # which operators: by type, or a list of types
      weights: Bfp8_b             # what they do to numbers
      fidelity: HiFi2
    - name: encoder\.layer\.0\..*  # a pattern of the whole name of an operator, or of its module
      stage: fwd
      operands: {0: Float16_b, 1: Bfp4_b}

Later rules win, each only over what it says itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pef.arguments import shown
from pef.wording import did_you_mean, listed

from .errors import CompileError
from .numerics import FIDELITIES, FORMATS, FULL, ROUNDING_RULES
from .quantized_precisions import QUANTIZED

OperandFormats = str | Mapping[int, str]
"""One format for all operands, or formats by the numbers of operands."""

ACCUMULATORS = ("Float32", "Float16_b", "Float16")
"""The formats in which products are summed."""

_FORMAT_FIELDS = ("factors", "operands", "weights", "output")
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "stage": ("fwd", "bwd"),
    **dict.fromkeys(_FORMAT_FIELDS, tuple(FORMATS)),
    "accumulate": ACCUMULATORS,
    "fidelity": (*FIDELITIES, FULL),
    "rounding": tuple(ROUNDING_RULES),
    "left": ("SrcB", "SrcA"),
})  # fmt: skip
_SELECTORS = ("op_type", "name", "stage")
_BY_NUMBER = ("operands", "weights")


@dataclass(frozen=True, kw_only=True)
class NumberRule:
    """What operators do to numbers. What is empty says nothing; without a selector all are meant.

    Selectors, of which all have to fit: `op_type`, types as in fusion rules; `name`, a regular
    expression for the whole name of an operator, of its first output or of its module; `stage`,
    `fwd` or `bwd`. An input or parameter of that name lies in the format `output`, too.

    Formats (names of `sambac.numerics.FORMATS`; `Float32` takes back what an earlier rule says):
    `factors` of what products of matrices, convolutions and attention multiply; `operands` of all
    that is read; `weights` of what is read of parameters; the more special wins. Those of
    `operands` and `weights` may go by the numbers of operands. `output` is that of results.

    `fidelity`: how much of their operands products take (`LoFi` to `HiFi4`, or `full`), and `left`
    which source of the multiplier the left operand of a matrix product is (`SrcB`, or `SrcA`).
    `accumulate`: in which format a product of matrices is summed, 16 elements at a time; other
    results are rounded to it once. `rounding`: the rule of block formats, `host` where none is
    given. Raises `CompileError` for words that there are not.
    """

    op_type: tuple[str, ...] = ()
    name: str = ""
    stage: str = ""
    factors: str = ""
    operands: OperandFormats = ""
    weights: OperandFormats = ""
    output: str = ""
    accumulate: str = ""
    fidelity: str = ""
    rounding: str = ""
    left: str = ""

    def __post_init__(self) -> None:
        problems = [
            problem
            for field, choices in _CHOICES.items()
            for word in _words(field, getattr(self, field))
            if (problem := _wrong(field, word, choices))
        ]
        problems += _pattern_problems(self.name)
        types: object = self.op_type
        if not isinstance(types, tuple) or not all(isinstance(each, str) for each in types):
            problems.append(f"op_type is {shown(types)}; names of operators were expected")
        if not problems and not self.settings():
            problems.append(f"it says nothing of numbers; give {_either(_SETTINGS)}")
        if problems:
            raise CompileError(f"number rule: {listed(problems)}.")

    def settings(self) -> dict[str, Any]:
        """Return what the rule says of numbers, without its selectors."""
        found = {name: getattr(self, name) for name in _SETTINGS}
        return {name: value for name, value in found.items() if value}

    def record(self) -> dict[str, object]:
        """Return the rule as plain data, only what it says."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: _plain(value) if isinstance(value, tuple | Mapping) else value
            for name, value in plain.items()
            if value
        }


_SETTINGS = tuple(each.name for each in fields(NumberRule) if each.name not in _SELECTORS)


def rules_of(precision: str) -> tuple[NumberRule, ...]:
    """Return what a precision means: a word of its own, or a format of what products multiply.

    Precisions in whole numbers round nothing: they are made of other operators.
    """
    if precision == "bfloat16":
        return (NumberRule(operands="Float16_b", output="Float16_b"),)
    if precision == "mixed":
        return (NumberRule(factors="Float16_b"),)
    exact = precision == "float32" or precision in QUANTIZED
    return () if exact else (NumberRule(factors=precision),)


def read_number_rules(path: str | os.PathLike[str]) -> tuple[NumberRule, ...]:
    """Return the rules of a YAML file. Raises `CompileError` with all that is wrong with it."""
    # Imported here: few programs have rules from a file.
    from .rule_files import kind_of, parse_yaml, read_rules

    origin = os.fspath(path)
    entries = parse_yaml(read_rules(Path(path), "number rules"), origin)
    if not isinstance(entries, list):
        raise CompileError(f"{origin}: expected a list of rules, found {kind_of(entries)}.")
    rules, problems = [], []
    for number, entry in enumerate(entries, 1):
        try:
            rules.append(_rule(entry, kind_of(entry)))
        except CompileError as error:
            problems.append(f"rule {number}: {str(error).removeprefix('number rule: ')}")
    if problems:
        raise CompileError(f"{origin}: {' '.join(problems)}")
    return tuple(rules)


def recorded(rules: Iterable[NumberRule]) -> list[dict[str, object]]:
    """Return rules as plain data."""
    return [rule.record() for rule in rules]


def _rule(entry: object, kind: str) -> NumberRule:
    if not isinstance(entry, dict):
        raise CompileError(f"expected a table, found {kind}.")
    known = [each.name for each in fields(NumberRule)]
    unknown = [f"unknown key {key!r}{did_you_mean(str(key), known)}" for key in entry
               if key not in known]  # fmt: skip
    if unknown:
        raise CompileError(f"{listed(unknown)}.")
    types = entry.get("op_type", ())
    several = tuple(types) if isinstance(types, list) else types
    return NumberRule(**{**entry, "op_type": (types,) if isinstance(types, str) else several})


def _words(field: str, value: object) -> list[object]:
    """Return the words in a field: one, none, or those by the numbers of operands."""
    if (
        field in _BY_NUMBER
        and isinstance(value, Mapping)
        and all(type(at) is int and at >= 0 for at in value)
    ):
        return [*value.values()]
    return [] if isinstance(value, str) and not value else [value]


def _wrong(field: str, word: object, choices: tuple[str, ...]) -> str:
    if isinstance(word, str) and word in choices:
        return ""
    hint = did_you_mean(word, choices) if isinstance(word, str) else ""
    more = ", alone or by the numbers of operands" if field in _BY_NUMBER else ""
    return f"{field} is {shown(word)}{hint or f'; choose {_either(choices)}{more}'}"


def _either(words: Sequence[str]) -> str:
    return " or ".join((", ".join(words[:-1]), words[-1]))


def _pattern_problems(name: object) -> list[str]:
    if not isinstance(name, str):
        return [f"name is {shown(name)}; a pattern was expected"]
    try:
        re.compile(name)
    except re.error as error:
        return [f"name is {shown(name)}, which is no regular expression: {error}"]
    return []


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
