"""What goes wrong between an application, its PEF and the device.

Errors of the device have a text that any API could use; here they get samba's cure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sambahost.errors import HostError, LaunchedAloneError, NoStartError, NotReducedError


class SambaError(RuntimeError):
    """A mistake of the application: what came, what was expected, and the cure."""


_CURES: Mapping[type[HostError], str] = {
    LaunchedAloneError: (
        "launch several processes: torchrun --nproc-per-node 2 app.py run --data-parallel --pef "
        "..., or mpirun -np 2 python app.py ..., or srun"
    ),
    NotReducedError: (
        "compile the model with --data-parallel (config_dict={'data_parallel': True}) and run that "
        "PEF"
    ),
    NoStartError: "compile it with loss_indices in which that output is",
}
"""What an application does about an error of the host."""


def worded(error: HostError) -> SambaError:
    """Return what an application is told of `error`."""
    cure = _CURES.get(type(error))
    return SambaError(f"{error}; {cure}" if cure else str(error))


@contextmanager
def in_samba_words() -> Iterator[None]:
    """Raise `SambaError` in place of what the host raises in the block: its cause is the cause."""
    try:
        yield
    except HostError as error:
        raise worded(error) from error.__cause__
