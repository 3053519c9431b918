"""How the page looks: words that can be read in light and dark, windows of any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Browser

TABS = ("overview", "graph", "memory", "roofline", "sections", "symbols", "everything")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(
    browser: Browser, pages: dict[str, Path], scheme: str
) -> None:
    """At least as the accessibility guidelines ask for ordinary text: 4.5 to 1."""
    browser.prefer(scheme)
    browser.open(pages["ten"])
    found = browser.run(
        "const s = getComputedStyle(document.documentElement);"
        "return ['ground', 'raised', 'text', 'faint', 'accent', 'good', 'bad']"
        ".map(name => s.getPropertyValue('--' + name).trim())"
    )
    ground, raised, *words = map(_luminance, found)
    for word in words:
        for behind in (ground, raised):
            light, dark = max(word, behind), min(word, behind)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
    browser.prefer("light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("paint", ["time", "limit", "pcus", "pmus", "type", "other"])
def test_words_stand_out_from_their_section(
    browser: Browser, pages: dict[str, Path], paint: str, scheme: str
) -> None:
    browser.prefer(scheme)
    browser.open(pages["pair"], f"tab=graph&paint={paint}")
    found = browser.run(
        "const pen = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});"
        "const seen = c => { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1);"
        "  return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3)"
        "    .map(part => part.toString(16).padStart(2, '0')).join(''); };"
        "return [...document.querySelectorAll('.node')].map(node => ["
        "  seen(getComputedStyle(node.querySelector('rect')).fill),"
        "  seen(getComputedStyle(node.querySelector('text')).fill)])"
    )
    for colours in found:
        dark, light = sorted(map(_luminance, colours))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colours
    browser.prefer("light")


def _luminance(colour: str) -> float:
    parts = [int(part, 16) / 255 for part in re.findall(r"[0-9a-f]{2}", colour)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_narrow_window_is_no_wider_than_it_is(browser: Browser, pages: dict[str, Path]) -> None:
    browser.resize(600, 900)
    try:
        for tab in TABS:
            browser.open(pages["trains"], f"tab={tab}&section=1")
            wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, tab
        browser.resize(500, 900)  # no window is narrower here; the picture has a margin beside
        browser.open(pages["trains"], "tab=roofline")
        cut = browser.run(
            "const picture = document.querySelector('svg[aria-label=roofline]');"
            "picture.style.width = '340px'; return new Promise(done => setTimeout(() => {"
            "  const box = picture.getBoundingClientRect();"
            "  done([...picture.querySelectorAll('text')].filter(word => {"
            "    const at = word.getBoundingClientRect();"
            "    return at.left < box.left || at.right > box.right;"
            "  }).map(word => word.textContent)); }, 300))"
        )
        assert cut == []
    finally:
        browser.resize(1400, 900)
