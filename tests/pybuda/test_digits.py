"""The example: it learns, wherever its loss is, and what it saves is what it has learned."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

_APP = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "pybuda_digits" / "app.py"))


def test_it_learns_on_either_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, told = tmp_path / "digits.pt", []
    for options in (["--loss", "cpu"], ["--save", str(saved)]):
        _APP["main"](["--epochs", "2", "--channels", "4", "--lr", "8e-3", *options])
        told.append(capsys.readouterr().out)
    on_the_cpu, on_the_device = told
    assert on_the_device.startswith("1437 pictures to train on, 360 held out\n")
    epochs = r"^epoch (\d): loss ([\d.]+), ([\d.]+) % right$"
    (_, before, _), (number, after, share) = re.findall(epochs, on_the_device, re.MULTILINE)
    assert number == "1"
    assert float(after) < 0.5 * float(before)
    assert float(share) > 90
    alike = [float(loss) for _, loss, _ in re.findall(epochs, on_the_cpu, re.MULTILINE)]
    assert alike == pytest.approx([float(before), float(after)], rel=0.05)
    rows = [line.rsplit("  ", 1) for line in on_the_device.splitlines()[-4:]]
    assert [name.strip() for name, _ in rows] == [name for name, *_ in _APP["_NUMBERS"]]
    shares = [float(found.removesuffix(" %")) for _, found in rows]
    assert shares[0] == float(share)  # of the parameters that came back
    assert len({*shares}) > 1  # one digit more or less is seen

    network = _APP["network"](4)
    network.load_state_dict(torch.load(saved))
    _, held_out = _APP["pictures"]()
    right = network(held_out.images).argmax(1) == held_out.labels
    assert 100 * float(right.float().mean()) == pytest.approx(float(share), abs=0.3)


def test_it_tells_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _APP["main"](["--epochs", "0"])
    assert "--epochs is 0; at least 1 is needed" in capsys.readouterr().err
