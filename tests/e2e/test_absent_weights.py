"""Modules on the `meta` device: compiled without any weight, trained once weights are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import sambac
import sambarun

ROWS = 4
X = (torch.zeros(1, 2),)
SOURCE = """
import torch
from torch import nn


def model():
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    return module, (torch.zeros(4, 6),)
"""


class Classifier(nn.Module):
    """A network with a buffer, and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.outer(self.norm(self.inner(x))), y)


def on_meta(make):
    with torch.device("meta"):
        return make()


def rows():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 6, generator=generator)
    return x, torch.randint(0, 3, (ROWS,), generator=generator)


@pytest.fixture(scope="module")
def training():
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))
    return sambac.compile(on_meta(Classifier), options, inputs=rows())


def feeds(program):
    names = [port.name for port in program.graphs[0].inputs if not port.name.endswith("__grad")]
    return {name: item.numpy() for name, item in zip(names, rows(), strict=False)}


def test_training_is_refused_with_the_list_of_what_is_absent(training):
    with sambarun.load(training) as executable:
        with pytest.raises(sambarun.RunError) as caught:
            executable.step(feeds(training))
        message = str(caught.value)
        assert "Load a checkpoint, or initialise them from a seed" in message
        for name in ("inner.weight", "inner.bias", "norm.running_mean", "outer.weight"):
            assert f"'{name}'" in message


def test_training_begins_from_a_seed_or_from_pytorchs_weights(training, tmp_path):
    torch.manual_seed(1)
    module = Classifier()
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    (loss,) = [port.name for port in training.graphs[0].outputs]
    with sambarun.load(training) as executable:
        executable.initialize(3)
        first = executable.step(feeds(training))[loss]
        assert np.isfinite(first)
        assert executable.step(feeds(training))[loss] < first
        executable.load(tmp_path / "model.safetensors")
        expected = module.train()(*rows()).item()
        assert executable.step(feeds(training))[loss] == pytest.approx(expected, rel=1e-5)


def test_what_is_trained_is_evaluated_with_weights_from_a_file(training, tmp_path):
    torch.manual_seed(1)
    module = Classifier()
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    with sambarun.load(training) as executable:
        with pytest.raises(sambarun.RunError, match=r"no values for .* 'inner\.weight'"):
            executable.run(feeds(training), section_types="FWD")
        executable.load(tmp_path / "model.safetensors")
        (loss,) = executable.run(feeds(training), section_types="FWD").values()
    assert loss == pytest.approx(module.eval()(*rows()).item(), rel=1e-5)


def test_inference_wants_weights_when_it_is_compiled():
    with pytest.raises(sambac.CompileError, match=r"for 4 of its weights \('0\.weight', '0\.bias'"):
        sambac.compile(on_meta(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))), inputs=X)


def run(*words, cwd):
    command = Path(sys.executable).with_name(words[0])
    return subprocess.run(
        [command, *words[1:]], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_commands_do_the_same(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    wish = ("--train", "--loss", "mse:output,target", "--optimizer", "sgd:lr=0.1")
    done = run("sambac", "compile", "net.py:model", *wish, "-o", "net.pef", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with sambarun.load(tmp_path / "net.pef") as executable:
        names = [port.name for port in executable.program.graphs[0].inputs]
    target = np.zeros((ROWS, 3), np.float32)
    np.savez(tmp_path / "data.npz", **{names[0]: rows()[0].numpy(), "target": target})
    steps = ("net.pef", "--steps", "1", "--data", "data.npz")
    refused = run("sambarun", *steps, cwd=tmp_path)
    assert refused.returncode == 2
    assert "'0.weight'" in refused.stderr
    made_up = run("sambarun", *steps, "--init", "random:0", cwd=tmp_path)
    assert made_up.returncode == 0, made_up.stderr
    loaded = run(
        "sambarun", *steps, "--load", "model.safetensors", "--log-csv", "loss.csv", cwd=tmp_path
    )
    assert loaded.returncode == 0, loaded.stderr
    assert "memory: HBM " in loaded.stdout
    loss = float((tmp_path / "loss.csv").read_text().splitlines()[1].split(",")[2])
    assert loss == pytest.approx(module(rows()[0]).square().mean().item(), rel=1e-5)
