"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

_RANDOM = re.compile(r"[0-9a-f]{16}\.tmp")
_SHOWN = 32
"""So many characters of its target's name stand in that of a new file, which has a limit."""


@contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new, empty file that takes the place of `target` once all of it is on the disk.

    If anything is raised, an interrupt included, the new file goes away and an older `target`
    stays as it was. A link stays one: the file behind it is replaced. What a writer of the same
    target has left that was killed is removed. Raises `OSError`, which names `target`, where
    nothing can be written, and for a folder, device or pipe, which must never be replaced.
    """
    path = Path(os.path.realpath(target))
    if path.exists() and not path.is_file():
        raise IsADirectoryError(None, "it is no regular file", str(path))
    start = f".{in_text(path.name[:_SHOWN])}."
    _remove_abandoned(path.parent, start)
    temporary = path
    try:
        temporary, file = _own_file(path.parent, start)
        try:
            yield temporary
            os.fsync(file.fileno())
            os.replace(temporary, path)  # before it is closed: nobody else may remove it
        finally:
            file.close()
    except BaseException as error:
        if temporary != path:
            temporary.unlink(missing_ok=True)
        # A full disk names no file, and nobody knows the temporary one.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = os.fspath(target)
        raise
    _sync_folder(path.parent)


def text_of(source: str | os.PathLike[str], encoding: str = "utf-8") -> str:
    """Return the text of a file or pipe. Raises `OSError`, also for a device: some never end."""
    path = Path(source)
    if path.is_char_device() or path.is_block_device():
        raise OSError(None, "it is a device", str(path))
    return path.read_text(encoding)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `target` as UTF-8, whole or not at all; raises `OSError` as `replacing`."""
    with replacing(target) as temporary:
        temporary.write_text(in_text(text), encoding="utf-8", newline="\n")


def in_text(name: str) -> str:
    r"""Return a name of a file as text: a byte that is no UTF-8 is spelled out, as in `\xff`.

    Python keeps such a byte as a lone surrogate, which files and libraries refuse.
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@contextmanager
def folder_in_text(folder: str) -> Iterator[str]:
    """Yield a name of `folder` for libraries that take text alone; valid as long as it is open.

    Every other name than one with bytes that are no UTF-8 is yielded as it is.
    """
    if in_text(folder) == folder:
        yield folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _own_file(folder: Path, start: str) -> tuple[Path, FileIO]:
    """Return a new file, by its name and open: its lock says that somebody is writing.

    The system takes the lock away from who dies, and Python closes what nobody has any more: an
    interrupt leaves no lock behind, wherever it comes. Until the lock is there, another writer may
    take the file for one that was abandoned; then there is another one.
    """
    while True:
        temporary = folder / f"{start}{os.urandom(8).hex()}.tmp"
        try:
            file = FileIO(os.fspath(temporary), "x")
        except OSError as error:
            error.filename = None
            raise
        try:
            with suppress(_NoLocksError):
                _lock(file.fileno())
            if os.path.samestat(os.stat(temporary), os.fstat(file.fileno())):
                return temporary, file
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()


class _NoLocksError(OSError):
    """The file system has no locks; what is abandoned there stays."""


def _lock(file: int) -> None:
    """Lock a file; raise `BlockingIOError` if another has it, `_NoLocksError` if there are none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocksError(*error.args) from error


def _remove_abandoned(folder: Path, start: str) -> None:
    """Remove the new files of writers that are no longer alive, as far as that can be done."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(start) and _RANDOM.fullmatch(entry.name[len(start) :]):
                with suppress(OSError):
                    _remove_unlocked(entry.path)


def _remove_unlocked(path: str) -> None:
    with FileIO(path, "r", opener=_opener) as file:
        _lock(file.fileno())
        os.unlink(path)


def _opener(path: str, flags: int) -> int:
    """Open neither what a link leads to nor a pipe that waits for its writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the file system can: the file is in place either way."""
    with suppress(OSError):  # it may be written into, and not be read
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
