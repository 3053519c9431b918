"""The one error of the runtime."""

from __future__ import annotations


class RunError(Exception):
    """A program cannot be loaded or run as asked.

    The message is one or two sentences: what came, what was expected, and the cure. Where several
    things are wrong at once, each has a line of its own.
    """
