"""The commands that the page shows beside a number are commands, and tell of the same thing."""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser

import pef
from pef.report import page, report


@pytest.mark.parametrize("name", ["net.pef", "a 'net' of two; words.pef"])
@pytest.mark.parametrize("chosen", ["section=4", "symbol=3"])
def test_each_can_be_run(
    browser: Browser, programs: dict[str, pef.Program], tmp_path: Path, name: str, chosen: str
) -> None:
    program = programs["ten"]
    symbols = list(program.symbols)
    symbols[3] = replace(symbols[3], name=f"{symbols[3].name} $HOME 'x'")
    program = replace(program, symbols=tuple(symbols))
    program.save(tmp_path / name)
    shown = tmp_path / "page.html"
    shown.write_text(page(report(program, {"name": name, "bytes": 1})), encoding="utf-8")
    browser.open(shown, chosen)
    lines = browser.text("#details .how:last-child").split("\n")
    commands = [shlex.split(line) for line in lines if line.startswith("sambac ")]
    assert {words[1] for words in commands} >= {"explain", "inspect"}
    section = program.sections[4].name
    for command, *words in commands:
        assert command == "sambac"
        done = subprocess.run(
            [sys.executable, "-c", "from samba_cli.sambac import main; main()", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        if words[0] != "extract":
            assert (section if chosen == "section=4" else symbols[3].name.split()[0]) in done.stdout


def test_files_of_one_name_are_called_by_it(
    browser: Browser, programs: dict[str, pef.Program], tmp_path: Path
) -> None:
    found = report(programs["trains"], {"name": "net.pef", "bytes": 1})
    shown = tmp_path / "page.html"
    shown.write_text(page(found, found), encoding="utf-8")
    browser.open(shown, "section=1")
    assert "sambac explain net.pef 1" in browser.text("#details .how:last-child").split("\n")


def test_a_name_with_signs_that_cannot_be_seen_is_read_back(
    browser: Browser, programs: dict[str, pef.Program], tmp_path: Path
) -> None:
    name = "\u202eit's\\\t\x1b.pef"
    shown = tmp_path / "page.html"
    shown.write_text(page(report(programs["ten"], {"name": name, "bytes": 1})), encoding="utf-8")
    browser.open(shown, "section=1")
    lines = browser.text("#details .how:last-child").split("\n")
    (line,) = (line for line in lines if line.startswith("sambac explain"))
    assert line.isprintable()
    told = subprocess.run(
        ["bash", "-c", line.replace("sambac explain", "printf '%s|'")], capture_output=True
    )
    assert told.stdout.decode() == f"{name}|1|"
