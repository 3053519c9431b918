"""Commands for tests: the compiler's in the test's own process, and others that are interrupted."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest


def sambac(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `sambac` with these words in a folder; return its code and what it says."""
    from samba_cli.sambac import main

    command = ["sambac", *map(str, words)]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", command),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as leave,
    ):
        main()
    return subprocess.CompletedProcess(
        command, int(leave.value.code or 0), out.getvalue(), err.getvalue()
    )


@contextlib.contextmanager
def started(command: Sequence[object]) -> Iterator[subprocess.Popen[str]]:
    """Start a command that the test interrupts; it is gone afterwards, whatever happens.

    Ctrl-C reaches it even if these tests run in the background, where shells ignore it.
    """
    with subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            process.kill()
