"""Loading: from a file or a program in memory to an executable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pef

from .checks import Checks
from .errors import RunError

if TYPE_CHECKING:
    from .executor import Executable


def load(
    source: str | os.PathLike[str] | pef.Program,
    *,
    threads: int | None = None,
    own_process: bool = False,
    link: bool = True,
    prepack: bool = True,
    one_shot: bool = False,
    check_ahead: bool = False,
) -> Executable:
    """Open a PEF, or take a program that is in memory, and make it ready to run.

    `threads` limits how many threads an operator uses (None: one per core). `own_process` says
    that nothing else in this process uses onnxruntime: all sessions then share one pool of
    threads, which is fastest for many sections, but cannot be undone and breaks other sessions.
    `link` lets adjacent sections run as one. `prepack=False` leaves weights in the file instead of
    rearranging a copy, which starts faster, needs less memory and runs slower. `one_shot` chooses
    all such trade-offs for a program that runs once. `check_ahead` begins at once to check the
    content of all weights, for a program whose whole schedule will run; without it weights are
    checked when a section that reads them is first prepared.

    The file must not be changed in place while the executable lives; replacing it is harmless.
    Raises `pef.PefError` if the file is no valid PEF, `RunError` if it cannot be run here.
    """
    file, folder = _store(source) if isinstance(source, pef.Program) else (_open(source), None)
    checks = Checks(file)
    if check_ahead:
        checks.start_weights(file.program.symbols)

    try:
        # Imported here, while the content is being checked: loading onnxruntime takes as long as
        # checking 100 MB.
        from . import threads as threading_modes
        from .executor import Executable
        from .image import Image
        from .sessions import Tuning

        tuning = Tuning(
            threads=threading_modes.choose(threads, own_process),
            prepack=prepack and not one_shot,
            optimize=not one_shot,
        )
        return Executable(Image(file, tuning, checks, folder), link)
    except BaseException:
        checks.wait()
        file.close()
        _remove(folder)
        raise


def _open(path: str | os.PathLike[str]) -> pef.PefFile:
    """Open a file."""
    file = pef.open(path)
    if not file.program.graphs:
        raise RunError(f"{file.path} has no graph to run.")
    return file


def _store(program: pef.Program) -> tuple[pef.PefFile, str]:
    """Write `program` to a file in a temporary folder of its own and open it."""
    # Imported here: programs from files, the common case, start faster without it.
    import tempfile

    folder = tempfile.mkdtemp(prefix="sambarun-")
    try:
        path = os.path.join(folder, "program.pef")
        program.save(path)
        return _open(path), folder
    except BaseException:
        _remove(folder)
        raise


def _remove(folder: str | None) -> None:
    """Remove a temporary folder, if there is one."""
    if folder is not None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
