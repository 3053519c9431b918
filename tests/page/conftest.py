"""Pages of small and of large programs, and one browser for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import MISSING, Browser

import pef
import sambac
from benchmarks.models import synthetic
from pef.report import Report, page, report
from sambac import SGD, CompileOptions

Page = Callable[[str], Path]


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    """A browser; continuous integration must have one."""
    if MISSING:
        assert "CI" not in os.environ, MISSING
        pytest.skip(MISSING)
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def browser(window: Browser) -> Browser:
    """A window of 1400 x 900."""
    window.prefer("light")
    window.resize(1400, 900)
    return window


@pytest.fixture(scope="session")
def programs() -> dict[str, pef.Program]:
    """A program of ten sections, one of five hundred, one that trains, at two levels."""
    trains = synthetic.chain(12)
    optimizers = (SGD(lr=0.1, momentum=0.9),)
    training = {"train": True, "loss": ("mse:y,wanted",), "optimizers": optimizers}
    return {
        "ten": sambac.compile(synthetic.chain(10), CompileOptions(level="O0")),
        "hundreds": sambac.compile(synthetic.chain(500), CompileOptions(level="O0")),
        "trains": sambac.compile(trains, CompileOptions(level="O0", **training)),
        "trains at O1": sambac.compile(trains, CompileOptions(level="O1", **training)),
    }


@pytest.fixture(scope="session")
def reports(programs: dict[str, pef.Program]) -> dict[str, Report]:
    return {
        name: report(program, {"name": f"{name}.pef", "bytes": 1234})
        for name, program in programs.items()
    }


@pytest.fixture(scope="session")
def pages(reports: dict[str, Report], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page for each report, and `pair` of the program that trains at two levels."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {name: page(found) for name, found in reports.items()}
    texts["pair"] = page(reports["trains"], reports["trains at O1"])
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}
