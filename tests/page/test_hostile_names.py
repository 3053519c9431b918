"""Names come from files that nobody vouches for: the page shows them, and obeys none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

import pef
from pef.report import page, report
from pef.report.notebook import program_html
from pef.text import visible

UNSEEN = (
    "\u202egnp.exe",
    "a\x00b\x1b[31m\t\r",
    "\x7f\x9b31m",
    "\u2066\u2028\u200b\xa0",
    "\U000e0001'\\",
)
HOSTILE = (
    "</script><script>window.caught=1</script>",
    "<img src=x onerror=window.caught=1>",
    '"><svg onload=window.caught=1>',
    "<!--<script>",
    "]]>{{constructor}}${window.caught=1}",
    "javascript:window.caught=1",
    "\u2028window.caught=1\u2029",
    "__proto__",
    "constructor",
    "a\x00b\x1b[31m",
    "\u202egnp.exe",
)
TABS = ("overview", "graph", "memory", "roofline", "sections", "symbols", "compare", "everything")


def renamed(program: pef.Program, words: Iterator[str]) -> pef.Program:
    """Return `program` with names that are taken in turn, each with a number of its own."""

    def named(rows: Any) -> Any:
        return tuple(replace(row, name=f"{next(words)}{at}") for at, row in enumerate(rows))

    def grouped(section: pef.Section) -> pef.Section:
        groups = tuple(
            replace(
                group,
                operators=tuple(replace(o, op_type=next(words)) for o in named(group.operators)),
            )
            for group in named(section.groups)
        )
        limit = replace(section.estimate, limited_by=next(words))
        return replace(section, groups=groups, estimate=limit)

    return replace(
        program,
        arch=next(words),
        producer=replace(program.producer, tool=next(words), source=next(words)),
        sections=tuple(map(grouped, named(program.sections))),
        symbols=tuple(replace(s, shape=(next(words), 3)) for s in named(program.symbols)),
        graphs=tuple(
            replace(graph, inputs=named(graph.inputs), outputs=named(graph.outputs))
            for graph in named(program.graphs)
        ),
        device=tuple(replace(row, source=next(words)) for row in program.device),
        warnings=HOSTILE,
    )


@pytest.fixture(scope="module")
def hostile(programs: dict[str, pef.Program]) -> pef.Program:
    def endless() -> Iterator[str]:
        while True:
            yield from HOSTILE

    return renamed(programs["trains"], endless())


@pytest.fixture(scope="module")
def opened(hostile: pef.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = report(hostile, {"name": HOSTILE[0] + ".pef", "bytes": 7})
    path = tmp_path_factory.mktemp("hostile") / "hostile.html"
    path.write_text(page(found, found), encoding="utf-8")
    return path


def test_the_page_has_the_scripts_of_the_page_alone(opened: Path) -> None:
    text = opened.read_text("utf-8")
    assert len(re.findall("<script", text, flags=re.IGNORECASE)) == 2
    assert len(re.findall("</script", text, flags=re.IGNORECASE)) == 2
    assert "<img" not in text
    assert "<!--" not in text
    assert "\u2028" not in text


def test_nothing_of_a_name_runs(browser: Browser, opened: Path, hostile: pef.Program) -> None:
    for tab in TABS:
        browser.open(opened, f"tab={tab}&section=1")
        assert browser.count("nav [aria-current=page]") == 1
        browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
        browser.wait("document.readyState === 'complete'")
        assert browser.run("return window.caught ?? null") is None
        assert browser.count("img, iframe, object, [onload], [onerror], a[href]") == 0
        assert browser.count("script") == 2
        assert browser.complaints() == []
    shown = browser.text("#details")
    assert visible(hostile.sections[1].name) in shown


def test_what_cannot_be_seen_is_shown_by_its_code(
    browser: Browser, programs: dict[str, pef.Program], tmp_path: Path
) -> None:
    program = renamed(programs["trains"], cycle(UNSEEN))
    found = report(program, {"name": f"{UNSEEN[0]}.pef", "bytes": 7})
    path = tmp_path / "unseen.html"
    path.write_text(page(found, found), encoding="utf-8")
    for tab in TABS:
        browser.open(path, f"tab={tab}&section=1")
        browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
        shown = browser.run(
            "return document.title + document.body.innerText + [...document.querySelectorAll("
            "'[title], [aria-label]')].map(e => e.title + e.getAttribute('aria-label')).join('')"
        )
        assert {sign for sign in shown if not sign.isprintable()} <= {"\n", "\t"}, ascii(shown)
    assert visible(program.sections[1].name) in browser.text("#details")


def test_symbols_of_any_name_are_shown(
    browser: Browser, opened: Path, hostile: pef.Program
) -> None:
    for number, symbol in enumerate(hostile.symbols[: len(HOSTILE)]):
        browser.open(opened, f"tab=memory&symbol={number}")
        told = browser.run("return document.querySelector('#details h2').textContent")
        assert told == f"Symbol {number}: {visible(symbol.name)}"
        assert browser.run("return window.caught ?? null") is None


def test_the_policy_lets_no_other_script_run(browser: Browser, opened: Path) -> None:
    browser.open(opened)
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.caught = 2';"
        "document.body.append(s)"
    )
    assert browser.run("return window.caught ?? null") is None
    assert any("Content Security Policy" in said for said in browser.complaints())


def test_the_page_asks_for_nothing(pages: dict[str, Path]) -> None:
    text = pages["pair"].read_text("utf-8")
    outside = re.findall(
        r"""(?:src|href)\s*=|url\(|@import|fetch\(|XMLHttpRequest|import\(""", text
    )
    assert outside == []
    assert set(re.findall(r"https?://[\w.]+", text)) == {"http://www.w3.org"}  # a namespace
    assert "default-src 'none'" in text


def test_scripts_make_no_markup_of_text() -> None:
    folder = Path(pef.__file__).parent / "report" / "page"
    scripts = [path.read_text("utf-8") for path in folder.glob("*.js")]
    assert len(scripts) > 5
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert not [script for script in scripts if word in script]


def test_notebooks_show_names_as_text(hostile: pef.Program) -> None:
    shown = program_html(hostile)
    assert "<script" not in shown
    assert "<img" not in shown
    assert "&lt;script&gt;" in shown
