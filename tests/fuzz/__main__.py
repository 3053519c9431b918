"""`python tests/fuzz`: run random models every way the compiler knows, and compare the numbers."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

from differential import WAYS, check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; random if absent")
    parser.add_argument("--count", type=int, default=100, help="how many seeds")
    parser.add_argument("--size", type=int, default=30, help="operators of a model")
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="default: all")
    parser.add_argument("--crashes", type=Path, default=Path("build/fuzz"))
    arguments = parser.parse_args()
    first = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    print(f"seeds {first} to {first + arguments.count - 1}, {arguments.size} operators each")
    failures = 0
    for seed in range(first, first + arguments.count):
        for way in arguments.way or WAYS:
            crash = check(seed, arguments.size, way, arguments.crashes)
            if crash is not None:
                failures += 1
                print(f"seed {seed}, {way}: differs, see {crash}")
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
