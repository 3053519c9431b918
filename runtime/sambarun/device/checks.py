"""Hash checks in the background, beside the creation of sessions, joined before any result."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

import pef
from pef.wording import listed
from sambarun.errors import RunError

# What to check, and how to call it if it is damaged.
Item = tuple[pef.DataRef, str]


class Checks:
    """Verifies parts of a PEF on a thread of its own, each part once.

    One thread for all, because neighbouring parts lie in the same leaves, and two threads that
    come to a leaf at once would both hash it. What is left to do stays noted until it is done, so
    that an interrupt, wherever it comes, leaves nothing unchecked.
    """

    def __init__(self, file: pef.PefFile) -> None:
        self._file = file
        self._thread: threading.Thread | None = None
        self._left: dict[pef.DataRef, str] = {}
        self._seen: set[pef.DataRef] = set()
        self._damaged: dict[pef.DataRef, tuple[str, str]] = {}  # what, and why

    def start(self, items: Iterable[Item]) -> None:
        """Begin to check those of `items` that are new and return at once."""
        for ref, what in items:
            if ref not in self._seen:
                self._left[ref] = what
                self._seen.add(ref)
        if self._left and (self._thread is None or not self._thread.is_alive()):
            thread = threading.Thread(target=self._work, name="sambarun-checks")
            thread.start()
            self._thread = thread

    def join(self) -> None:
        """Wait for what was started. Raises `RunError` with a line for each damaged segment."""
        self.wait()
        if self._damaged:
            raise RunError("\n".join(_told(self._damaged)))

    def wait(self) -> None:
        """Wait for what was started, whatever it found; do here what no thread does."""
        thread = self._thread
        if thread is not None:
            thread.join()
            self._thread = None
        if self._left:
            self._work()

    def _work(self) -> None:
        """Check what is left until nothing is."""
        while self._left:
            for ref, what in self._left.copy().items():
                try:
                    self._file.check(ref)
                except pef.PefError as error:
                    self._damaged[ref] = what, str(error)
                self._left.pop(ref, None)


def _told(damaged: Mapping[pef.DataRef, tuple[str, str]]) -> Iterator[str]:
    """Yield a line on all that is damaged in a segment, with the first reason."""
    segments: dict[int, list[tuple[str, str]]] = {}
    for ref, found in damaged.items():
        segments.setdefault(ref.segment, []).append(found)
    for rows in segments.values():
        are = "is" if len(rows) == 1 else "are"
        yield f"{listed([what for what, _ in rows], separator=', ')} {are} damaged: {rows[0][1]}"
