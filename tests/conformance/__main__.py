"""The conformance suite as a command.

`python tests/conformance run ENGINES --output FOLDER` runs every case on each of the engines and
writes the outcomes as JSON, a file for each; `python tests/conformance table` writes
docs/conformance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cases import Case, load_cases
from engines import ENGINES
from supervisor import run_cases
from table import render

TABLE = Path(__file__).parents[2] / "docs" / "conformance.md"


def main() -> None:
    """Parse the command line and do as it says."""
    parser = argparse.ArgumentParser(prog="python tests/conformance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the cases on engines")
    run.add_argument("engines", choices=ENGINES, nargs="+")
    run.add_argument("--output", type=Path, required=True, help="folder for files of outcomes")
    run.add_argument("--short", action="store_true", help="leave out what other cases have too")
    run.add_argument("--only", default="", help="run the cases whose name contains this text")
    table = commands.add_parser("table", help="write the table of what does not pass")
    table.add_argument("--results", type=Path, help="folder of outcomes of an earlier run")
    table.add_argument("--output", type=Path, default=TABLE)
    arguments = parser.parse_args()
    if arguments.command == "run":
        cases = [case for name, case in load_cases().items() if arguments.only in name]
        if arguments.short:
            cases = [case for case in cases if not case.is_expanded]
        arguments.output.mkdir(parents=True, exist_ok=True)
        for engine in arguments.engines:
            outcomes = json.dumps(_run(engine, cases), indent=0)
            (arguments.output / f"{engine}.json").write_text(outcomes, encoding="utf-8")
    else:
        results = _results(arguments.results)
        arguments.output.write_text(render(results), encoding="utf-8")


def _run(engine: str, cases: Sequence[Case]) -> dict[str, str]:
    outcomes = run_cases(engine, cases)
    passed = sum(outcome == "pass" for outcome in outcomes.values())
    print(f"{engine}: {passed} of {len(outcomes)} cases pass", file=sys.stderr)
    return {case.name: outcomes[case.name] for case in cases}


def _results(folder: Path | None) -> dict[str, dict[str, str]]:
    """Outcomes by engine, from the files of an earlier run or from a new one."""
    engines: Sequence[str] = list(ENGINES)
    if folder is not None:
        return {
            engine: json.loads((folder / f"{engine}.json").read_text("utf-8")) for engine in engines
        }
    cases = list(load_cases().values())
    with ThreadPoolExecutor(max_workers=2) as pool:
        found = pool.map(lambda engine: _run(engine, cases), engines)
        return dict(zip(engines, found, strict=True))


if __name__ == "__main__":
    main()
