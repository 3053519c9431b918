"""Loading: from a file or a program in memory to an executable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pef

from . import threads as threading_modes
from .errors import RunError
from .executor import Executable
from .image import Image
from .sessions import Tuning

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory


def load(
    source: str | os.PathLike[str] | pef.Program,
    *,
    threads: int | None = None,
    own_process: bool = False,
    link: bool = True,
    prepack: bool = True,
    one_shot: bool = False,
) -> Executable:
    """Open a PEF, or take a program that is in memory, and make it ready to run.

    `threads` limits how many threads an operator uses (None: one per core). `own_process` says
    that nothing else in this process uses onnxruntime: all sessions then share one pool of
    threads, which is fastest for many sections, but cannot be undone and breaks other sessions.
    `link` lets adjacent sections run as one. `prepack=False` leaves weights in the file instead of
    rearranging a copy, which starts faster, needs less memory and runs slower. `one_shot` chooses
    all such trade-offs for a program that runs once.

    The file must not be changed in place while the executable lives; replacing it is harmless.
    Raises `pef.PefError` if the file is no valid PEF, `RunError` if it cannot be run here.
    """
    tuning = Tuning(
        threads=threading_modes.choose(threads, own_process),
        prepack=prepack and not one_shot,
        optimize=not one_shot,
    )
    scratch: TemporaryDirectory[str] | None = None
    if isinstance(source, pef.Program):
        # Imported here: programs from files, the common case, start faster without it.
        from tempfile import TemporaryDirectory

        scratch = TemporaryDirectory(prefix="sambarun-")
        path = os.path.join(scratch.name, "program.pef")
        source.save(path)
    else:
        path = os.fspath(source)
    file = pef.open(path)
    if not file.program.graphs:
        raise RunError(f"{path} has no graph to run.")
    return Executable(Image(file, tuning, scratch), link)
