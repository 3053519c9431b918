"""Processes that are forked from one which has loaded what they load.

Loading takes most of the time of a short process. Else such a process is as any: it has a thread
pool of its own, writes to descriptors of its own, and ends by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

# A child leaves the loop and ends where the script does, with handlers and codes as any script's.
_SERVER = """
import gc, importlib, json, os, signal, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()
codes = {}

def code_of(child, how):
    if codes[child] is None and (ended := os.waitpid(child, how))[0]:
        codes[child] = os.waitstatus_to_exitcode(ended[1])
    return codes[child]

for line in sys.stdin:
    match json.loads(line):
        case {"wait": child}:
            answer = code_of(child, os.WNOHANG)
        case {"kill": child}:
            if code_of(child, os.WNOHANG) is None:
                os.kill(child, signal.SIGKILL)
            answer = code_of(child, 0)
        case asked:
            answer = os.fork()
            if not answer:
                break
            codes[answer] = None
    print(json.dumps(answer), flush=True)
else:
    raise SystemExit
os.chdir(asked["folder"])
os.environ.clear()
os.environ.update(asked["variables"])
for descriptor, path, flags in (
    (0, os.devnull, os.O_RDONLY),
    (1, asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    (2, asked["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
):
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)
sys.argv, sys.path[:0] = asked["words"], asked["paths"]
exec(asked["code"], {"__name__": "__main__"})
"""
_SCRIPT = "import runpy, sys; runpy.run_path(sys.argv[0], run_name='__main__')"
_GLANCE = 0.01
"""Seconds between two looks at whether a process has ended."""
PATIENCE = 270.0
"""Seconds that are plenty on a busy machine, and fewer than a test may take."""


class End(NamedTuple):
    """How a process ended: its exit code if it did by itself, and what it wrote."""

    code: int | None
    out: str
    err: str


@dataclass(frozen=True)
class Fork:
    """A process that was started by `Forks`."""

    server: Forks
    number: int

    def wait(self, deadline: float) -> int | None:
        """Return the exit code, or None if it runs at `deadline`, by `time.monotonic`."""
        while (code := self.server.ask({"wait": self.number})) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(_GLANCE)
        return code

    def kill(self) -> None:
        """End it, if it has not ended."""
        self.server.ask({"kill": self.number})


class Forks:
    """The process that has loaded `modules`, and is forked."""

    def __init__(self, *modules: str) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )

    def ask(self, what: object) -> int | None:
        """Say something to the process as JSON; return its answer."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(what), file=self._server.stdin, flush=True)
        answer: int | None = json.loads(self._server.stdout.readline())
        return answer

    def start(
        self,
        words: Sequence[str],
        out: Path,
        err: Path | None = None,
        code: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Fork:
        """Fork a process here: the script that is the first of `words`, or `code`.

        What it writes goes to `out`, errors to `err` if that is another file. Its environment is
        `variables`, or that of this process; what a module reads of it when it is loaded is that of
        the process which is forked.
        """
        variables = dict(os.environ) if variables is None else variables
        paths = [*filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
        if code is None:
            paths.insert(0, str(Path(words[0]).parent))
        number = self.ask(
            {
                "folder": str(Path.cwd()), "variables": dict(variables), "words": [*words],
                "out": str(out), "err": str(err or out), "paths": paths,
                "code": code or _SCRIPT,
            }
        )  # fmt: skip
        assert number is not None
        return Fork(self, number)

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        code: str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> End:
        """Fork a process as `start` does; return how it ended. It is killed after `PATIENCE`.

        What it writes goes to files in `folder`.
        """
        out, err = folder / "out", folder / "err"
        fork = self.start(words, out, err, code, variables)
        found = fork.wait(time.monotonic() + PATIENCE)
        fork.kill()
        return End(found, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process."""
        self._server.communicate()
