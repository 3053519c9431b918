"""Hash checks in the background, beside the creation of sessions, joined before any result."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import pef

from .errors import RunError

# What to check, and how to call it if it is damaged.
Item = tuple[pef.DataRef, str]


class Checks:
    """Verifies parts of a PEF on threads of its own; each part is hashed once per open file."""

    def __init__(self, file: pef.PefFile) -> None:
        self._file = file
        self._running: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._damaged: list[str] = []

    def start(self, items: Sequence[Item]) -> None:
        """Begin to check `items` and return at once."""
        if items:
            thread = threading.Thread(target=self._check, args=(items,), name="sambarun-checks")
            with self._lock:
                self._running.append(thread)
                thread.start()

    def start_weights(self, symbols: Iterable[pef.Symbol]) -> None:
        """Begin to check what the file holds for `symbols` and return at once."""
        self.start([(s.data, f"Weight '{s.name}'") for s in symbols if s.data is not None])

    def join(self) -> None:
        """Wait for what was started. Raises `RunError` that names what is damaged."""
        self.wait()
        if self._damaged:
            raise RunError("\n".join(self._damaged))

    def wait(self) -> None:
        """Wait for what was started, whatever it found."""
        if self._running:
            with self._lock:
                for thread in self._running:
                    thread.join()
                self._running.clear()

    def _check(self, items: Sequence[Item]) -> None:
        for ref, what in items:
            try:
                self._file.check(ref)
            except pef.PefError as error:
                self._damaged.append(f"{what} is damaged: {error}")
                return
