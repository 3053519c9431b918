"""The one error of the runtime, what it warns of, and the check of public arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pef.arguments import ANY, Kind, misfits, named
from pef.wording import listed

_NAMES_SHOWN = 10


class RunError(Exception):
    """A program cannot be loaded or run as asked.

    The message is one or two sentences: what came, what was expected, and the cure. Where several
    things are wrong at once, each has a line of its own.
    """


NOT_TRAINING = (
    "The program was not compiled for training; compile it with train=True (sambac compile "
    "--train)."
)
NO_STATES = (
    "The program was not compiled for training, and its weights are constants; compile it with "
    "train=True (sambac compile --train)."
)


class OtherProgramWarning(UserWarning):
    """A checkpoint fits, but another program has written it."""


def tell_of_another(path: str, lacks: Sequence[str]) -> None:
    """Warn that another program has written the checkpoint.

    `lacks` are the states that it does not have, and that are zeros therefore.
    """
    # Imported here: few processes read checkpoints, and all wait for imports.
    from pef.warned import warn

    names = listed([f"'{name}'" for name in lacks], _NAMES_SHOWN, ", ")
    warn(
        f"{path} is of another program, whose state fits this one in all names, shapes "
        f"and types. Training goes on from it; how many batches of the epoch are done is counted "
        f"in batches of this program."
        + (f" That program had left out {names}, which are 0 now." if lacks else ""),
        OtherProgramWarning,
    )


_T = TypeVar("_T")
INPUTS = named(ANY, "a dict of arrays by the names of inputs")


def require(**arguments: tuple[object, Kind]) -> None:
    """Raise `RunError` with a line for each argument that is not of its kind."""
    problems = misfits(**arguments)
    if problems:
        raise RunError("\n".join(problems))


def items(name: str, asked: Iterable[_T], kind: Kind) -> tuple[_T, ...]:
    """Return what an argument lists. Raises `RunError` unless it is of a kind of lists."""
    given: object = asked  # which may be anything
    listing = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    try:
        found = tuple(asked) if listing else given
    except TypeError:  # an array of one number, which has no axis
        found = given
    require(**{name: (found, kind)})
    return tuple(asked) if not isinstance(found, tuple) else found
