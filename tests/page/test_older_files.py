"""Files of every format have a page, which says what they do not hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Browser

import pef
from pef.report import page, report

FILES = sorted((Path(__file__).parents[1] / "compat").glob("format_*.pef"))
TABS = ("overview", "graph", "memory", "roofline", "sections", "symbols", "everything")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_view_opens(browser: Browser, tmp_path: Path, file: Path) -> None:
    found = report(pef.verify(file), {"name": file.name, "bytes": file.stat().st_size})
    path = tmp_path / "old.html"
    path.write_text(page(found), encoding="utf-8")
    for tab in TABS:
        browser.open(path, f"tab={tab}&section=0")
        assert browser.complaints() == []
        assert browser.text("[aria-current=page]").lower() == tab
    shown = browser.text("#details")
    known = found["sections"][0]["terms"] is not None
    assert ("launch" in shown) == known
    if not known and found["sections"][0]["latency_us"]:
        assert "it was written before format 0.6" in shown
