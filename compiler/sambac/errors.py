"""The two ways a compilation can fail: the user's model or options, or ourselves.

Messages are one or two sentences that name what came, what was expected and the cure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from traceback import walk_stack, walk_tb
from types import FrameType

from pef.arguments import Kind, misfits
from pef.wording import listed


class CompileError(Exception):
    """The model or the options cannot be compiled as given; the message says what to change."""


class InternalError(Exception):
    """The compiler broke one of its own rules; the message names the pass and the node."""


def require_arguments(**arguments: tuple[object, Kind]) -> None:
    """Raise `CompileError` with a sentence for each argument that is not of its kind."""
    problems = misfits(**arguments)
    if problems:
        raise CompileError("\n".join(problems))


def require(stage: str, problems: Sequence[str]) -> None:
    """Raise `InternalError` if a checker found `problems` in what `stage` made."""
    if problems:
        raise InternalError(f"{stage} made a plan that its checker rejects: {listed(problems)}")


def root_cause(error: BaseException) -> BaseException:
    """Return what went wrong first: libraries wrap it, or fail again while they say it."""
    return list(causes(error))[-1]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, which is being handled, and what it was raised for, the first cause last.

    What was raised `from None` has no cause: who raised it has seen what came before. Nor is it a
    cause what a caller of the compiler was handling already, as one that compiles another model in
    an `except` block.
    """
    outside = _callers(error)
    cause: BaseException | None = error
    seen: set[int] = set()  # errors may be raised from each other in a circle
    while cause is not None and (cause is error or _handler(cause) not in outside):
        if id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _callers(error: BaseException) -> frozenset[FrameType | None]:
    """Return the frames of other packages that led to where `error` is handled."""
    raised = {frame for frame, _ in walk_tb(error.__traceback__)}
    before = (frame for frame, _ in walk_stack(_handler(error)) if frame not in raised)
    return frozenset(frame for frame in before if not _is_own(frame))


def _handler(error: BaseException) -> FrameType | None:
    """Return the frame that `error` has come up to."""
    return None if error.__traceback__ is None else error.__traceback__.tb_frame


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "sambac"
