"""Queues between threads: waits end with the pipeline, and its error reaches who waits."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")
_LOOK = 0.1
"""Seconds after which who waits looks whether everything has ended."""


class StoppedError(Exception):
    """The pipeline ends while something waits."""


class Channel(Generic[Item]):
    """A queue of at most `size` items, 0 for any number, whose waits end with `stopped`.

    Who finds an item, or room, takes no lock: with those of `queue.Queue` a microbatch takes
    several microseconds more. `_waits` counts who is about to wait: whoever adds an item, or takes
    one, looks at it afterwards, and so wakes who has looked before.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._waits = 0

    def add(self, item: Item) -> None:
        """Add an item; for queues of any number."""
        self._items.append(item)
        self._wake()

    def put(self, item: Item, stopped: threading.Event) -> None:
        """Add an item when there is room; one thread does. Raises `StoppedError` if all ends."""
        while self._size and len(self._items) >= self._size:
            self._wait(stopped, lambda: len(self._items) >= self._size)
        if stopped.is_set():
            raise StoppedError
        self.add(item)

    def get(self, stopped: threading.Event) -> Item:
        """Return the next item when there is one. Raises `StoppedError` if all ends before."""
        while not stopped.is_set():
            try:
                item = self._items.popleft()
            except IndexError:
                self._wait(stopped, lambda: not self._items)
                continue
            self._wake()
            return item
        raise StoppedError

    def take(self) -> Item | None:
        """Return the next item, None if there is none."""
        try:
            return self._items.popleft()
        except IndexError:
            return None

    def peek(self) -> Item | None:
        """Return the next item and leave it, None if there is none."""
        try:
            return self._items[0]
        except IndexError:
            return None

    def size(self) -> int:
        """Return how many items there are now."""
        return len(self._items)

    def require(self, count: int, what: str, raises: Callable[[str], Exception]) -> None:
        """Raise an error if fewer than `count` of `what` wait: nobody would add them now."""
        if self.size() < count:
            raise raises(f"{self.size()} {what} were pushed, {count} are to run")

    def clear(self) -> None:
        """Drop all items."""
        self._items.clear()
        self._wake()

    def _wait(self, stopped: threading.Event, holds: Callable[[], bool]) -> None:
        """Wait as long as something `holds`, or a while. Raises `StoppedError` if all ends."""
        if stopped.is_set():
            raise StoppedError
        with self._changed:
            self._waits += 1
            try:
                if holds():
                    self._changed.wait(_LOOK)
            finally:
                self._waits -= 1

    def _wake(self) -> None:
        if self._waits:
            with self._changed:
                self._changed.notify_all()


def put(items: queue.Queue[Item], item: Item, stopped: threading.Event) -> None:
    """Add an item when there is room. Raises `StoppedError` if all ends before."""
    while not stopped.is_set():
        try:
            return items.put(item, timeout=_LOOK)
        except queue.Full:
            continue
    raise StoppedError


def let_fail(results: queue.Queue[object], ended: Callable[[], Exception | None]) -> None:
    """Let `get` of a queue, which may be a program's own, raise what `ended` returns.

    That is None as long as more may come. What came before is given first.
    """
    vars(results).pop("get", None)  # of a pipeline before
    plain = results.get

    def get(block: bool = True, timeout: float | None = None) -> object:
        last = None if timeout is None else time.monotonic() + timeout
        while True:
            error = ended()  # before the look: what it follows is in the queue by now
            left = _LOOK if last is None else min(_LOOK, max(0.0, last - time.monotonic()))
            try:
                return plain(block and error is None, left)
            except queue.Empty:
                if error is not None:
                    raise error from error.__cause__
                if not block or (last is not None and time.monotonic() >= last):
                    raise

    results.get = get  # type: ignore[method-assign]  # get_nowait calls it, too
