"""The one exception of this package."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 20


class PefError(Exception):
    """A PEF cannot be read or written. The text is for users: what, where, and the cure.

    `problems` has one sentence per fault, all that were found.
    """

    def __init__(self, message: str, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)

    @classmethod
    def listing(cls, subject: str, problems: Iterable[str]) -> PefError:
        """One error for all `problems` of `subject` (a path): a line each if there are several."""
        found = tuple(problems)
        if len(found) == 1:
            return cls(f"{subject}: {found[0]}", found)
        lines = [f"\n  {problem}" for problem in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"\n  and {len(found) - _SHOWN} more")
        return cls(f"{subject}: {len(found)} problems{''.join(lines)}", found)
