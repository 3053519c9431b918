"""An open PEF and the sessions made from it: what an executable and its clones share.

Hashes are checked in the background, beside the creation of sessions, and joined before any result.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

import pef
from pef import dtypes
from pef.defaults import Default, decode
from pef.states import States, is_training, states_of
from pef.wording import listed
from sambarun.arrays import Array, address_of
from sambarun.errors import RunError
from sambarun.forks import tell_child
from sambarun.linking.schedule import Unit
from sambarun.sessions.host_features import host_features
from sambarun.sessions.making import Store
from sambarun.sessions.opening import Tuning, begin_arena
from sambarun.sessions.ports import Compiled
from sambarun.turns import Mutex

from .memory import TensorAt
from .weights import static_shape

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


class Image:
    """An open PEF and its sessions. Threads may share it; the last user closes the file.

    A user is whatever `share` and `release` are given. One that was forgotten counts no more.
    """

    def __init__(self, file: pef.PefFile, tuning: Tuning) -> None:
        self.file = file
        self.program = file.program
        self.tuning = tuning._replace(
            moves=not is_training(file.program),
            scales=all(symbol.dtype != dtypes.DOUBLE for symbol in file.program.symbols),
        )
        self.checks = Checks(file)
        self._clean_up: weakref.finalize[..., Image] | None = None
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.one = Mutex()
        self.sessions: Store[Compiled] = Store()
        """The sessions that were made, by what decides them; see `Fitted`."""
        self.contained: set[pef.DataRef] = set()
        """Programs that were found to read no other file."""
        begin_arena(tuning.provider)

    def share(self, user: object) -> None:
        """Add a user, who must `release` too."""
        with self.one:
            self._users.add(user)

    def release(self, user: object) -> None:
        """Close the file and drop the sessions if this was the last user; twice does no harm."""
        with self.one:
            self._users.discard(user)
            if not self._users:
                self.close()

    def close(self) -> None:
        """Close the file and drop the sessions; twice does no harm."""
        self.sessions.clear()
        begin_arena(self.tuning.provider)  # the process would keep the last one
        self.checks.wait()
        self.file.close()
        if self._clean_up is not None:
            self._clean_up()

    def adopt(self, folder: str) -> None:
        """Remove `folder` when the last user is gone, at the latest when the process ends."""
        # Imported here: programs from files, the common case, start faster without it.
        import shutil

        self._clean_up = weakref.finalize(self, shutil.rmtree, folder, True)
        tell_child(self)

    def leave_to_parent(self) -> None:
        """Let the folder be: the process that this one was forked from goes on using it."""
        if self._clean_up is not None:
            self._clean_up.detach()

    @cached_property
    def states(self) -> States:
        """What the program holds from run to run."""
        return states_of(self.program)

    def content(self, symbol: pef.Symbol) -> TensorAt | Array:
        """Return what the file holds for `symbol`, checked: a tensor over the map, or strings."""
        if symbol.data is None:
            raise RunError(f"The program holds no content for '{symbol.name}'.")
        try:
            data = self.file.bytes(symbol.data)
            found = _decode(data, symbol)
        except pef.PefError as error:
            raise RunError(f"The content of '{symbol.name}' is damaged: {error}") from error
        if isinstance(found.elements, tuple):
            return np.array(found.elements, object).reshape(found.shape)
        raw = np.frombuffer(found.elements, np.uint8)
        return TensorAt(raw, address_of(raw), symbol.dtype, found.shape)

    def describe(self, unit: Unit) -> str:
        """Return what to call `unit` in a message."""
        first = self.program.sections[unit.sections[0]]
        if len(unit.sections) == 1:
            return f"Section {unit.sections[0]} '{first.name}'"
        last = self.program.sections[unit.sections[-1]]
        return (
            f"The linked sections {unit.sections[0]} '{first.name}' to "
            f"{unit.sections[-1]} '{last.name}'"
        )

    def check_weights(self, unit: Unit) -> None:
        """Start to check the content of the unit's weights."""
        self.checks.start(
            (symbol.data, f"Weight '{symbol.name}'")
            for symbol in (self.program.symbols[index] for index in unit.weights)
            if symbol.data is not None
        )

    def check_identity(self) -> None:
        """Make sure that onnxruntime, which opens the file by its path, got the same file."""
        try:
            status = os.stat(self.file.path)
        except OSError as error:
            raise RunError(f"{self.file.path} disappeared while it was loaded.") from error
        if (status.st_dev, status.st_ino) != self.file.identity:
            raise RunError(f"{self.file.path} was replaced while it was loaded; load it again.")
        if status.st_size < self.file.header.total_size:
            raise RunError(f"{self.file.path} was cut short while it was loaded; load it again.")

    @cached_property
    def features(self) -> frozenset[str]:
        """What this host has of what programs may require."""
        return host_features(self.tuning)


def _decode(data: memoryview, symbol: pef.Symbol) -> Default:
    """Return the content of `symbol`, which brings its shape where the symbol leaves it open."""
    size = dtypes.static_nbytes(symbol.dtype, symbol.shape)
    if size is None:
        return decode(data, symbol)
    if size != len(data):
        raise pef.PefError(f"it has {len(data)} bytes, its shape and type need {size}")
    return Default(static_shape(symbol) or (), data)
