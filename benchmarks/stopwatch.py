"""Measures whole processes: JSON commands by name on standard input, measurements as JSON out.

A process of its own that imports next to nothing, because the peak memory that Linux reports of a
child includes what its parent occupied when it started the child.
"""

import json
import os
import subprocess
import sys
import time


def measure(command: list[str]) -> tuple[float, float]:
    """Run a command to its end; returns seconds and its peak resident set in megabytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    """Run all commands in turns, as many rounds as the first argument says."""
    commands: dict[str, list[str]] = json.load(sys.stdin)
    rounds = range(int(sys.argv[1]))
    turns = [{name: measure(command) for name, command in commands.items()} for _ in rounds]
    json.dump(turns, sys.stdout)


if __name__ == "__main__":
    main()
