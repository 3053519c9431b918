"""Modules on the `meta` device: compiled without any weight, run once weights are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import sambac as sambac_here
from safetensors.torch import save_file
from torch import nn

import pef
import sambac
import sambarun

ROWS = 4
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
        assert "Load a checkpoint (--load FILE), or initialise them from a seed" in message
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


class Network(nn.Module):
    """A convolution, running statistics, and a weight that two layers share."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.two(torch.relu(self.one(pooled)))


IMAGES = torch.randn(2, 2, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def inference():
    return sambac.compile(on_meta(lambda: Network().eval()), inputs=(IMAGES,))


@pytest.fixture
def network():
    torch.manual_seed(1)
    module = Network()
    with torch.no_grad():
        module(IMAGES)  # running statistics other than the first
    return module.eval()


def infer(executable):
    (port,) = executable.program.graphs[0].inputs
    (output,) = executable.run({port.name: IMAGES.numpy()}).values()
    return output


def test_inference_is_compiled_from_shapes_and_runs_with_weights_from_a_file(
    inference, network, tmp_path
):
    assert all(symbol.data is None for symbol in inference.symbols)
    assert pef.check_program(inference) == []
    save_file(_untied(network), tmp_path / "model.safetensors")
    with sambarun.load(inference) as executable:
        with pytest.raises(sambarun.RunError) as caught:
            infer(executable)
        for name in ("conv.weight", "norm.running_var", "one.weight", "two.bias"):
            assert f"'{name}'" in str(caught.value)
        executable.load(tmp_path / "model.safetensors")
        expected = network(IMAGES).detach().numpy()
        np.testing.assert_allclose(infer(executable), expected, rtol=1e-4, atol=1e-5)
        with executable.clone() as other:
            np.testing.assert_array_equal(infer(other), infer(executable))
        np.testing.assert_array_equal(
            executable.state()["conv.weight"], network.conv.weight.detach().numpy()
        )


def _untied(module):
    """Return the state under all names, tensors of their own, as safetensors wants them."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_inference_with_weights_from_a_seed_repeats(inference):
    results = []
    for seed in (3, 3, 4):
        with sambarun.load(inference) as executable:
            executable.initialize(seed)
            results.append(infer(executable))
    np.testing.assert_array_equal(results[0], results[1])
    assert np.abs(results[0] - results[2]).max() > 1e-3


def test_a_file_that_does_not_fit_is_refused_with_all_that_is_wrong(inference, network, tmp_path):
    state = _untied(network)
    del state["norm.weight"]
    state["conv.weight"] = torch.zeros(1)
    state["conv.bia"] = state.pop("conv.bias")
    save_file(state, tmp_path / "model.safetensors")
    with sambarun.load(inference) as executable:
        with pytest.raises(sambarun.RunError) as caught:
            executable.load(tmp_path / "model.safetensors")
        for part in ("'norm.weight' is missing", "'conv.weight' is ", "mean 'conv.bias'?"):
            assert part in str(caught.value)
        with pytest.raises(sambarun.RunError, match="no values for"):
            infer(executable)


def test_weights_that_are_there_stay_constants(network):
    program = sambac.compile(network, inputs=(IMAGES,))
    assert program.requires.features == ()
    with (
        sambarun.load(program) as executable,
        pytest.raises(sambarun.RunError, match="its weights are constants"),
    ):
        executable.initialize(0)


def test_the_commands_run_inference_without_weights(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    done = sambac_here("compile", "net.py:model", "-o", "net.pef", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sambac_here("verify", "net.pef", cwd=tmp_path).returncode == 0
    shown = sambac_here("inspect", "net.pef", cwd=tmp_path).stdout
    assert "4 absent." in shown
    assert "Absent weights (4)" in shown
    words = ("sambarun", "net.pef", "--input", "*=ones")
    refused = run(*words, cwd=tmp_path)
    assert refused.returncode == 2
    assert "'0.weight', '0.bias', '2.weight', '2.bias'" in refused.stderr
    assert "--load FILE" in refused.stderr
    first, again, other = (
        run(*words, "--init", f"random:{seed}", cwd=tmp_path) for seed in (1, 1, 2)
    )
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout != other.stdout
    loaded = run(*words, "--load", "model.safetensors", "--output", "out.npz", cwd=tmp_path)
    assert loaded.returncode == 0, loaded.stderr
    (output,) = np.load(tmp_path / "out.npz").values()
    np.testing.assert_allclose(output, module(torch.ones(4, 6)).detach().numpy(), rtol=1e-5)


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
    done = sambac_here("compile", "net.py:model", *wish, "-o", "net.pef", cwd=tmp_path)
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
