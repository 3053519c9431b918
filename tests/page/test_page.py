"""The page of `sambac inspect --html`, in a browser: what it shows, and what clicks show."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import Browser

from pef.report import Report
from pef.text import human_bytes, human_quantity, human_time

TABS = ("overview", "graph", "memory", "roofline", "sections", "symbols", "everything")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ten", "hundreds", "trains", "pair"])
def test_no_view_complains(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str
) -> None:
    browser.prefer(scheme)
    for tab in (*TABS, *(["compare"] if name == "pair" else [])):
        browser.open(pages[name], f"tab={tab}&section=3")
        assert browser.run("return document.documentElement.dataset.theme") == scheme
        assert browser.count("nav [aria-current=page]") == 1
        assert "Section 3" in browser.text("#details h2")
        assert browser.complaints() == []
    browser.prefer("light")


def test_the_overview_has_the_numbers_of_the_report(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["hundreds"])
    totals = reports["hundreds"]["totals"]
    tiles = browser.text(".tile")
    assert human_time(totals["latency_us"]) in tiles
    traffic = totals["bytes_in"] + totals["bytes_out"] + totals["bytes_weights"]
    assert human_bytes(traffic) in tiles
    assert human_bytes(totals["weight_bytes"]) in tiles
    assert "modelled" in tiles
    used = reports["hundreds"]["regions"][0]["used"]
    assert human_bytes(used) in browser.text("#view")
    device = {row["name"]: row for row in reports["hundreds"]["device"]}
    for name in ("pmu_bytes", "launch", "peak_flops", "hbm_bandwidth"):
        told = human_quantity(device[name]["value"], device[name]["unit"])
        assert f"{name}\t{told}\t{device[name]['origin']}" in browser.text("#view table")


def test_the_step_is_what_a_time_is_told_of(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["trains"])
    step, evaluation = reports["trains"]["graphs"]
    assert human_time(step["latency_us"]) in browser.text(".tile")
    assert "time of a step" in browser.text(".tile")
    browser.open(pages["trains"], "scope=1")
    assert human_time(evaluation["latency_us"]) in browser.text(".tile")
    assert "time of a run" in browser.text(".tile")


@pytest.mark.parametrize("name", ["ten", "hundreds", "trains"])
def test_a_click_on_a_section_shows_how_its_time_comes_about(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report], name: str
) -> None:
    browser.open(pages[name], "tab=graph")
    sections = reports[name]["sections"]
    assert browser.count(".node") == len(sections)
    for section in (sections[0], sections[4], sections[-1]):
        browser.click(f".node[data-section='{section['id']}']")
        shown = browser.text("#details")
        assert f"Section {section['id']}: {section['name']}" in shown
        assert human_time(section["latency_us"]) in shown
        assert f"Limited by {section['limited_by']}." in shown
        browser.click("#details .bars + details summary")
        terms = section["terms"]
        assert terms is not None
        told = browser.text("#details .how")
        said = "latency = launch + fill + held + max(compute, streams) + link"
        assert said in told
        assert f"(in the file: {section['latency_us']:.3f} us)" in told
        assert f"max({terms['compute']:.3f}, {terms['streams']:.3f})" in told
        operators = [op for group in section["groups"] for op in group["operators"]]
        for op in operators:
            assert op["op_type"] in browser.text("#details table")
        if terms["compute"]:
            assert f"  = {terms['compute']:.3f} us" in told
        assert browser.run("return location.hash") == f"#tab=graph&section={section['id']}"
    browser.click("#details .close")
    assert browser.count("#details[hidden]") == 1


def test_back_goes_back(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["ten"], "tab=graph")
    browser.click(".node[data-section='2']")
    browser.click("[data-tab=sections]")
    assert browser.count("tr.chosen") == 1
    browser.run("history.back()")
    browser.wait("document.querySelector('.node.chosen')?.dataset.section === '2'")
    browser.run("history.back()")
    browser.wait("document.getElementById('details').hidden")


def test_the_graph_is_enlarged_and_moved(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hundreds"], "tab=graph")
    width = "return document.querySelector('.node').getBoundingClientRect().width"
    at = "return document.querySelector('.node').getBoundingClientRect().x"
    browser.wait("document.querySelector('.node').getBoundingClientRect().width > 0")
    small = browser.run(width)
    assert browser.count("svg.distant") == 1
    for _ in range(8):
        browser.wheel(".picture svg", -100)
    assert browser.run(width) > 3 * small
    assert browser.count("svg.distant") == 0
    before = browser.run(at)
    browser.drag(".picture svg", 80, 10)
    assert browser.run(at) == pytest.approx(before + 80, abs=1)
    assert browser.count("#details[hidden]") == 1, "a drag is no click"
    browser.click("button[title^='show all']")
    assert browser.run(width) == pytest.approx(small, rel=1e-3)


def test_a_search_finds_sections_by_their_operators(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["hundreds"], "tab=graph")
    browser.type("#query", "matmul block.7/")
    wanted = [
        row["id"]
        for row in reports["hundreds"]["sections"]
        if row["groups"][0]["operators"][0]["op_type"] == "MatMul" and "block.7/" in row["name"]
    ]
    assert len(wanted) == 1
    found = browser.run(
        "return [...document.querySelectorAll('.node:not(.dim)')]"
        ".map(e => Number(e.dataset.section))"
    )
    assert found == wanted
    assert "1 of 500 sections" in browser.text(".tools")
    browser.click("[data-tab=sections]")
    assert browser.count("tbody tr") == 1
    assert browser.run("return document.activeElement.id") != "query"
    browser.open(pages["hundreds"], "tab=sections&query=nothing")
    assert browser.text("#view").endswith("none")


def test_a_search_finds_sections_by_their_weights(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    found = reports["trains"]
    weight = next(row for row in found["symbols"] if row["kind"] == "WEIGHT" and row["bytes"])
    readers = {
        row["id"]
        for row in found["sections"]
        if weight["id"] in (*row["inputs"], *row["weights"], *row["outputs"])
    }
    browser.open(pages["trains"], f"tab=graph&query={quote(weight['name'])}")
    lit = "return [...document.querySelectorAll('.node:not(.dim)')].map(e => +e.dataset.section)"
    seen = set(browser.run(lit))
    assert set() < readers <= seen
    assert len(seen) < len(found["sections"])


def test_gradients_lead_to_updates_through_their_packs(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    """Sections that update read packs, in which others have written one gradient each."""
    found = reports["trains at O1"]
    symbols = found["symbols"]

    def pieces(ids: list[int]) -> set[int | None]:
        return {symbols[at]["allocation"] for at in ids if symbols[at]["kind"] == "GRADIENT"}

    pairs = [
        (writer, reader)
        for writer, reader in itertools.product(found["sections"], repeat=2)
        if (writer["type"], reader["type"]) == ("BCKWD", "OPT")
        and pieces(writer["outputs"]) & pieces(reader["inputs"])
    ]
    packed = [pair for pair in pairs if not {*pair[0]["outputs"]} & {*pair[1]["inputs"]}]
    assert packed
    for writer, reader in packed:
        browser.open(pages["trains at O1"], f"tab=graph&section={reader['id']}")
        assert f"{writer['id']} {writer['name']} BCKWD" in browser.text("#details")
        assert browser.count(f"[data-edge='{writer['id']} {reader['id']}']") >= 1
    gradient = next(at for at in packed[0][0]["outputs"] if symbols[at]["pack"] is not None)
    browser.open(pages["trains at O1"], f"tab=symbols&symbol={gradient}")
    assert f"{packed[0][1]['id']} {packed[0][1]['name']} OPT" in browser.text("#details")


def test_tables_are_sorted_and_filled_as_they_are_scrolled(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["hundreds"], "tab=sections")
    ids = (
        "return [...document.querySelectorAll('tbody tr')]"
        ".map(row => Number(row.cells[0].innerText))"
    )
    assert browser.run(ids)[:3] == [0, 1, 2]
    browser.click("th:nth-child(4)")
    rows = sorted(reports["hundreds"]["sections"], key=lambda row: -row["latency_us"])
    slowest = browser.run(ids)
    times = {row["id"]: row["latency_us"] for row in rows}
    assert [times[n] for n in slowest] == [row["latency_us"] for row in rows][: len(slowest)]
    for _ in range(8):
        browser.run("const t = document.querySelector('.table'); t.scrollTop = t.scrollHeight")
        browser.run("document.querySelector('.table').dispatchEvent(new Event('scroll'))")
    assert browser.count("tbody tr") == 500


def test_the_memory_map_shows_what_is_where(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    """What the mouse finds are symbols of the region, most of them even without enlarging."""
    browser.open(pages["trains"], "tab=memory")
    browser.wait("document.querySelector('canvas').width > 300")
    colours = browser.run(
        "const c = document.querySelector('canvas');"
        "const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return new Set(new Uint32Array(data.buffer)).size"
    )
    assert colours > 5
    tips = browser.run(
        "const c = document.querySelector('canvas'), box = c.getBoundingClientRect(), tips = [];"
        "for (let x = 90; x < box.width - 20; x += 40)"
        "  for (let y = 15; y < box.height - 110; y += 2) {"
        "    const place = {clientX: box.left + x, clientY: box.top + y};"
        "    c.dispatchEvent(new MouseEvent('mousemove', place));"
        "    const tip = document.getElementById('tip');"
        "    tips.push(tip.hidden ? '' : tip.textContent.split(' (')[0]);"
        "  } return [...new Set(tips)].filter(Boolean)"
    )
    (region,) = [row for row in reports["trains"]["regions"] if row["used"]]
    names = {row["name"] for row in reports["trains"]["symbols"] if row["region"] == region["name"]}
    assert set(tips) <= names
    assert len(tips) > 0.6 * len(names)
    browser.click("canvas")
    assert browser.text("#details h2").startswith("Symbol")
    assert browser.complaints() == []


def test_the_bytes_alive_reach_the_peak_of_the_report(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    """The strip under the map is as high as its frame where most is alive, and nowhere else."""
    found = reports["hundreds"]
    (region,) = [row for row in found["regions"] if row["used"]]
    spans: dict[int, list[int]] = {}
    for row in found["symbols"]:
        if row["allocation"] is not None:
            spans.setdefault(row["allocation"], []).extend((row["first_call"], row["last_call"]))
    alive = [
        sum(
            found["allocations"][place]["bytes"]
            for place, calls in spans.items()
            if min(calls) <= call <= max(calls)
        )
        for call in range(found["totals"]["calls"])
    ]
    assert max(alive) <= region["peak_live"] * 1.001
    browser.open(pages["hundreds"], "tab=memory")
    browser.wait("document.querySelector('canvas').width > 300")
    tall = browser.run(
        "const c = document.querySelector('canvas'), k = devicePixelRatio, top = c.height - 57 * k;"
        "const data = c.getContext('2d').getImageData(0, top, c.width, 53 * k).data;"
        "const at = (x, y) => 4 * (y * c.width + x);"
        "const blue = (x, y) => data[at(x, y) + 2] > data[at(x, y)] + 60;"
        "const rows = [...new Array(53 * k).keys()];"
        "return [120, c.clientWidth / 2].map(x => rows.filter(y => blue(x * k, y)).length / k)"
    )
    share = [alive[5] / region["used"], alive[250] / region["used"]]
    assert [each / 54 for each in tall] == pytest.approx(share, abs=0.08)


def test_the_roofline_has_a_spot_for_each_section_that_computes(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    browser.open(pages["ten"], "tab=roofline")
    browser.wait("document.querySelector('.spot')")
    computing = [row for row in reports["ten"]["sections"] if row["flops"] and row["latency_us"]]
    assert browser.count(".spot") == len(computing)
    device = {row["name"]: row["value"] for row in reports["ten"]["device"]}
    words = browser.text("svg .word")
    assert f"peak: {device['peak_flops'] / 1e12:.3g} TFLOP/s" in words
    assert "HBM: " in words
    top = browser.run("return [...document.querySelectorAll('.spot')].at(-1).dataset.section")
    browser.click(f".spot[data-section='{top}']")
    assert f"Section {top}: " in browser.text("#details h2")


def test_symbols_lead_to_sections_and_back(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    row = next(row for row in reports["ten"]["symbols"] if row["kind"] == "ACTIVATION")
    browser.open(pages["ten"], f"tab=symbols&query={quote(row['name'])}&symbol={row['id']}")
    shown = browser.text("#details")
    assert f"{row['region']} {row['address']:#x}" in shown
    assert f"({row['bytes']:,} bytes)" in shown
    browser.click("#details h3 + div button")
    assert browser.text("#details h2").startswith("Section")
    assert row["name"] in browser.text("#details")


def test_everything_of_the_report_is_there(
    browser: Browser, pages: dict[str, Path], reports: dict[str, Report]
) -> None:
    """Whatever a report may hold one day, the last view shows it."""
    browser.open(pages["trains"], "tab=everything")
    parts = [line.split(" (")[0] for line in browser.text("#view summary").splitlines()]
    assert parts == [*reports["trains"]]
    browser.run("document.querySelectorAll('#view > details').forEach(d => { d.open = true })")
    browser.wait("document.querySelectorAll('#view > details > :nth-child(2)').length >= 20")
    text = browser.text("#view")
    for argin in reports["trains"]["argins"]:
        assert argin["name"] in text
    smallest = min(reports["trains"]["device"], key=lambda row: row["value"])["value"]
    assert f"\t{smallest:.0e}".replace("e-0", "e-") in text


def test_what_is_typed_behind_the_address_does_no_harm(
    browser: Browser, pages: dict[str, Path]
) -> None:
    for words in (
        "tab=nothing",
        "section=99999&symbol=-3",
        "section=x",
        "scope=7&which=9",
        "paint=constructor",
        "tab=__proto__",
        "tab=memory&region=MOON&part=none",
        "kind=NONE&home=MOON&tab=symbols",
    ):
        browser.open(pages["ten"], words)
        assert browser.count("nav [aria-current=page]") == 1
        assert browser.complaints() == []


def test_the_page_carries_its_report(pages: dict[str, Path], reports: dict[str, Report]) -> None:
    text = pages["hundreds"].read_text("utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    assert json.loads(found) == {"report": reports["hundreds"], "against": None}
    assert len(text.encode()) < 10_000_000
