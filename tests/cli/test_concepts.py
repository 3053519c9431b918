"""The worked example of docs/concepts.md: its commands print what the page says they do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def test_the_worked_example_is_what_the_commands_print(
    sambac: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (_ROOT / "docs" / "concepts.md").read_text("utf-8")
    (block,) = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^\$ sambac (.*)$", block, re.MULTILINE)
    (tmp_path / "examples").symlink_to(_ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    results = [sambac(*shlex.split(command)) for command in commands]
    assert [result.code for result in results] == [0, 0]
    shown = block.split("...\n")[1]
    assert "launch 38.2 us" in shown
    assert shown in results[-1].out


def test_the_sum_of_the_worked_example(sambac: Callable, tmp_path: Path) -> None:
    """The formula of the page, with the numbers that `sambac arch sn10` prints."""
    import json
    import tomllib

    path = tmp_path / "product.pef"
    model = f"{_ROOT / 'examples' / 'product.py'}:model"
    assert sambac("compile", model, "--arch", "sn10", "-o", path).code == 0
    table = tomllib.loads(sambac("arch", "sn10").out)
    sn10 = {name: each["value"] for name, each in table.items() if isinstance(each, dict)}
    matrix = 2 * 1024 * 1024
    stream = matrix / sn10["stream_bandwidth"]
    rate = sn10["peak_flops"] * sn10["compute_efficiency"] / sn10["pcus"]
    units = -(-2 * 1024**3 // int(stream * rate))
    compute = 2 * 1024**3 / (units * rate)
    said = sambac("explain", path, "section_0", "--json").out
    facts = [fact["numbers"] for each in json.loads(said) for fact in each["facts"]]
    numbers = next(fact for fact in facts if "latency" in fact)
    assert numbers["launch"] == sn10["launch"]
    assert numbers["fill"] == sn10["fill"]
    assert numbers["held"] == pytest.approx(stream)
    assert numbers["streams"] == pytest.approx(stream)
    assert numbers["compute"] == pytest.approx(compute, rel=1e-3)
    total = sn10["launch"] + sn10["fill"] + stream + max(compute, stream)
    assert numbers["latency"] == pytest.approx(total)
    said = sambac("explain", path, "operator:node_matmul", "--json").out
    facts = [fact["numbers"] for each in json.loads(said) for fact in each["facts"]]
    assert [fact["bytes"] for fact in facts if "held" in fact] == [matrix]
