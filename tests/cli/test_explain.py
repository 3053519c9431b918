"""`sambac explain` and `sambac scale` as a shell sees them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from explained import device, heavy, net

Run = Callable[..., object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("explained")


@pytest.fixture(scope="module")
def inference(folder: Path) -> Path:
    heavy(folder).save(folder / "heavy.pef")
    return folder / "heavy.pef"


@pytest.fixture(scope="module")
def training(folder: Path) -> Path:
    net(folder, layers=2, data_parallel=True).save(folder / "net.pef")
    return folder / "net.pef"


def test_the_whole_and_a_part(sambac: Run, inference: Path) -> None:
    whole = sambac("explain", inference)
    assert (whole.code, whole.err) == (0, "")
    assert whole.out.startswith("program heavy\n\nWhat its time is made of\n")
    assert all(len(line) <= 79 for line in whole.out.splitlines())
    part = sambac("explain", inference, "section_1")
    assert part.code == 0
    assert "With the next group, '/layer.5/MatMul', it would need 25 of 24 PMUs" in part.out


def test_json_has_every_number(sambac: Run, inference: Path) -> None:
    (found,) = json.loads(sambac("explain", inference, "1", "--json").out)
    assert (found["kind"], found["name"]) == ("section", "section_1")
    cut = [fact for fact in found["facts"] if fact["numbers"].get("cut") == "limit"]
    assert cut[0]["numbers"] == {
        "cut": "limit", "group": "'/layer.5/MatMul'", "pmus_needed": 25, "pmus_there": 24,
        "pmus_over": 1,
    }  # fmt: skip


def test_names_that_mean_nothing(sambac: Run, inference: Path) -> None:
    result = sambac("explain", inference, "sectoin_1")
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        f"Error: {inference}: there is no graph, section, operator or symbol 'sectoin_1' (did you "
        "mean 'section_1'?).\n"
    )


def test_what_is_no_pef(sambac: Run, tmp_path: Path) -> None:
    (tmp_path / "x.pef").write_bytes(b"no")
    for verb in ("explain", "scale"):
        for name in ("x.pef", "absent.pef"):
            result = sambac(verb, tmp_path / name)
            assert (result.code, result.out) == (2, "")
            assert name in result.err


def test_replicas_as_a_table_json_and_a_plot(sambac: Run, training: Path, tmp_path: Path) -> None:
    link = ("--link-bandwidth", "1GB/s", "--link-latency", "3us", "--replicas", "4,1,4")
    plot = tmp_path / "plot.svg"
    result = sambac("scale", training, *link, "--plot", plot)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    header = next(at for at, line in enumerate(lines) if "replicas" in line and "normal" in line)
    assert [line.split()[0] for line in lines[header + 2 : header + 4]] == ["1", "4"]
    assert lines[-1] == f"plot: {plot}"
    assert all(len(line) <= 79 for line in lines[:-1])
    kinds = [element.get("class") for element in ET.parse(plot).iter()]
    for mode in ("normal", "inorder", "optimal"):
        assert kinds.count(f"line {mode}") == 2, "a line and its key"
    texts = {element.text for element in ET.parse(plot).iter() if element.text}
    assert {"normal", "inorder", "optimal", "1", "4", "replicas"} <= texts
    data = json.loads(sambac("scale", training, *link, "--json").out)
    assert data["link"] == {"bandwidth": 1e9, "latency": 3e-6}
    assert [(row["replicas"], row["mode"]) for row in data["steps"]] == [
        (count, mode) for count in (1, 4) for mode in ("normal", "inorder", "optimal")
    ]


def test_the_link_may_be_the_device_s(sambac: Run, folder: Path, training: Path) -> None:
    arch = device(folder, pcus=64, pmus=40, stage_pmus=2, link_bandwidth=1e9, link_latency=1e-6)
    net(folder, layers=1, data_parallel=True, arch=arch).save(folder / "linked.pef")
    result = sambac("scale", folder / "linked.pef", "--json")
    assert json.loads(result.out)["link"] == {"bandwidth": 1e9, "latency": 1e-6}
    missing = sambac("scale", training)
    assert missing.code == 2
    assert "give its bandwidth (--link-bandwidth, such as 25GB/s) and its latency" in missing.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replicas", "1,x"], "--replicas: '1,x'"),
        (["--replicas", "9" * 5000], "numbers from 1 to 1,048,576"),
        (["--replicas", "0"], "numbers from 1 to 1,048,576"),
        (["--replicas", ","], "such as 1,2,4,8"),
        (["--link-bandwidth", "0"], "'0' is no bandwidth"),
        (["--link-bandwidth", "9e999"], "'9e999' is no bandwidth"),
        (["--link-bandwidth", "fast"], "'fast' is no bandwidth"),
        (
            ["--link-bandwidth", "25"],
            "'25' is a bandwidth without a unit; say which is meant, such as",
        ),
        (["--link-bandwidth", "25e9"], "25e9GB/s, 25e9MB/s or 25e9Gbit/s"),
        (["--link-latency", "-1us"], "'-1us' is no time"),
        (["--link-latency", "3"], "without a unit; say which is meant: 3s, 3ms, 3us, 3ns."),
        (["--plot", "out.png"], "ends with .svg"),
        (["--graph", "trian"], "no graph 'trian' reduces gradients (did you mean 'train'?)"),
    ],
)
def test_words_that_cannot_be_meant(
    sambac: Run, training: Path, words: list[str], said: str
) -> None:
    link = ["--link-bandwidth", "1GB/s", "--link-latency", "0"]
    kept = [] if words[0].startswith("--link") else link
    result = sambac("scale", training, *kept, *words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err


def test_what_reduces_nothing_is_refused(sambac: Run, inference: Path) -> None:
    result = sambac("scale", inference, "--link-bandwidth", "1GB/s", "--link-latency", "0")
    assert result.code == 2
    assert "compile it with --train --data-parallel" in result.err
