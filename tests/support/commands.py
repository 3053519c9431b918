"""The compiler's command in the process of a test, which has imported what it needs already."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
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
