"""Small programs for small devices, of which there is something to explain."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import sambac
from benchmarks.models import synthetic
from pef import Program
from sambac.arch import arch_text

ADAM = (sambac.AdamW(lr=1e-3),)


def device(folder: Path, base: str = "sn30", **numbers: float) -> str:
    """Write a device that has other `numbers` than a built-in one, and return its path."""
    text = arch_text(base).replace(f'name = "{base}"', 'name = "small"')
    for name, value in numbers.items():
        text, count = re.subn(rf"(\[{name}\]\nvalue = )\S+", rf"\g<1>{value}", text)
        if not count:
            text += (
                f'\n[{name}]\nvalue = {value}\nunit = "{_UNITS[name]}"\norigin = "assumed"\n'
                'source = "a test"\n'
            )
    path = folder / f"small-{base}.toml"
    path.write_text(text)
    return str(path)


_UNITS = {
    "link_bandwidth": "B/s", "link_latency": "s", "ddr_bandwidth": "B/s", "stage_pmus": "units",
}  # fmt: skip


class Net(nn.Module):
    """Layers with residual connections and a loss."""

    def __init__(self, layers: int = 4, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean square of what is missing to `y`."""
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return nn.functional.mse_loss(x, y)


def net(folder: Path, *, layers: int = 4, width: int = 64, **options: object) -> Program:
    """Compile a training step of `Net` for a device of few units."""
    torch.manual_seed(5)
    example = torch.zeros(16, width), torch.zeros(16, width)
    if "arch" not in options:
        options["arch"] = device(folder, pcus=64, pmus=40, stage_pmus=2)
    made = sambac.CompileOptions(train=True, optimizers=ADAM, **options)
    return sambac.compile(Net(layers, width), made, inputs=example)


def heavy(folder: Path, numbers: Mapping[str, float] | None = None, **options: object) -> Program:
    """Compile eight residual layers for a device of few units."""
    if "arch" not in options:
        small = {"pcus": 64, "pmus": 24, "stage_pmus": 2, **(numbers or {})}
        options["arch"] = device(folder, **small)
    model = synthetic.heavy(layers=8, width=64)
    return sambac.compile(model, sambac.CompileOptions(**options))


PROGRAMS: Mapping[str, Callable[[Path], Program]] = {
    "inference": heavy,
    "single": lambda folder: heavy(folder, level="O0"),
    "rules": lambda folder: heavy(folder, level="O1"),
    "training": net,
    "full": lambda folder: net(
        folder,
        arch=device(folder, base="sn40l", pcus=64, pmus=40, stage_pmus=2, hbm_capacity=150_000),
        memory={"x": "HOST"},
    ),
}
"""Programs by name, each made in a folder."""
