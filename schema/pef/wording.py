"""Turns of phrase that the messages of all packages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` with the known word that is most like `word`, or nothing.

    What is no word is taken as text. Upper and lower case make no difference; of words that differ
    in it alone the first counts.
    """
    # Imported where a message needs it: every start of a program would pay for it otherwise.
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for name in known:
        by_folded.setdefault(name.casefold(), name)
    close = get_close_matches(str(word).casefold(), list(by_folded), n=1)
    return f" (did you mean '{by_folded[close[0]]}'?)" if close else ""


def listed(items: Sequence[str], most: int = 5, separator: str = "; ") -> str:
    """Return the first `most` of `items` in a row, and how many more there are."""
    shown = separator.join(items[:most])
    return f"{shown} and {len(items) - most} more" if len(items) > most else shown
