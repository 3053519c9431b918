"""`sambac inspect`: parts of a report, the page for browsers, and what a terminal shows."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from benchmarks.models import synthetic
from pef.report import Report

COMMAND = [sys.executable, "-c", "from samba_cli.sambac import main; main()"]
KINDS = ("inputs", "weights", "outputs")


@pytest.fixture
def chain(sambac: Callable, tmp_path: Path) -> Path:
    """Twenty sections of one operator each."""
    onnx.save(synthetic.chain(20), tmp_path / "chain.onnx")
    path = tmp_path / "chain.pef"
    assert sambac("compile", tmp_path / "chain.onnx", "-O0", "-o", path).code == 0
    return path


@pytest.fixture
def whole(sambac: Callable, chain: Path) -> Report:
    found: Report = json.loads(sambac("inspect", chain, "--json").out)
    return found


def ids(sambac: Callable, chain: Path, *words: object) -> list[int]:
    found = json.loads(sambac("inspect", chain, "--json", *words).out)
    assert list(found) == ["sections"]
    return [row["id"] for row in found["sections"]]


class TestParts:
    @pytest.mark.parametrize(
        ("pattern", "wanted"),
        [
            ("3", [3]),
            ("17..40", [17, 18, 19]),
            ("5, 0..1", [0, 1, 5]),
            ("FWD", [*range(20)]),
            ("/block.1/*", [4, 5, 6, 7]),
            ("/block.?/MatMul*,2", [0, 2, 4, 8, 12, 16]),
        ],
    )
    def test_sections_by_pattern(
        self, sambac: Callable, chain: Path, pattern: str, wanted: list[int]
    ) -> None:
        assert ids(sambac, chain, "--sections", pattern) == wanted

    def test_a_name_means_itself(self, sambac: Callable, chain: Path, whole: Report) -> None:
        for row in whole["sections"]:
            assert ids(sambac, chain, "--sections", row["name"]) == [row["id"]]

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("20", "there is no section 20; ids are 0..19"),
            ("9" * 5000, "no section is meant by '9999"),
            ("FWT", "no section is meant by 'FWT' (did you mean 'FWD'?)"),
            ("0,nothing*", "no section is meant by 'nothing*'"),
            (",", "no section is meant by ''"),
        ],
    )
    def test_a_pattern_that_means_nothing_is_refused(
        self, sambac: Callable, chain: Path, pattern: str, said: str
    ) -> None:
        result = sambac("inspect", chain, "--sections", pattern)
        assert (result.code, result.out) == (2, "")
        assert said in result.err

    def test_the_slowest_come_first(self, sambac: Callable, chain: Path, whole: Report) -> None:
        slowest = sorted(whole["sections"], key=lambda row: (-row["latency_us"], row["id"]))
        assert ids(sambac, chain, "--top", 4) == [row["id"] for row in slowest[:4]]
        among = [row["id"] for row in slowest if row["id"] in range(6, 12)]
        assert ids(sambac, chain, "--top", 3, "--sections", "6..11") == among[:3]

    def test_symbols_of_sections(self, sambac: Callable, chain: Path, whole: Report) -> None:
        found = json.loads(sambac("inspect", chain, "--json", "--symbols", "--sections", 3).out)
        section = whole["sections"][3]
        touched = {symbol for kind in KINDS for symbol in section[kind]}
        assert {row["id"] for row in found["symbols"]} == touched
        largest = json.loads(sambac("inspect", chain, "--json", "--symbols", "--top", 2).out)
        sizes = sorted((row["bytes"] for row in whole["symbols"]), reverse=True)
        assert [row["bytes"] for row in largest["symbols"]] == sizes[:2]

    def test_the_text_has_the_same_parts(self, sambac: Callable, chain: Path) -> None:
        out = sambac("inspect", chain, "--sections", 3).out
        titles = re.findall(r"^(\S.*?) \(", out, flags=re.MULTILINE)
        assert titles == [
            "Sections",
            "Time of sections",
            "Operators that compute",
            "Fusion groups",
            "Data flow",
        ]
        assert "Fusion groups" not in sambac("inspect", chain, "--top", 2).out
        symbols = sambac("inspect", chain, "--symbols").out
        assert symbols.startswith("Symbols (")


class TestPage:
    def test_it_is_written_whole(self, sambac: Callable, chain: Path, tmp_path: Path) -> None:
        page = tmp_path / "chain.html"
        result = sambac("inspect", chain, "--html", page)
        assert result.code == 0
        assert result.out.startswith(f"{page}: ")
        text = page.read_text("utf-8")
        assert text.startswith("<!DOCTYPE html>")
        (data,) = re.findall(r'id="data">(.*?)</script>', text)
        assert json.loads(data)["report"] == json.loads(sambac("inspect", chain, "--json").out)
        assert json.loads(data)["against"] is None

    def test_equal_files_give_equal_pages(
        self, sambac: Callable, chain: Path, tmp_path: Path
    ) -> None:
        pages = [tmp_path / "a.html", tmp_path / "b.html"]
        for page in pages:
            sambac("inspect", chain, "--html", page)
        assert pages[0].read_bytes() == pages[1].read_bytes()

    def test_two_files_on_one_page(
        self, sambac: Callable, chain: Path, pef_file: Path, tmp_path: Path
    ) -> None:
        page = tmp_path / "both.html"
        assert sambac("inspect", chain, "--html", page, "--against", pef_file).code == 0
        (data,) = re.findall(r'id="data">(.*?)</script>', page.read_text("utf-8"))
        assert json.loads(data)["against"]["file"]["name"] == "layer.pef"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--against", "{other}"], "--against compares on a page: add --html OUT"),
            (["--html", "{new}", "--json"], "--html writes all of a PEF; leave out --json"),
            (["--html", "{new}", "--top", "3"], "--html writes all of a PEF"),
            (["--html", "{file}"], "chain.pef"),
            (["--html", "{other}", "--against", "{other}"], "layer.pef"),
            (["--html", "{new}", "--against", "no.pef"], "no.pef cannot be read"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self,
        sambac: Callable,
        chain: Path,
        pef_file: Path,
        tmp_path: Path,
        words: list[str],
        said: str,
    ) -> None:
        before = chain.read_bytes(), pef_file.read_bytes()
        names = {"new": tmp_path / "new.html", "file": chain, "other": pef_file}
        result = sambac("inspect", chain, *(word.format(**names) for word in words))
        assert (result.code, result.out) == (2, "")
        assert said in result.err
        assert (chain.read_bytes(), pef_file.read_bytes()) == before
        assert not (tmp_path / "new.html").exists()


def on_a_terminal(
    words: list[object], columns: int, lines: int, environment: dict[str, str]
) -> str:
    """Run `sambac` on a terminal of its own, and return what it printed there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    inherited = {name: v for name, v in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**inherited, "TERM": "xterm", **environment},
    )
    os.close(slave)
    printed = bytearray()
    try:
        while chunk := os.read(master, 65536):
            printed += chunk
    except OSError:
        pass  # the other end is closed: so Linux says that all is read
    os.close(master)
    assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")


