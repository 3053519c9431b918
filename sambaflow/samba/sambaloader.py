"""Batches that are ready before the device asks for them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch

from sambaflow.logging import samba_logger
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import LIMIT, instance
from sambaflow.samba.tensors.conversion import from_torch_tensor
from sambaflow.samba.tensors.tensor import SambaTensor

__all__ = ["DataLoaderException", "SambaLoader"]

Batch: TypeAlias = tuple[object, ...] | dict[str, SambaTensor | None]
"""What an iteration gives: tensors in the order of the names, or by key."""

_MOST_FAILURES = 100
_JOIN_SECONDS = 5.0


class DataLoaderException(RuntimeError):  # noqa: N818  # the name that applications know
    """The loader that a `SambaLoader` wraps raised, or gave no batch in time."""


def identity(batch: object) -> object:
    """Return `batch`."""
    return batch


@dataclass(frozen=True)
class _Failure:
    error: BaseException


class _End:
    """Stands behind the last batch."""


class SambaLoader:
    """Iterates over the batches of `dataloader` as SambaTensors, made by a thread in advance.

    `dataloader` is any iterable of batches. A batch is one tensor, or a sequence of tensors that
    get `names` in order, or a mapping of which the entries called `names` are taken. Arrays of
    NumPy are tensors too, and None stays None. `function_hook` is applied to a batch first. An
    iteration gives a tuple, or a dict of a mapping. `return_original_batch` adds the batch as the
    loader made it, as the last of the tuple, or beside the dict.

    At most `maxsize` batches wait. If none comes within `timeout` seconds, or the loader raises,
    the iteration raises `DataLoaderException` with that as its cause. With
    `ignore_dataloader_exception` batches that cannot be made are left out, unless it is 100 in a
    row. Every `iter` starts the loader and a thread anew; the thread ends with the iteration,
    also one that is left early.
    """

    @checked(dataloader=instance(Iterable, "an iterable of batches"), timeout=LIMIT)
    def __init__(
        self,
        dataloader: Iterable[object],
        names: Sequence[str],
        maxsize: int = 10,
        function_hook: Callable[..., object] = identity,
        return_original_batch: bool = False,
        ignore_dataloader_exception: bool = False,
        timeout: float = 900,
    ) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize is {maxsize}, expected 1 or more batches that may wait")
        self.dataloader = dataloader
        self.names = list(names)
        self._maxsize = maxsize
        self._convert = _Converter(tuple(names), function_hook, return_original_batch)
        self._skip = ignore_dataloader_exception
        self._timeout = timeout

    def __len__(self) -> int:
        """Return how many batches the loader has; raises TypeError if it does not know."""
        if not isinstance(self.dataloader, Sized):
            raise TypeError(f"a {type(self.dataloader).__name__} does not know its length")
        return len(self.dataloader)

    def __iter__(self) -> Iterator[Batch]:
        """Start from the first batch, with a thread of its own."""
        feed = _Feed(self.dataloader, self._convert, self._maxsize, self._skip)
        try:
            while True:
                item = feed.next(self._timeout)
                if isinstance(item, _End):
                    return
                if isinstance(item, _Failure):
                    kind = type(item.error).__name__
                    raise DataLoaderException(
                        f"the data loader raised {kind}: {item.error}"
                    ) from item.error
                yield item
        finally:
            feed.close()


@dataclass(frozen=True)
class _Converter:
    """Makes SambaTensors of a batch."""

    names: tuple[str, ...]
    hook: Callable[..., object]
    return_original: bool

    def __call__(self, original: object) -> Batch:
        batch = self.hook(original)
        if isinstance(batch, Mapping):
            return self._of_mapping(batch, original)
        parts = list(batch) if isinstance(batch, list | tuple) else [batch]
        if len(parts) != len(self.names):
            raise ValueError(
                f"a batch has {len(parts)} parts for the {len(self.names)} names "
                f"{', '.join(self.names)}; a function_hook can choose among them"
            )
        tensors = tuple(map(_named, parts, self.names))
        return (*tensors, original) if self.return_original else tensors

    def _of_mapping(self, batch: Mapping[str, object], original: object) -> Batch:
        absent = [name for name in self.names if name not in batch]
        if absent:
            raise KeyError(f"a batch has {', '.join(map(str, batch))}, but not {', '.join(absent)}")
        tensors = {name: _named(batch[name], name) for name in self.names}
        return (tensors, original) if self.return_original else tensors


def _named(part: object, name: str) -> SambaTensor | None:
    """Return `part` as the input `name`, contiguous, so that a transfer need not copy it first."""
    if part is None:
        return None
    if isinstance(part, np.ndarray):
        part = torch.from_numpy(part)
    if not isinstance(part, torch.Tensor):
        raise TypeError(f"{name} is a {type(part).__name__} in a batch, expected a tensor or None")
    tensor = from_torch_tensor(part.contiguous(), name=name, batch_dim=0)
    tensor.sn_name = name
    return tensor


class _Buffer:
    """Batches on their way from one thread to another, until one side stops.

    A writer that found no room waits until half of it is free: where threads take turns in one
    interpreter, one long turn costs the reader less than many short ones.
    """

    def __init__(self, size: int) -> None:
        self._items: deque[Batch | _Failure | _End] = deque()
        self._changed = threading.Condition()
        self._size = size
        self._stopped = False

    def put(self, item: Batch | _Failure | _End) -> bool:
        """Add `item` when there is room; return whether anybody still wants more."""
        with self._changed:
            if len(self._items) >= self._size:
                half = self._size // 2
                self._changed.wait_for(lambda: self._stopped or len(self._items) <= half)
            self._items.append(item)
            self._changed.notify()
            return not self._stopped

    def get(self, timeout: float) -> Batch | _Failure | _End:
        """Take the oldest item. Raises `DataLoaderException` if none comes in `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout):
                raise DataLoaderException(
                    f"no batch came within {timeout:g} s; give SambaLoader a longer timeout, "
                    f"or the data loader more workers"
                )
            item = self._items.popleft()
            if len(self._items) <= self._size // 2:
                self._changed.notify()
            return item

    def stop(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()


class _Feed:
    """A thread that fills a buffer, and an end to it that nothing can prevent.

    The thread does not know the feed, which can be collected while it runs.
    """

    def __init__(
        self, loader: Iterable[object], convert: _Converter, maxsize: int, skip: bool
    ) -> None:
        self._buffer = _Buffer(maxsize)
        thread = threading.Thread(
            target=_produce,
            args=(loader, convert, skip, self._buffer),
            name="SambaLoader",
            daemon=True,
        )
        # Runs when this is collected, and before the interpreter ends, which would otherwise stop
        # the thread in the middle of whatever the loader does.
        self._end = weakref.finalize(self, _stop, self._buffer, thread)
        thread.start()

    def next(self, timeout: float) -> Batch | _Failure | _End:
        return self._buffer.get(timeout)

    def close(self) -> None:
        self._end()


def _stop(buffer: _Buffer, thread: threading.Thread) -> None:
    buffer.stop()
    if thread is not threading.current_thread():
        thread.join(_JOIN_SECONDS)


def _produce(loader: Iterable[object], convert: _Converter, skip: bool, buffer: _Buffer) -> None:
    try:
        for batch in _batches(iter(loader), convert, skip):
            if not buffer.put(batch):
                return
        buffer.put(_End())
    except BaseException as error:  # the consumer raises it, whatever it is
        buffer.put(_Failure(error))


def _batches(loader: Iterator[object], convert: _Converter, skip: bool) -> Iterator[Batch]:
    """Give the batches of `loader`, converted; with `skip` without those that fail."""
    failures = 0
    while True:
        try:
            batch = convert(next(loader))
        except StopIteration:
            return
        except Exception as error:
            failures += 1
            if not skip or failures >= _MOST_FAILURES:
                raise
            samba_logger.warning(f"A batch is left out: {type(error).__name__}: {error}")
            continue
        failures = 0
        yield batch
