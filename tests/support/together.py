"""Processes that are launched together: each is told who it is, and writes to a file of its own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forked import PATIENCE, Fork, Forks

_ROOT = Path(__file__).parents[2]
_LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Job:
    """What became of processes, by rank: exit codes, and all they said.

    A code is None for a process that did not end by itself. As text it is all of that, for the
    messages of assertions.
    """

    codes: tuple[int | None, ...]
    said: tuple[str, ...]

    def __str__(self) -> str:
        parts = zip(self.codes, self.said, strict=True)
        return "".join(
            f"\n--- process {rank} (exit code {code}):\n{text}"
            for rank, (code, text) in enumerate(parts)
        )


def launch(
    forks: Forks,
    folder: Path,
    *commands: Sequence[object],
    code: str | None = None,
    patience: float = PATIENCE,
    **more: str,
) -> Job:
    """Fork a process for each of `commands`, process 0 for the first; return how all ended.

    A command is a script with its words, or the words of `code`. The processes find `RANK` and the
    others as torchrun sets them, and `more`, in their environment. What they write goes to files in
    `folder`. Those that run after `patience` seconds are killed.
    """
    with reserved_port() as port:
        environments = (
            environment(
                RANK=str(rank), WORLD_SIZE=str(len(commands)), LOCAL_WORLD_SIZE=str(len(commands)),
                MASTER_ADDR="localhost", MASTER_PORT=str(port), **more,
            )
            for rank in range(len(commands))
        )  # fmt: skip
        return run(forks, folder, [*zip(commands, environments, strict=True)], code, patience)


def run(
    forks: Forks,
    folder: Path,
    processes: Sequence[tuple[Sequence[object], Mapping[str, str]]],
    code: str | None = None,
    patience: float = PATIENCE,
) -> Job:
    """Fork processes with pairs of words and environment at once; see `launch`."""
    deadline = time.monotonic() + patience
    running: list[tuple[Fork, Path]] = []
    codes: list[int | None] = []
    try:
        for number, (words, variables) in enumerate(processes):
            path = folder / f"said.{number}.txt"
            running.append((forks.start([*map(str, words)], path, None, code, variables), path))
        codes.extend(fork.wait(deadline) for fork, _ in running)
    finally:
        for fork, _ in running:
            fork.kill()
    return Job(tuple(codes), tuple(path.read_text("utf-8", "replace") for _, path in running))


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment, without what a launcher sets, and with `more`."""
    kept = {name: value for name, value in os.environ.items() if name not in _LAUNCHED}
    paths = f"{_ROOT}{os.pathsep}{_ROOT / 'tests' / 'support'}"
    return {**kept, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", **more}


@contextmanager
def reserved_port() -> Iterator[int]:
    """Give a port of this host that the system gives to nobody else meanwhile.

    It stays bound here, so that no other process is given it; as nobody listens at it, a process
    that is told its number may.
    """
    with socket.socket() as holder:
        holder.bind(("localhost", 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield holder.getsockname()[1]
