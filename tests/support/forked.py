"""`sambarun` in processes that are forked from one which has loaded what it loads.

Loading takes nine tenths of the time of a short run. Else such a process is as any: it has a thread
pool of its own, writes to descriptors of its own, and ends by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_SERVER = """
import json, os, sys
from samba_cli.sambarun import main
import onnxruntime, sambarun, samba_cli.running, samba_cli.training, samba_cli.listing
for line in sys.stdin:
    folder, here, words = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    raise SystemExit
os.chdir(here)
files = ((0, os.devnull, os.O_RDONLY), (1, folder + "/out", os.O_WRONLY | os.O_CREAT),
         (2, folder + "/err", os.O_WRONLY | os.O_CREAT))
for descriptor, path, flags in files:
    opened = os.open(path, flags, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)
sys.argv = ["sambarun", *words]
main()
"""


class Forks:
    """The process that has loaded everything, and runs commands in children, one after the other.

    They have the environment that there is when the first one runs.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )

    def run(self, folder: Path, words: Sequence[str]) -> tuple[int, str, str]:
        """Run `sambarun` here with these words; return its code and what it wrote, by `folder`."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        assert _told(os.environ) == _told(self._environment), "start another process for that"
        print(
            json.dumps([str(folder), str(Path.cwd()), words]), file=self._server.stdin, flush=True
        )
        code = int(self._server.stdout.readline())
        return code, (folder / "out").read_text(), (folder / "err").read_text()

    def close(self) -> None:
        """End the process."""
        self._server.communicate()


def _told(environment: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """Return what an environment tells a command; of pytest it hears nothing."""
    return {name: word for name, word in environment.items() if not name.startswith("PYTEST_")}
