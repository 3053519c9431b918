"""Equal models and options give equal bytes, wherever and however the compiler runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.models import light, transformers

_COMPILE = """
import sys
import sambac
model, folder, *levels = sys.argv[1:]
for level in levels:
    sambac.compile(model, sambac.CompileOptions(level=level)).save(f"{folder}/{level}.pef")
"""
# For each process: its seed of hashes, its folder, and which level comes after which.
_PROCESSES = (
    ("0", "one", ("O0", "O1", "O3")),
    ("1", "a longer folder", ("O1", "O3", "O0")),
    ("4242", "dreiß'ig", ("O3", "O0", "O1")),
)

# Kernels of PyTorch as other processors have them.
_KERNELS = (
    {},
    {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "2"},
)
_TRAIN = """
import hashlib
import sys
import torch
from torch import nn
import sambac

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 5)
        for parameter in self.parameters():
            count = torch.arange(parameter.numel()).reshape(parameter.shape)
            parameter.data = (count % 17 - 8) / 16

    def forward(self, x, y):
        places = torch.sin(torch.arange(8.0) / 3)
        scale = torch.ones(16, 16) @ torch.arange(16.0).softmax(0)
        found = torch.relu(self.norm(self.conv(x + places))).mean((2, 3)) * scale
        return nn.functional.cross_entropy(self.head(found), y)

inputs = torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))
sambac.compile(Net(), options, inputs=inputs).save(sys.argv[1])
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
"""


def _compile(model: Path, target: Path, seed: str, levels: tuple[str, ...]) -> None:
    """Compile in a process of its own, in the model's folder, at one level after the other."""
    subprocess.run(
        [sys.executable, "-c", _COMPILE, model.name, str(target), *levels],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=model.parent,
        check=True,
    )


@pytest.mark.parametrize("name", [pytest.param("shufflenet", marks=pytest.mark.long), "bert"])
def test_bytes_depend_on_the_model_and_options_alone(name: str, tmp_path: Path) -> None:
    """Also not on what the process compiled before: each level comes first once."""
    small = transformers.Shape(layers=2, hidden=32, heads=2, length=8, vocabulary=64)
    found: dict[str, set[str]] = {"O0": set(), "O1": set(), "O3": set()}
    for seed, folder, levels in _PROCESSES:
        home = tmp_path / folder
        home.mkdir()
        model = light.randomized(name) if name != "bert" else transformers.bert(small)
        _compile(light.save(model, home / "model.onnx"), home, seed, levels)
        for level, hashes in found.items():
            hashes.add(hashlib.sha256((home / f"{level}.pef").read_bytes()).hexdigest())
    assert {level: len(hashes) for level, hashes in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.long
def test_bytes_do_not_depend_on_the_kernels_of_pytorch(tmp_path: Path) -> None:
    """A module that trains: with the programs for some hosts, of which this host picks none."""
    found = {
        subprocess.run(
            [sys.executable, "-c", _TRAIN, str(tmp_path / "net.pef")],
            env={**os.environ, **kernels},
            check=True,
            capture_output=True,
        ).stdout
        for kernels in _KERNELS
    }
    assert len(found) == 1
