"""Things that take long to make, each made once, whoever is interrupted while waiting for it.

An interrupt comes to the main thread. What a foreign function returns there is lost if one came
meanwhile, and with it all the work; so it is called in a thread of its own, which keeps what it
made for whoever asks again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sambarun.errors import RunError
from sambarun.turns import Mutex

T = TypeVar("T")


class Making(Generic[T]):
    """One thing that a thread makes; `mutex` lets one of several threads work at a time."""

    def __init__(self, make: Callable[[], T], mutex: Mutex) -> None:
        self._make = make
        self._mutex = mutex
        self._unclaimed = [True]
        self._over = threading.Event()
        self._made: list[T] = []
        self._error: Exception | None = None

    @property
    def failed(self) -> bool:
        """Whether an exception came of it: whoever wants the thing has it made anew."""
        return self._error is not None

    def wait(self) -> T:
        """Return the thing once it is made; raise what making it has raised."""
        self.settle()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def settle(self) -> None:
        """Have the thing made, and return when it is or cannot be.

        Raises `RunError` where the system has no thread for it.
        """
        # An interrupted start may have started a thread or not; a second one finds nothing to do.
        if self._unclaimed:
            try:
                threading.Thread(target=self._work, name="sambarun-making").start()
            except RuntimeError as error:
                raise RunError("The system does not allow this process another thread.") from error
        self._over.wait()

    def abandon(self) -> None:
        """Return when nobody makes the thing, and nobody will."""
        try:
            self._unclaimed.pop()
        except IndexError:
            self._over.wait()

    def _work(self) -> None:
        try:
            self._unclaimed.pop()
        except IndexError:
            return
        try:
            with self._mutex:
                self._made.append(self._make())
        except Exception as error:  # whoever waits gets it, whatever it is
            self._error = error
        self._over.set()


class Store(Generic[T]):
    """Things by key, of which each is made when first asked for."""

    def __init__(self) -> None:
        self._things: dict[Hashable, Making[T]] = {}
        self._mutex = Mutex()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the thing under `key`; `make` makes it if it is not there."""
        thing = self._things.get(key)
        if thing is None:
            thing = self._things.setdefault(key, Making(make, self._mutex))
        try:
            return thing.wait()
        finally:
            if thing.failed:
                self._things.pop(key, None)

    def clear(self) -> None:
        """Forget all things, when none is being made any more."""
        for thing in tuple(self._things.values()):
            thing.abandon()
        self._things.clear()
