"""Warnings at the line of the application, however deep inside of the toolchain they arise."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_INSIDE = frozenset(
    {"click", "contextlib", "pef", "samba_cli", "sambac"}
    | {"pybuda", "sambaflow", "sambahost", "sambarun", "torch"}
)
"""Packages whose lines tell a user nothing: the toolchain's own, and what calls it on the way."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the innermost line on the stack that is outside of the toolchain.

    Where all lines are inside, as in a command, that is the outermost one.
    """
    frame = _outside(sys._getframe(1))
    names = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=str(names.get("__name__", "")),
        registry=names.setdefault("__warningregistry__", {}),
    )


def _outside(frame: FrameType) -> FrameType:
    while frame.f_back is not None and is_inside(frame):
        frame = frame.f_back
    return frame


def is_inside(frame: FrameType) -> bool:
    """Tell whether what runs in `frame` is the toolchain's own, or called on the way there."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _INSIDE
