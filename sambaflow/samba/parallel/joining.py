"""The processes of a job come together, in samba's words."""

from __future__ import annotations

from sambaflow.samba.rewording import in_samba_words
from sambahost import rendezvous


def join_launched() -> None:
    """Join the processes of this job if a launcher started several; else do nothing.

    Raises `SambaError` if the others do not come.
    """
    with in_samba_words():
        rendezvous.join_launched()
