"""How the page looks: words that can be read in light and dark, windows of any width."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from browser import Browser

from pef.report import Report

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


@pytest.mark.parametrize("name", ["ten", "trains"])
@pytest.mark.parametrize("wide", [1000, 1200, 1400])
def test_tables_of_the_overview_are_seen_whole(
    browser: Browser, pages: dict[str, Path], name: str, wide: int
) -> None:
    """Numbers at the right of one are seen without scrolling it sideways."""
    browser.resize(wide, 900)
    browser.open(pages[name], "tab=overview")
    cut = browser.run(
        "return [...document.querySelectorAll('.table')].filter(table => "
        "table.scrollWidth > table.clientWidth).map(table => "
        "table.closest('section').querySelector('h2').textContent)"
    )
    browser.resize(1400, 900)
    assert cut == []


def _see_graph(browser: Browser, page: Path) -> None:
    """Open the graph of a page, and wait until it is laid out."""
    browser.open(page, "tab=graph")
    browser.wait("document.querySelector('.node').getBoundingClientRect().width > 0")


@pytest.mark.parametrize("name", ["ten", "hundreds", "trains"])
def test_no_section_stands_on_another_one(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    _see_graph(browser, pages[name])
    boxes = browser.run(
        "return [...document.querySelectorAll('.node rect')].map(e => e.getBoundingClientRect())"
        ".map(b => [b.left, b.top, b.right, b.bottom])"
    )
    frame = browser.run(
        "const b = document.querySelector('.picture').getBoundingClientRect();"
        "return [b.left, b.top, b.right, b.bottom]"
    )
    for left, top, right, bottom in boxes:
        assert left < right
        assert top < bottom
        assert frame[0] <= left
        assert right <= frame[2]
        assert frame[1] <= top
        assert bottom <= frame[3]
    for a, b in itertools.combinations(boxes, 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_text_stays_inside_of_its_section(browser: Browser, pages: dict[str, Path]) -> None:
    _see_graph(browser, pages["ten"])
    over = browser.run(
        "return [...document.querySelectorAll('.node')].filter(node => "
        "[...node.querySelectorAll('.near')].some(text => text.getBoundingClientRect().right > "
        "node.querySelector('rect').getBoundingClientRect().right)).length"
    )
    assert over == 0


@pytest.mark.parametrize("name", ["ten", "trains at O1", "hundreds"])
def test_titles_stay_inside_of_their_lanes(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    _see_graph(browser, pages[name])
    boxes = browser.run(
        "const right = e => e.getBoundingClientRect().right;"
        "const of = tag => [...document.querySelectorAll('.lane ' + tag)];"
        "return [of('text').map(right), of('rect').map(right), of('text').map(e =>"
        " e.getBoundingClientRect().height)]"
    )
    for title, lane, height in zip(*boxes, strict=True):
        assert title <= lane
        assert height > 9, "too small to read"


@pytest.mark.parametrize("name", ["ten", "hundreds", "trains at O1"])
def test_calls_are_named_where_they_begin(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], name: str
) -> None:
    """Under the map of memory, whatever the rounding of its scale."""
    calls = reports[name]["totals"]["calls"]
    for wide in (600, 813, 1400):
        browser.resize(wide, 900)
        browser.open(pages[name], "tab=memory")
        browser.wait("document.querySelector('canvas').width > 300")
        width, words = browser.run(
            "const words = [], pen = CanvasRenderingContext2D.prototype, was = pen.fillText;"
            "pen.fillText = function (text, x) { words.push([x, text]); };"
            "document.querySelector('button[title^=\\'show all\\']').click(); pen.fillText = was;"
            "return [document.querySelector('canvas').clientWidth - 86, words]"
        )
        ticks = [(x, text) for x, text in words if re.fullmatch(r"start|end|call \d+", text)]
        assert (ticks[0][1], ticks[-1][1]) == ("start", "end")
        for x, text in ticks[1:-1]:
            before = int(text.removeprefix("call ")) + 1
            assert x == pytest.approx(74 + width / (calls + 2) * before, abs=0.01)
        assert all(b[0] - a[0] >= 30 for a, b in itertools.pairwise(ticks))


def test_names_in_the_memory_map_are_written_over_all_boxes(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    """A pack is drawn under its parts, and its name is not; no name stands on another one."""
    browser.open(pages["trains"])
    browser.run(
        "window.pens = []; const P = CanvasRenderingContext2D.prototype;"
        "for (const name of ['fillRect', 'fillText']) { const made = P[name]; P[name] ="
        "  function (...given) { pens.push([name, ...given]); return made.apply(this, given); }; }"
        "location.hash = 'tab=memory'"
    )
    browser.wait("pens.some(pen => pen[1] === 'alive')")
    pens = browser.run("return pens.slice(0, pens.findIndex(pen => pen[1] === 'start'))")
    kinds = [kind for kind, *_ in pens]
    first = kinds.index("fillText")
    assert set(kinds[:first]) == {"fillRect"}
    assert set(kinds[first:]) == {"fillText"}
    names = {row["name"] for row in reports["trains"]["symbols"]}
    written = [(text, x, y) for _, text, x, y in pens[first:] if text in names]
    assert written
    for (a, left, y), (_, right, z) in itertools.combinations(written, 2):
        assert (left, y) != (right, z), a


@pytest.mark.parametrize("name", ["ten", "hundreds", "trains"])
def test_names_of_roofs_are_over_the_spots_and_inside(
    browser: Browser, pages: dict[str, Path], name: str
) -> None:
    browser.open(pages[name], "tab=roofline")
    browser.wait("document.querySelector('.spot')")
    covered = browser.run(
        "const words = [...document.querySelectorAll('.spot ~ .word')];"
        "const box = e => e.getBoundingClientRect();"
        "const frame = box(document.querySelector('.picture'));"
        "return [words.length, words.filter(word => { const w = box(word);"
        "  return w.left < frame.left || w.right > frame.right ||"
        "    [...document.querySelectorAll('.spot')].some(spot => { const s = box(spot);"
        "      return s.left < w.right && w.left < s.right"
        "        && s.top < w.bottom && w.top < s.bottom; });"
        "}).map(word => word.textContent)]"
    )
    assert covered[0] >= 3
    assert covered[1] == []
