"""The ONNX backend suite at O3 and O0, beside plain onnxruntime in processes of its own.

The short run has O3 alone, without the cases that write an operator with others: each of those has
cases of its own. The long run has all cases, O0, and the table of both.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)

_SUITE = Path(__file__).parent
_TABLE = _SUITE.parents[1] / "docs" / "conformance.md"
_RUNS = (
    ("O3", "short"),
    pytest.param("O3", "whole", marks=pytest.mark.long),
    pytest.param("O0", "whole", marks=pytest.mark.long),
)
_ALWAYS = ("plain", "plain-arrays", "O3")
_ENGINES = (*_ALWAYS, "O0")
# Node cases, with onnx 1.23.2 and onnxruntime 1.31.1.
_PLAIN_PASSES = {"short": 997, "whole": 1346}
_MINIMUM = {"short": 1310, "whole": 1386}

Outcomes = dict[str, str]
Outcome = Callable[[str, str], Outcomes]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for outcomes that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "conformance"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def outcomes(results: Path) -> Outcome:
    """The outcome of each case on an engine; each part of the suite runs once for each engine.

    While another worker runs it on that engine, this one does so on one that is still to come.
    """

    def run(engine: str, part: str) -> Outcomes:
        wanted, others = (part, ()) if part == "short" else (engine, _ALWAYS)
        while not (results / f"{wanted}.done").exists():
            if not any(_ran(results, each) for each in (wanted, *others)):
                time.sleep(0.1)
        loaded: Outcomes = json.loads((results / part / f"{engine}.json").read_text("utf-8"))
        return loaded

    return run


def _ran(results: Path, work: str) -> bool:
    """Run a piece of work, but for one that is done or that another worker is at.

    It is the whole suite on an engine, or "short": one process runs that on all of its engines, as
    collecting the cases takes it seconds.
    """
    done = results / f"{work}.done"
    with (results / f"{work}.lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not done.exists():
            if work == "short":
                _command("run", *_ALWAYS, "--short", "--output", str(results / "short"))
            else:
                _command("run", work, "--output", str(results / "whole"))
            done.touch()
            return True
    return False


@pytest.mark.parametrize("part", ["short", pytest.param("whole", marks=pytest.mark.long)])
def test_plain_onnxruntime_passes_what_it_should(outcomes: Outcome, part: str) -> None:
    """Otherwise 'nothing is lost' would say nothing."""
    assert len(_passing(outcomes("plain", part), "node/")) == _PLAIN_PASSES[part]


@pytest.mark.parametrize(("level", "part"), _RUNS)
def test_nothing_is_lost(outcomes: Outcome, level: str, part: str) -> None:
    compiled = outcomes(level, part)
    plain = _passing(outcomes("plain", part)) | _passing(outcomes("plain-arrays", part))
    lost = {name: compiled[name] for name in sorted(plain - _passing(compiled))}
    assert not lost


@pytest.mark.parametrize(("level", "part"), _RUNS)
def test_enough_cases_pass(outcomes: Outcome, level: str, part: str) -> None:
    assert len(_passing(outcomes(level, part), "node/")) >= _MINIMUM[part]


@pytest.mark.parametrize(("level", "part"), _RUNS)
def test_no_result_is_silently_wrong(outcomes: Outcome, level: str, part: str) -> None:
    """What differs from the expected values differs in plain onnxruntime too."""
    plain, found = outcomes("plain-arrays", part), outcomes(level, part)
    wrong = {name for name, why in found.items() if why.startswith("DifferentError")}
    expected = {name for name in wrong if plain[name].startswith("DifferentError")}
    # Plain onnxruntime has no kernel for Bernoulli; whose random numbers nobody can foresee.
    assert {name for name in wrong - expected if "bernoulli" not in name} == set()


@pytest.mark.parametrize(("level", "part"), _RUNS)
def test_whatever_fails_fails_in_order(outcomes: Outcome, level: str, part: str) -> None:
    """No case kills its process, hangs, or ends in an error that is not meant for users."""
    orderly = ("pass", "CompileError", "RunError", "DifferentError")
    found = outcomes(level, part)
    assert not {name: why for name, why in found.items() if not why.startswith(orderly)}


@pytest.mark.long
def test_the_table_is_up_to_date(outcomes: Outcome, results: Path, tmp_path: Path) -> None:
    for engine in _ENGINES:
        outcomes(engine, "whole")
    page = tmp_path / "conformance.md"
    _command("table", "--results", str(results / "whole"), "--output", str(page))
    stored = _TABLE.read_text("utf-8")
    assert page.read_text("utf-8") == stored, "run `make conformance` and review the difference"


def _passing(outcomes: Outcomes, prefix: str = "") -> set[str]:
    return {
        name for name, outcome in outcomes.items() if outcome == "pass" and name.startswith(prefix)
    }


def _command(*arguments: str) -> None:
    subprocess.run([sys.executable, str(_SUITE), *arguments], check=True)
