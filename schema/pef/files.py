"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new, empty file that takes the place of `target` once all of it is on the disk.

    If anything is raised, an interrupt included, the new file goes away and an older `target`
    stays as it was. A link stays one: the file behind it is replaced. Raises `OSError`, which
    names `target`, where nothing can be written, and for a folder, device or pipe, which must
    never be replaced.
    """
    path = Path(os.path.realpath(target))
    if path.exists() and not path.is_file():
        raise IsADirectoryError(None, "it is no regular file", str(path))
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    try:
        file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            yield temporary
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # A full disk names no file, and nobody knows the temporary one.
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = os.fspath(target)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, where the file system can: the file is in place either way."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
