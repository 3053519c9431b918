"""The programs of the pages run, from top to bottom, and say what the pages promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_PAGES = Path(__file__).parents[2] / "docs" / "pybuda"


def _said(page: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the programs of a page in one another's names; return what they print."""
    text = (_PAGES / page).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "page"})
    return capsys.readouterr().out


def _numbers(pattern: str, said: str) -> list[float]:
    """Return the numbers in the only line that fits `pattern`."""
    (found,) = re.findall(f"^{pattern}$", said, re.MULTILINE)
    return [*map(float, [found] if isinstance(found, str) else found)]


def test_the_program_of_the_first_page(capsys: pytest.CaptureFixture[str]) -> None:
    (classes,) = re.findall(r"^tensor\(\[(.*)\]\)$", _said("README.md", capsys))
    assert len(classes.split(",")) == 16


def test_the_program_of_the_page_of_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert _said("configuration.md", capsys) == "(16, 10)\n"


def test_the_programs_of_the_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    said = _said("tutorial.md", capsys)
    assert said.startswith("one call: (16, 10) tensor([")
    assert said.count("placed: 0.") == 2
    assert _numbers(r"pipeline: \(16, 32\) \(16, 10\) (.*)", said) == pytest.approx([16])
    number = r"([\d.]+)"
    before, after = _numbers(f"on the device: from {number} to {number}", said)
    assert after < 0.9 * before
    assert _numbers(f"on a CPU: from {number} to {number}", said)[0] == before
    assert _numbers(f"trained: {number}", said)[0] == pytest.approx(after, abs=0.05)
    assert said.count("by hand: ['0.weight', '0.bias'] (10,)\n") == 2
    assert "by hand: 0.0025 is the rate of the next step\n" in said
    assert "by hand: 8 losses, (16, 32) went back\n" in said
    lines = ("all digits", "bfloat16", "bfloat16 in one pass", "weights of 4 bits besides")
    errors = [_numbers(f"{line}: (.*)", said)[0] for line in lines]
    assert errors == sorted(errors)
    assert errors[0] < 1e-6
    assert errors[1] > 1e-4
    assert errors[3] > errors[2] > errors[1]
    first, second = _numbers(f"on the host: from {number} to {number}", said)
    assert second < first
    assert re.search(
        r"^4 bits: device 'tt0': output 0 is up to .* from what torch gives; their", said, re.M
    )
    assert "verified: ['tt0', 'tt1', 'cpu_loss']\n" in said
    assert "from an image: [(1, 64)] (16, 10)\n" in said
