"""Where the commands begin: an interrupt while they are still imported is told as one too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import NoReturn

from .interrupts import INTERRUPTED, interrupt_behind


def sambac() -> NoReturn:
    """Run the command `sambac`."""
    _command("samba_cli.sambac")()


def sambarun() -> NoReturn:
    """Run the command `sambarun`."""
    _command("samba_cli.sambarun")()


def _command(module: str) -> Callable[[], NoReturn]:
    """Import the `main` of a command, which knows how to end by itself."""
    try:
        main: Callable[[], NoReturn] = import_module(module).main
    except BaseException as error:
        if interrupt_behind(error) is None:
            raise
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    return main
