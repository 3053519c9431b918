"""The comparisons as a command: `python -m benchmarks [names]`, all of them by default."""

from __future__ import annotations

import argparse
import importlib
import time

from benchmarks.report import RESULTS, to_markdown, write

NAMES = (
    "speed",
    "quantised",
    "sections",
    "cold_start",
    "memory_plan",
    "compile_time",
    "training",
    "training_memory",
    "data_parallel",
    "samba",
    "pybuda",
)
# Those about modelled devices, and not this machine: only where they are named.
APART = ("device", "placement")


def main() -> None:
    """Run the named benchmarks, one module each, and write what they find."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join((*NAMES, *APART)))
    names = parser.parse_args().names or list(NAMES)
    if unknown := sorted(set(names) - {*NAMES, *APART}):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join((*NAMES, *APART))}")
    for name in names:
        start = time.perf_counter()
        report = importlib.import_module(f"benchmarks.{name}").run()
        write(report)
        print(to_markdown(report))
        print(f"({name}: {time.perf_counter() - start:.0f} s, in {RESULTS.name}/{name}.md)\n")


if __name__ == "__main__":
    main()
