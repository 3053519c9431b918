"""Hash checks in the background, beside the creation of sessions, joined before any result."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

import pef

from .errors import RunError

# What to check, and how to call it if it is damaged.
Item = tuple[pef.DataRef, str]


class Checks:
    """Verifies parts of a PEF on a thread of its own, each part once.

    One thread for all, because neighbouring parts lie in the same leaves, and two threads that
    come to a leaf at once would both hash it.
    """

    def __init__(self, file: pef.PefFile) -> None:
        self._file = file
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._seen: set[pef.DataRef] = set()
        self._damaged: list[str] = []

    def start(self, items: Iterable[Item]) -> None:
        """Begin to check those of `items` that are new and return at once."""
        with self._lock:
            for item in items:
                if item[0] not in self._seen:
                    self._seen.add(item[0])
                    self._waiting.append(item)
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sambarun-checks")
                self._thread.start()

    def join(self) -> None:
        """Wait for what was started. Raises `RunError` that names what is damaged."""
        self.wait()
        if self._damaged:
            raise RunError("\n".join(self._damaged))

    def wait(self) -> None:
        """Wait for what was started, whatever it found."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        """Check what is waiting until nothing is."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                ref, what = self._waiting.popleft()
            try:
                self._file.check(ref)
            except pef.PefError as error:
                self._damaged.append(f"{what} is damaged: {error}")
