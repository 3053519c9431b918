"""Completion in real shells, after the lines that README.md gives for their own files."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PAGE = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
_FILES = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "config.fish"}
# What is typed, and what the line is completed to, or the answers that are offered.
_LINES = [
    ("sambac comp", "sambac compile "),
    ("sambarun net.pef --sections FWD --hyperp", "sambarun net.pef --sections FWD --hyperparam "),
    ("sambac compile net.onnx --mapping sp", "sambac compile net.onnx --mapping spatial "),
    ("sambac inspect only_o", "sambac inspect only_one.pef "),
]


def documented(shell: str) -> str:
    """Return what README.md says to put into the file of a shell."""
    (line,) = re.findall(rf"^(\S.*?) +# {re.escape(_FILES[shell])}$", _PAGE, re.MULTILINE)
    return str(line)


def found(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    return path


@pytest.mark.parametrize("shell", _FILES)
def test_the_page_has_a_line_for_both_commands(shell: str) -> None:
    line = documented(shell)
    for tool in ("SAMBAC", "SAMBARUN"):
        assert f"_{tool}_COMPLETE={shell}_source {tool.lower()}" in line
    if shell == "zsh":  # which has no `compdef` before
        assert line.index("compinit") < line.index("eval")


@contextmanager
def typed_into(command: list[str], folder: Path) -> Iterator[int]:
    """Start a shell on a terminal of its own, with a home in which nothing is."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(
            HOME=str(folder), TERM="dumb", PS1="> ", COLUMNS="200",
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        )  # fmt: skip
        os.execv(command[0], command)
    try:
        yield terminal
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def shown(terminal: int, until: str, seconds: float = 60) -> str:
    """Return what the shell shows, up to `until` or the end of patience."""
    text, end = "", time.monotonic() + seconds
    while until not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            text += os.read(terminal, 4096).decode("utf-8", "replace")
    return text


@pytest.mark.parametrize(("line", "completed"), _LINES)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_line_is_completed(shell: str, line: str, completed: str, tmp_path: Path) -> None:
    (tmp_path / "only_one.pef").touch()
    options = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"]}[shell]
    with typed_into([found(shell), *options, "-i"], tmp_path) as terminal:
        os.write(terminal, f"{documented(shell)}; echo rea''dy\n".encode())
        assert "not found" not in shown(terminal, "\nready")
        os.write(terminal, f"{line}\t".encode())
        rest = completed[len(line) :]
        assert rest in shown(terminal, rest)


@pytest.mark.parametrize(("line", "completed"), _LINES)
def test_fish_offers_it(line: str, completed: str, tmp_path: Path) -> None:
    (tmp_path / "only_one.pef").touch()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [found("fish"), "--no-config", "-c", f"{documented('fish')}; complete -C '{line}'"],
        env=os.environ | {"PATH": path, "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    offered = [answer.split("\t")[0] for answer in done.stdout.splitlines()]
    assert offered == [completed.split()[-1]]
