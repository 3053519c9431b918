"""`sambac arch`, and the options that plan for a part of a device or for several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import parser

import pef

_MODEL = """
<ir_version: 9, opset_import: ["" : 19]>
g (float[2,3] x) => (float[2,3] y)
{
  y = Relu (x)
}
"""


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.onnx"
    onnx.save(parser.parse_model(_MODEL), path)
    return path


def test_devices_are_listed(sambac: Callable) -> None:
    result = sambac("arch")
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in result.out.splitlines()] == ["sn10", "sn30", "sn40l"]


def test_what_is_printed_is_a_device_to_compile_for(
    sambac: Callable, relu: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    text = sambac("arch", "sn30").out
    mine.write_text(text.replace('name = "sn30"', 'name = "mine"'))
    assert sambac("arch", mine).out == mine.read_text()
    target = tmp_path / "relu.pef"
    assert sambac("compile", relu, "--arch", mine, "-o", target).code == 0
    with pef.open(target) as file:
        assert file.program.arch == "mine"


def test_a_device_that_there_is_not_is_refused(sambac: Callable) -> None:
    result = sambac("arch", "sn40")
    assert result.code == 2
    assert "did you mean 'sn40l'" in result.err


def test_tiles_and_chips_are_in_the_record_where_they_were_asked_for(
    sambac: Callable, relu: Path, tmp_path: Path
) -> None:
    options = {"sn30": ("--num-tiles", "4"), "sn40l": ("--n-chips", "8")}
    for name, words in options.items():
        target = tmp_path / f"{name}.pef"
        assert sambac("compile", relu, "--arch", name, *words, "-o", target).code == 0
        key = words[0][2:].replace("-", "_")
        with pef.open(target) as file:
            assert f'"{key}":{words[1]}' in file.program.producer.options.replace(" ", "")
            hbm = [each for each in file.program.regions if each.kind.name == "HBM"]
        assert [each.capacity for each in hbm] == ([512_000_000_000] if name == "sn40l" else [])
        assert sambac("verify", target).code == 0


def test_more_chips_than_can_share_an_operator_are_refused(sambac: Callable, relu: Path) -> None:
    most = sambac("compile", relu, "--n-chips", "4096", "-o", relu.with_suffix(".pef"))
    assert most.code == 0
    result = sambac("compile", relu, "--n-chips", "4097")
    assert result.code == 2
    assert "from 1 to 4096" in result.err


def test_a_wrong_number_of_tiles_is_refused(sambac: Callable, relu: Path) -> None:
    result = sambac("compile", relu, "--arch", "sn30", "--num-tiles", "9")
    assert result.code == 2
    assert "sn30 has 8 tiles" in result.err


def test_more_memory_than_addresses_reach_is_refused(
    sambac: Callable, relu: Path, tmp_path: Path
) -> None:
    mine, target = tmp_path / "mine.toml", tmp_path / "relu.pef"
    mine.write_text(sambac("arch", "sn10").out.replace("1_500_000_000_000", str(1 << 62)))
    assert str(1 << 62) in mine.read_text()
    assert sambac("compile", relu, "--arch", mine, "-o", target).code == 0
    result = sambac("compile", relu, "--arch", mine, "--n-chips", 2, "-o", target)
    assert result.code == 2
    assert "n_chips (--n-chips) is 2: that many times ddr_capacity of sn10" in result.err


def test_messages_do_not_repeat_all_that_a_file_has(sambac: Callable, tmp_path: Path) -> None:
    mine, long = tmp_path / "mine.toml", "x" * 100_000
    text = sambac("arch", "sn10").out
    for part in ('unit = "units"', "value = 640", 'origin = "specified"'):
        assert part in text
        mine.write_text(text.replace(part, f'{part.split(" =")[0]} = "{long}"'))
        result = sambac("arch", mine)
        assert result.code == 2
        assert len(result.err) < 3_000
