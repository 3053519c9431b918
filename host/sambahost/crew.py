"""Who does the work of devices: a thread for each, or the caller for one after the other.

Between threads are queues, whose waits end with the pipeline: its error reaches who waits.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeAlias, TypeVar

Item = TypeVar("Item")
_LOOK = 0.1
"""Seconds after which who waits looks whether everything has ended."""


class StoppedError(Exception):
    """The pipeline ends while something waits."""


class _Signal:
    """Wakes the one thread that waits for something, in C, which takes less than a condition.

    Who waits says so first and looks then; who changes something does it first and looks then
    whether somebody waits. So nobody is forgotten; being woken for nothing does no harm.
    """

    __slots__ = ("_awaited", "_tokens")

    def __init__(self) -> None:
        self._awaited = False
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait as long as something `holds`, or a while."""
        self._awaited = True  # until it is woken: another wait may have begun by then
        if holds():
            with suppress(queue.Empty):
                self._tokens.get(timeout=_LOOK)

    def give(self) -> None:
        """Wake who waits."""
        if self._awaited:
            self._awaited = False
            self._tokens.put(None)


class Channel(Generic[Item]):
    """A queue of at most `size` items, 0 for any number, whose waits end with `stopped`.

    One thread adds where there is a size, one takes: who waits for an item and who waits for room
    have a signal each. Who finds an item, or room, takes no lock.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._items: deque[Item] = deque()
        self._item, self._room = _Signal(), _Signal()

    def add(self, item: Item) -> None:
        """Add an item; for queues of any number."""
        self._items.append(item)
        self._item.give()

    def put(self, item: Item, stopped: threading.Event, *, waits: bool = True) -> None:
        """Add an item, and before it wait for room, unless nobody takes items meanwhile.

        One thread does. Raises `StoppedError` if all ends.
        """
        while waits and self._size and len(self._items) >= self._size:
            if stopped.is_set():
                raise StoppedError
            self._room.wait(lambda: len(self._items) >= self._size)
        if stopped.is_set():
            raise StoppedError
        self.add(item)

    def get(self, stopped: threading.Event) -> Item:
        """Return the next item when there is one. Raises `StoppedError` if all ends before."""
        while not stopped.is_set():
            try:
                item = self._items.popleft()
            except IndexError:
                self._item.wait(lambda: not self._items)
                continue
            self._room.give()
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
        self._room.give()


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


_Answer = TypeVar("_Answer")
_ENDING = 1.0
"""Seconds that a thread may take from its last result to the end of what it was told."""
FOREVER = 0


def _nothing(_index: int) -> None:
    """Do nothing first."""


class Action(NamedTuple):
    """What each device does, by its index: `begin`, then `step` so often, or `FOREVER`, then `end`.

    `end` comes whatever happens. `backward` says that what a device gets comes from the one behind
    it.
    """

    step: Callable[[int], None]
    times: int = 1
    begin: Callable[[int], None] = _nothing
    backward: bool = False
    end: Callable[[int], None] = _nothing


Actions: TypeAlias = Callable[[], Iterable[Action]]
"""Returns what is to be done; each thread asks for itself."""


class Crew:
    """A thread for each device, from the first order on.

    What fails in a thread is kept as `error`, ends all, and is raised by `get` of `queues`, which
    get results. `dropped` is called then, and when all is stopped before its end. `raises` makes
    errors of an API from sentences.
    """

    def __init__(
        self,
        names: Sequence[str],
        queues: Iterable[queue.Queue[object]],
        dropped: Callable[[], None],
        raises: Callable[[str], Exception],
    ) -> None:
        self.stopped = threading.Event()
        self.error: BaseException | None = None
        self._dropped = dropped
        self._raises = raises
        self._names = tuple(names)
        self._orders: list[Channel[Actions]] = [Channel() for _ in names]
        self._given = [0] * len(self._names)
        self._done = [0] * len(self._names)
        self._threads: list[threading.Thread] = []
        for results in queues:
            let_fail(results, self._ended)

    def begin(self, actions: Actions, in_sequence: bool, only: int | None = None) -> None:
        """Let threads do `actions` and return at once, or do them in sequence; `only` one device.

        Of others it takes what they have given so far, or what they give; nobody need take what it
        gives before it ends, so that it must not wait for room.
        """
        if in_sequence:
            self.do(actions, only)
        else:
            self.order(actions, only)

    def order(self, actions: Actions, only: int | None = None) -> None:
        """Let threads do `actions`, which each of them goes through, after what came before."""
        self.require_well()
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, args=(index,), daemon=True, name=name)
                for index, name in enumerate(self._names)
            ]
            for thread in self._threads:
                thread.start()
        for index in range(len(self._names)) if only is None else (only,):
            self._given[index] += 1
            self._orders[index].add(actions)

    def do(self, actions: Actions, only: int | None = None) -> None:
        """Do `actions`, each step on all devices in turn. What fails is raised, and kept too.

        Raises what `raises` makes while threads are at work.
        """
        self.require_idle()
        try:
            for action in actions():
                indices = range(len(self._names)) if only is None else (only,)
                try:
                    for index in indices:
                        action.begin(index)
                    for _ in range(action.times):
                        for index in reversed(indices) if action.backward else indices:
                            action.step(index)
                finally:
                    for index in indices:
                        action.end(index)
        except BaseException as error:
            self._fail(error)
            raise

    def ask(self, question: Callable[[int], _Answer]) -> Callable[[], list[_Answer]]:
        """Return what waits for what `question` gives for each device, after what came before."""
        self.require_well()
        if not self._is_busy():
            found = [question(index) for index in range(len(self._names))]
            return lambda: found
        answers: list[Channel[_Answer]] = [Channel() for _ in self._names]
        self.order(lambda: [Action(lambda index: answers[index].add(question(index)))])
        return lambda: [self._answered(answer) for answer in answers]

    def require_well(self) -> None:
        """Raise what `raises` makes if a device has failed."""
        if self.error is not None:
            raise self._raises(
                f"the pipeline has failed ({self.error}); initialize it again"
            ) from self.error

    def require_idle(self) -> None:
        """Raise what `raises` makes if a device has failed, and while threads are at work."""
        self.require_well()
        self.settle()
        if self._is_busy():
            raise self._raises("microbatches are running; get their results before others")

    def settle(self) -> None:
        """Give threads the moment that they need to end a step whose results are there."""
        last = time.monotonic() + _ENDING
        while self._is_busy() and self.error is None and time.monotonic() < last:
            time.sleep(0.001)

    def stop(self) -> None:
        """End all threads, after the microbatch that each is at; what they have not run is lost."""
        self.stopped.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        # Threads at their ends are done by now. After an error inputs are the next pipeline's.
        if self._is_busy() and self.error is None:
            self._dropped()

    def interrupt(self) -> None:
        """End all threads in the middle of what they do, as long as that is Python; for good.

        Compiling takes seconds, for which nobody waits who leaves.
        """
        self.stopped.set()
        for thread in self._threads:
            thread.join(_LOOK)
            while thread.is_alive():
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
                )
                thread.join(_ENDING)

    def _answered(self, answer: Channel[_Answer]) -> _Answer:
        try:
            return answer.get(self.stopped)
        except StoppedError:
            raise (self._ended() or self._raises("the pipeline has ended")) from self.error

    def _is_busy(self) -> bool:
        return self._done != self._given

    def _ended(self) -> Exception | None:
        """Return why no more results come, None if more may."""
        if not self.stopped.is_set():
            return None
        ended = self._raises("the pipeline was ended before all of its results were there")
        return self.error if isinstance(self.error, Exception) else ended

    def _work(self, index: int) -> None:
        """Do what a thread does: wait for orders, and carry them out."""
        try:
            while True:
                for action in self._orders[index].get(self.stopped)():
                    try:
                        action.begin(index)
                        done = 0
                        while action.times == FOREVER or done < action.times:
                            action.step(index)
                            done += 1
                    finally:
                        action.end(index)
                self._done[index] += 1
        except StoppedError:
            return
        except BaseException as error:  # it goes to who waits for results, whatever it is
            error.add_note(f"on device '{self._names[index]}'")
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.error = error
        self.stopped.set()
        self._dropped()
