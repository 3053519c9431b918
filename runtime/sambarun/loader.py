"""Loading: from a file or a program in memory to an executable."""

from __future__ import annotations

import os

import pef
from pef.arguments import FLAG, PATH, THREADS, Kind, instance

from .device.image import Image
from .errors import RunError, require
from .execution.host_steps import Reducer
from .executor import Executable
from .sessions import threads as threading_modes
from .sessions.opening import Tuning, be_quiet, require_provider
from .sessions.provider import CPU, Provider

_SOURCE = PATH._replace(
    words="the path of a PEF, or a pef.Program,",
    fits=lambda value: isinstance(value, pef.Program) or PATH.fits(value),
)
_REDUCER = Kind(
    "an object with the method `start` of sambarun.Reducer",
    lambda value: callable(getattr(value, "start", None)),
).or_none()

_PROVIDER = instance(Provider, "a sambarun.Provider")


def load(
    source: str | os.PathLike[str] | pef.Program,
    *,
    threads: int | None = None,
    own_process: bool = False,
    link: bool = True,
    prepack: bool = True,
    one_shot: bool = False,
    reducer: Reducer | None = None,
    provider: Provider = CPU,
) -> Executable:
    """Open a PEF, or take a program that is in memory, and make it ready to run.

    `threads` limits how many threads an operator uses, to 1 to 256 (None: one per core).
    `own_process` says that nothing else in this process uses onnxruntime: all sessions then share
    one pool of threads, which is fastest for many sections, but cannot be undone and breaks other
    sessions.
    `link` lets adjacent sections run as one. `prepack=False` leaves weights in the file instead of
    rearranging a copy, which starts faster, needs less memory and runs slower. `one_shot` chooses
    all such trade-offs for a program that runs once. `reducer` reduces gradients over processes
    that train together; without one, REDUCE sections are skipped. `provider` has the kernels that
    run the program; sections that it has not all the kernels for are run by the processor, and
    `Executable.providers` says which.

    The file must not be changed in place while the executable lives; replacing it is harmless.
    Raises `pef.PefError` if the file is no valid PEF, `RunError` if it cannot be run here.
    """
    require(
        source=(source, _SOURCE),
        threads=(threads, THREADS.or_none()),
        reducer=(reducer, _REDUCER),
        provider=(provider, _PROVIDER),
    )
    require(own_process=(own_process, FLAG), link=(link, FLAG))
    require(prepack=(prepack, FLAG), one_shot=(one_shot, FLAG))
    tuning = Tuning(
        threads=threading_modes.choose(threads, own_process),
        prepack=prepack and not one_shot,
        optimize=not one_shot,
        provider=provider,
    )
    if own_process:
        be_quiet()
    require_provider(tuning)
    image = _store(source, tuning) if isinstance(source, pef.Program) else _open(source, tuning)
    try:
        return Executable(image, link, reducer)
    except BaseException:
        image.close()
        raise


def _open(path: str | os.PathLike[str], tuning: Tuning) -> Image:
    """Open a file."""
    file = pef.open(path)
    if not file.program.graphs:
        raise RunError(f"{file.path} has no graph to run.")
    return Image(file, tuning)


def _store(program: pef.Program, tuning: Tuning) -> Image:
    """Write `program` to a temporary file, which lives as long as the image, and open it."""
    # Imported here: programs from files, the common case, start faster without them.
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="sambarun-")
    try:
        path = os.path.join(folder, "program.pef")
        program.save(path)
        image = _open(path, tuning)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    image.adopt(folder)
    return image
