"""What is explained, as sentences, each with the numbers that it says.

Values that have no name in the file are called by who makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pef.text import human_bytes, human_time, name_text, sentence_lines
from sambac.planning.view import DataflowView
from sambac.reconstruct.rebuilt import Rebuilt

_INDENT = "  "
_LEAST = 0.1

Number = int | float | str


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence. `topic` is what it is about; sizes in bytes, times in seconds."""

    topic: str
    text: str
    numbers: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What there is to say about one thing: a `kind` (program, section, ...) and its name."""

    kind: str
    name: str
    facts: tuple[Fact, ...]

    def lines(self, width: int) -> Iterator[str]:
        """Yield the text in lines of at most `width`, facts of one topic under one heading."""
        yield f"{self.kind} {name_text(self.name)}"
        topic = ""
        for fact in self.facts:
            if fact.topic != topic:
                topic = fact.topic
                yield ""
                yield from sentence_lines(topic, width)
            first, *rest = sentence_lines(fact.text, width - 2 * len(_INDENT))
            yield f"{_INDENT}- {first}"
            yield from (f"{_INDENT}  {line}" for line in rest)


def seconds(value: float) -> str:
    """Return a time in the unit that suits it."""
    return human_time(1e6 * value)


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent."""
    percent = 100 * part / whole if whole else 0.0
    return "under 0.1 %" if 0 < percent < _LEAST else f"{percent:.3g} %"


def quoted(name: str) -> str:
    """Return a name that comes from a file, so that nothing in it steers a terminal."""
    return f"'{name}'" if name.isprintable() and "'" not in name else name_text(name)


__all__ = ["Explanation", "Fact", "Number", "human_bytes", "quoted", "seconds", "share"]


def value_text(rebuilt: Rebuilt, view: DataflowView, value: str) -> str:
    """Return the name of the symbol that `value` is in, or else who makes it.

    A copy of a clone is called after what the clone reads.
    """
    plans = rebuilt.plans
    for base in (value, *view.behind(value)):
        symbol = plans.persistent.symbol(base)
        if symbol in plans.lifetimes:
            return quoted(symbol)
        maker = view.producer.get(base)
        if maker is not None and not view.ops[maker].cloned:
            return f"what {quoted(maker)} makes"
    return "a constant"
