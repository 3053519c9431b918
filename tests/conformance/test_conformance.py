"""The whole ONNX backend suite at O3 and O0, beside plain onnxruntime in processes of its own.

The short run has O3 alone, the long run O0 and the table of both.
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
_LEVELS = ("O3", pytest.param("O0", marks=pytest.mark.long))
_ALWAYS = ("plain", "plain-arrays", "O3")
_ENGINES = (*_ALWAYS, "O0")
_PLAIN_PASSES = 1346  # node cases, with onnx 1.23.2 and onnxruntime 1.31.1
_MINIMUM = 1386

Outcomes = dict[str, str]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for outcomes that all workers of this test run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "conformance"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def outcomes(results: Path) -> Callable[[str], Outcomes]:
    """The outcome of each case on an engine; the suite runs once for each engine.

    While another worker runs it on that engine, this one does so on one that is still to come.
    """

    def run(engine: str) -> Outcomes:
        output = results / f"{engine}.json"
        while not output.exists():
            if not any(_ran(results, each) for each in (engine, *_ALWAYS)):
                time.sleep(0.1)
        loaded: Outcomes = json.loads(output.read_text("utf-8"))
        return loaded

    return run


def _ran(results: Path, engine: str) -> bool:
    """Run the suite on an engine, but for one that is done or that another worker is at."""
    output = results / f"{engine}.json"
    with (results / f"{engine}.lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not output.exists():
            partial = results / f"{engine}.partial"
            _command("run", engine, "--output", str(partial))
            partial.replace(output)
            return True
    return False


def test_plain_onnxruntime_passes_what_it_should(outcomes: Callable[[str], Outcomes]) -> None:
    """Otherwise 'nothing is lost' would say nothing."""
    assert len(_passing(outcomes("plain"), "node/")) == _PLAIN_PASSES


@pytest.mark.parametrize("level", _LEVELS)
def test_nothing_is_lost(outcomes: Callable[[str], Outcomes], level: str) -> None:
    compiled = outcomes(level)
    plain = _passing(outcomes("plain")) | _passing(outcomes("plain-arrays"))
    lost = {name: compiled[name] for name in sorted(plain - _passing(compiled))}
    assert not lost


@pytest.mark.parametrize("level", _LEVELS)
def test_enough_cases_pass(outcomes: Callable[[str], Outcomes], level: str) -> None:
    assert len(_passing(outcomes(level), "node/")) >= _MINIMUM


@pytest.mark.parametrize("level", _LEVELS)
def test_no_result_is_silently_wrong(outcomes: Callable[[str], Outcomes], level: str) -> None:
    """What differs from the expected values differs in plain onnxruntime too."""
    plain = outcomes("plain-arrays")
    wrong = {name for name, why in outcomes(level).items() if why.startswith("DifferentError")}
    expected = {name for name in wrong if plain[name].startswith("DifferentError")}
    # Plain onnxruntime has no kernel for Bernoulli; whose random numbers nobody can foresee.
    assert {name for name in wrong - expected if "bernoulli" not in name} == set()


@pytest.mark.parametrize("level", _LEVELS)
def test_whatever_fails_fails_in_order(outcomes: Callable[[str], Outcomes], level: str) -> None:
    """No case kills its process, hangs, or ends in an error that is not meant for users."""
    orderly = ("pass", "CompileError", "RunError", "DifferentError")
    assert not {name: why for name, why in outcomes(level).items() if not why.startswith(orderly)}


@pytest.mark.long
def test_the_table_is_up_to_date(
    outcomes: Callable[[str], Outcomes], results: Path, tmp_path: Path
) -> None:
    for engine in _ENGINES:
        outcomes(engine)
    page = tmp_path / "conformance.md"
    _command("table", "--results", str(results), "--output", str(page))
    stored = _TABLE.read_text("utf-8")
    assert page.read_text("utf-8") == stored, "run `make conformance` and review the difference"


def _passing(outcomes: Outcomes, prefix: str = "") -> set[str]:
    return {
        name for name, outcome in outcomes.items() if outcome == "pass" and name.startswith(prefix)
    }


def _command(*arguments: str) -> None:
    subprocess.run([sys.executable, str(_SUITE), *arguments], check=True)
