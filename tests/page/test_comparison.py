"""The comparison of the page with a second file, in a browser.

`pair` is a program at O0 beside the same at O1; changes are from what it stands beside.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from browser import Browser

import pef
from pef.report import Report, page, report
from pef.text import human_time


def test_runs_are_side_by_side(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["pair"], "tab=compare")
    a, b = (reports[name]["graphs"][0] for name in ("trains at O1", "trains"))
    lines = browser.text("#view table").splitlines()
    change = 100 * (b["latency_us"] / a["latency_us"] - 1)
    said = f"{'+' if change > 0 else '−'}{abs(change):.1f} %"
    row = next(line for line in lines if line.startswith("time\t"))
    assert row.split("\t")[1:] == [
        human_time(a["latency_us"]),
        human_time(b["latency_us"]),
        said,
    ]
    assert any("level\tO1\tO0" in line for line in lines)
    assert "changes are from trains at O1.pef to trains.pef" in browser.text("#view p")
    assert "One step" in browser.text("#view h2")
    gone = next(line for line in lines if "\tonly trains at O1.pef\t" in line)
    assert gone.split("\t")[3:5] == ["-", "gone"]
    browser.open(pages["pair"])
    assert f"{said} beside the other file" in browser.text(".tile")


def test_sections_are_matched_by_name(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["pair"], "tab=compare")
    a, b = (
        {row["name"] for row in reports[name]["sections"]} for name in ("trains", "trains at O1")
    )
    rows = browser.run(
        "return [...document.querySelectorAll('table')]"
        ".find(table => table.tHead.rows[0].cells[0].innerText === 'section')"
        ".tBodies[0].innerText.split('\\n').map(line => line.split('\\t'))"
    )
    homes = dict(row[:2] for row in rows)
    assert homes.keys() == a | b
    assert {name for name, home in homes.items() if home == "both"} == a & b
    assert {name for name, home in homes.items() if home == "only trains.pef"} == a - b


def test_either_file_is_shown_whole(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["pair"], "tab=graph&which=1&paint=other")
    assert browser.text("h1") == "trains at O1.pef"
    assert browser.count(".node") == len(reports["trains at O1"]["sections"])
    browser.open(pages["pair"])
    assert "beside the other file" in browser.text(".tile")


def test_without_another_file_there_is_none(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["ten"], "tab=compare&paint=other&which=1")
    assert browser.count("[data-tab=compare]") == 0
    assert browser.text("[aria-current=page]") == "Overview"


def test_numbers_of_devices_are_as_people_write_them(
    browser: Browser, programs: dict[str, pef.Program], tmp_path: Path
) -> None:
    """Except where they would look the same."""
    one = programs["ten"]
    others = {"peak_flops": 1.276e15, "launch": 0.00002000001}
    rows = [replace(row, value=others.get(row.name, row.value)) for row in one.device]
    other = replace(one, device=tuple(rows))
    path = tmp_path / "page.html"
    text = page(*(report(each, {"name": "p.pef", "bytes": 1}) for each in (one, other)))
    path.write_text(text, encoding="utf-8")
    browser.open(path, "tab=compare")
    told = [line.split("\t") for line in browser.text("#view table").splitlines()]
    numbers = {line[0]: line[1:] for line in told if line[0].startswith("device: ")}
    assert numbers == {
        "device: peak_flops": ["1.28 PFLOP/s", "638 TFLOP/s"],
        "device: launch": ["0.00002000001 s", "0.00002 s"],
    }
