"""The commands of the tutorial, and what the page promises of them.

Those of the application run in this process, which spares each the import of torch.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import sambaflow.samba as samba

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "samba" / "tutorial.md").read_text("utf-8")
_APP = runpy.run_path(str(_ROOT / "examples" / "samba_digits" / "app.py"))
_CALL = ["python", "examples/samba_digits/app.py"]
_ACCURACY = 97.0


def _run(line: str) -> str:
    """Run a line of the page; return what it says."""
    words = shlex.split(line)
    if words[:2] == _CALL:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            _APP["main"](words[2:])
        return said.getvalue()
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", line],
        env={**os.environ, "PATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("tutorial")
    (path / "examples").symlink_to(_ROOT / "examples")
    with contextlib.chdir(path):
        yield path
    samba.session.reset()


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, str]:
    """What the commands of each part of the page say, by its heading."""
    parts = re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", _PAGE, re.DOTALL | re.MULTILINE)
    blocks = {
        heading: re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        for heading, text in parts
    }
    return {
        heading: "".join(_run(line) for line in "".join(found).splitlines())
        for heading, found in blocks.items()
        if found
    }


def _epochs(text: str) -> list[str]:
    return re.findall(r"^epoch \d+: .*$", text, re.MULTILINE)


def test_the_pef_is_where_the_page_says(told: dict[str, str], folder: Path) -> None:
    pef = folder / "build" / "samba" / "digits" / "digits.pef"
    assert f"PEF file {pef.resolve()} created" in told["Compile"]
    log = pef.with_name("digits.pef.log").read_text("utf-8")
    for part in re.findall(r"^\| (\w.*?) \| .*", _section("Compile"), re.MULTILINE)[1:]:
        for table in part.split(", "):
            assert re.search(rf"^{table}\b", log, re.MULTILINE), table
    (summary,) = re.findall(r"^Digits compiled for .*?(?= \.\.\.)", _PAGE, re.DOTALL | re.MULTILINE)
    assert " ".join(summary.split()) in " ".join(log.split())


def _section(heading: str) -> str:
    return _PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_an_interrupted_run_loses_nothing(told: dict[str, str], folder: Path) -> None:
    resumed = [*_epochs(told["Run"]), *_epochs(told["Checkpoints"])]
    whole = _run(shlex.join([*_CALL, *_words("Run"), "--num-epochs", "4"]))
    assert len(resumed) == 4
    assert resumed == _epochs(whole)
    (last,) = re.findall(r"^epoch 3: loss ([\d.]+)", _section("Checkpoints"), re.MULTILINE)
    assert float(re.findall(r"loss ([\d.]+)", resumed[3])[0]) == pytest.approx(float(last), rel=0.1)


def test_an_interrupted_save_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(states: object, path: Path) -> None:
        path.write_bytes(b"half a")
        raise KeyboardInterrupt

    model, path = torch.nn.Linear(1, 1), tmp_path / "digits.pt"
    optimizer = torch.optim.SGD(model.parameters())
    monkeypatch.setattr(samba.session, "to_cpu", lambda *given: None)
    _APP["save"](path, model, optimizer, 1)
    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _APP["save"](path, model, optimizer, 2)
    assert _APP["resume"](path, model, optimizer) == 1


def _words(heading: str) -> list[str]:
    (line,) = re.findall(r"^python .*$", _section(heading), re.MULTILINE)
    return shlex.split(line.partition(" --num-epochs")[0])[2:]


def test_the_network_learns_and_infers(told: dict[str, str], folder: Path) -> None:
    (trained,) = re.findall(r"^accuracy ([\d.]+) %", told["Checkpoints"], re.MULTILINE)
    assert float(trained) >= _ACCURACY
    # From the PEF for training, and from one for inference with another batch size.
    inferred = re.findall(r"^accuracy ([\d.]+) %", told["Infer"], re.MULTILINE)
    assert inferred == [trained, trained]
    report = json.loads((folder / "build" / "samba" / "accuracy.json").read_text("utf-8"))
    assert 100 * report["val_metrics"]["acc"] == pytest.approx(float(trained), abs=0.005)


def test_testing_and_measuring(told: dict[str, str]) -> None:
    assert "test passed" in told["Test"]
    assert "e2e_throughput: " in told["Measure"]
    assert re.search(r"^ +1 +Backward +[\d.]+ [mu]s", told["Measure"], re.MULTILINE)


def test_two_processes_learn_together(told: dict[str, str]) -> None:
    said = told["Train in several processes"]
    assert len(_epochs(said)) == 3  # one of the two speaks
    assert float(re.findall(r"^accuracy ([\d.]+) %", said, re.MULTILINE)[0]) >= _ACCURACY


def test_sambarun_takes_the_exported_state(told: dict[str, str], folder: Path) -> None:
    _, rows = _APP["pictures"]()
    image, label = rows.tensors
    np.savez(folder / "held_out.npz", image=image.numpy(), label=label.numpy())
    said = _run(
        "sambarun build/samba/digits/digits.pef --load build/samba/digits.safetensors "
        "--eval --data held_out.npz"
    )
    assert float(re.findall(r"accuracy ([\d.]+)", said)[0]) >= _ACCURACY
