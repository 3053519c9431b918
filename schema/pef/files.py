"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a new, empty file that takes the place of `target` when all goes well.

    If anything is raised, an interrupt included, the new file goes away and an older `target`
    stays as it was. A link stays one: the file behind it is replaced. Raises `OSError` where
    nothing can be written, and for a folder, device or pipe, which must never be replaced.
    """
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file():
        raise IsADirectoryError(None, "it is no regular file", str(target))
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the process's umask; there is no way to ask but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
