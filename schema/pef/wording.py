"""Turns of phrase that the messages of all packages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` with the known word that is most like `word`, or nothing.

    What is no word is taken as text. Upper and lower case make no difference; of words that differ
    in it alone the first counts. The initials of a word are most like it: `wd` is `weight_decay`,
    and `learning_rate` is `lr`.
    """
    # Imported where a message needs it: every start of a program would pay for it otherwise.
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.casefold(), name)
    asked = str(word).casefold()
    short = [n for n in by_folded if _is_short_for(asked, n) or _is_short_for(n, asked)]
    close = short[:1] or get_close_matches(asked, list(by_folded), n=1)
    return f" (did you mean '{by_folded[close[0]]}'?)" if close else ""


def _is_short_for(initials: str, word: str) -> bool:
    """Tell whether a word of several parts begins its parts with these initials."""
    parts = [part for part in word.split("_") if part]
    return len(parts) > 1 and initials == "".join(part[0] for part in parts)


def listed(items: Sequence[str], most: int = 5, separator: str = "; ") -> str:
    """Return the first `most` of `items` in a row, and how many more there are."""
    shown = separator.join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown


def larger_than_chip(section: str) -> str:
    """Return how a warning begins that tells of a section which the chip does not hold."""
    return f"section {section} is larger than the chip"


_COMPILING = ("sambac", "onnx", "onnx_ir", "onnxscript", "networkx", "yaml", "ml_dtypes")
"""What compiling imports beyond what running needs."""


def to_compile_with(error: ModuleNotFoundError) -> str:
    """Return what to install where something that only compiling needs is absent, or nothing."""
    if (error.name or "").partition(".")[0] not in _COMPILING:
        return ""
    return (
        f"this needs libraries of the compiler, and {error.name} is not installed. Install them "
        f"with pip install onnx onnx-ir onnxscript networkx PyYAML; sambarun works without them."
    )