class TestTerminal:
    @pytest.mark.parametrize("columns", [40, 80, 120])
    @pytest.mark.parametrize("words", [[], ["--top", 5], ["--sections", "3"], ["--symbols"]])
    def test_nothing_is_wider_than_it(self, chain: Path, columns: int, words: list[object]) -> None:
        shown = on_a_terminal(
            ["inspect", chain, "--no-pager", *words], columns, 24, {"NO_COLOR": "1"}
        )
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        assert len(lines) > 5
        assert max(map(len, lines)) <= columns

    @pytest.mark.parametrize("columns", [30, 40, 50])
    def test_no_number_is_cut_short(self, chain: Path, columns: int) -> None:
        """Where even few columns do not fit, some are left out, and the title tells which."""
        shown = on_a_terminal(["inspect", chain, "--no-pager"], columns, 24, {"NO_COLOR": "1"})
        full = on_a_terminal(["inspect", chain, "--no-pager"], 400, 24, {"NO_COLOR": "1"})
        told = [
            set(re.findall(r"0x[0-9a-f]+|\d[\d,]*,\d+(?:\.\d+)?|\d+\.\d+", text))
            for text in (shown, full)
        ]
        assert len(told[0]) > 20
        assert told[0] <= told[1]
        assert "(no room for" in " ".join(shown.split())

    def test_bars_are_as_long_as_what_they_stand_for(self, chain: Path, whole: Report) -> None:
        shown = on_a_terminal(["inspect", chain, "--no-pager", "--top", 20], 200, 24, {})
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
        slowest = max(row["latency_us"] for row in whole["sections"])
        for row in whole["sections"]:
            (line,) = [line for line in lines if line.rstrip().endswith(f" {row['name']}")]
            time = re.search(rf"{row['latency_us']:,.3f} +(█*)", line)
            assert time is not None
            assert len(time[1]) == int(12 * row["latency_us"] / slowest + 0.0625)

    def test_what_is_longer_than_it_goes_through_the_pager(
        self, chain: Path, tmp_path: Path
    ) -> None:
        read = tmp_path / "read"
        pager = tmp_path / "pager"
        pager.write_text(f"#!/bin/sh\ncat > {read}\n")
        pager.chmod(0o755)
        shown = on_a_terminal(["inspect", chain], 80, 24, {"PAGER": str(pager)})
        assert shown == ""
        assert "Symbols (" in read.read_text("utf-8")
        read.unlink()
        for words in (["--no-pager"], ["--sections", "3", "--symbols"]):
            assert on_a_terminal(["inspect", chain, *words], 80, 24, {"PAGER": str(pager)})
            assert not read.exists()
