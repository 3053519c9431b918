"""Nine published networks and two transformers, at every level, beside plain onnxruntime.

The conformance suite runs the published files at O0 and O3 too, so the short run has O1 here; with
random weights it has O0 and O3. It has the networks that are neither deep nor have hundreds of
megabytes of weights; the long run has the rest.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest

import pef
import sambac
import sambarun
from benchmarks.models import light, transformers

_PLAIN = Path(__file__).with_name("plain_session.py")
_LEVELS = ("O0", "O1", "O3")
_RTOL = 1e-4
_ATOL = 1e-5  # of the largest absolute value of the tensor
_HEAVY = ("bvlc_alexnet", "densenet121", "inception_v2", "vgg19", "zfnet512")
_NETWORKS = [
    pytest.param(name, marks=pytest.mark.long) if name in _HEAVY else name for name in light.LIGHT
]

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Network:
    """A network's file, its inputs, and what plain onnxruntime computes from them."""

    path: Path
    inputs: Values
    expected: Values


@pytest.fixture
def folder() -> Iterator[Path]:
    """A scratch folder that is gone after the test: some of the networks are large."""
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize(
    "levels", [("O1",), pytest.param(("O0", "O3"), marks=pytest.mark.long)], ids="-".join
)
@pytest.mark.parametrize("name", _NETWORKS)
def test_published_networks(name: str, levels: tuple[str, ...], folder: Path) -> None:
    """As published, with constant weights: same numbers, and still a small file."""
    path = light.light_path(name)
    network = _network(path, _picture(path), folder)
    for level in levels:
        program = sambac.compile(path, sambac.CompileOptions(level=level))
        target = folder / f"{level}.pef"
        program.save(target)
        assert target.stat().st_size < 1 << 20, f"{level}: constant fills became weights"
        _assert_runs_alike(target, network)


@pytest.mark.parametrize(
    "levels", [("O0", "O3"), pytest.param(("O1",), marks=pytest.mark.long)], ids="-".join
)
@pytest.mark.parametrize("name", _NETWORKS)
def test_networks_with_random_weights(name: str, levels: tuple[str, ...], folder: Path) -> None:
    """With weights that differ from each other, in a file beside the model."""
    path = light.save(light.randomized(name), folder / "model.onnx")
    network = _network(path, _picture(path), folder, "--every-value")
    for level in levels:
        target = folder / "model.pef"
        sambac.compile(path, sambac.CompileOptions(level=level)).save(target)
        if level == "O0":
            _assert_boundaries_alike(target, network)
        _assert_runs_alike(target, network)


@pytest.mark.parametrize("make", [transformers.bert, transformers.gpt])
def test_transformers(make: Callable[[transformers.Shape], onnx.ModelProto], folder: Path) -> None:
    """Small ones, with masks, of a batch of two."""
    shape = transformers.Shape(layers=2, hidden=64, heads=4, length=16, vocabulary=50, batch=2)
    model = make(shape)
    inputs = transformers.token_inputs(model, shape)
    path = light.save(model, folder / "model.onnx")
    network = _network(path, dict(inputs), folder, "--every-value")
    for level in _LEVELS:
        target = folder / "model.pef"
        sambac.compile(path, sambac.CompileOptions(level=level)).save(target)
        if level == "O0":
            _assert_boundaries_alike(target, network)
        _assert_runs_alike(target, network)


@pytest.mark.parametrize("name", ["resnet50", "shufflenet"])
def test_random_weights_are_the_same_every_time(name: str) -> None:
    first, second = light.randomized(name), light.randomized(name)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )
    assert light.randomized(name, seed=1) != first


def _network(path: Path, feeds: Values, folder: Path, *options: str) -> Network:
    """Run plain onnxruntime in a process of its own."""
    inputs, outputs = folder / "inputs.npz", folder / "outputs.npz"
    np.savez(inputs, **feeds)
    command = [sys.executable, str(_PLAIN), str(path), str(inputs), str(outputs), *options]
    subprocess.run(command, check=True)
    with np.load(inputs) as given, np.load(outputs) as computed:
        return Network(path, dict(given), dict(computed))


def _picture(path: Path) -> Values:
    """A random picture for the one input of a network that is no initializer."""
    graph = onnx.load(path, load_external_data=False).graph
    constant = {tensor.name for tensor in graph.initializer}
    (name,) = (value.name for value in graph.input if value.name not in constant)
    return {name: light.image()}


def _assert_runs_alike(target: Path, network: Network) -> None:
    """The file's outputs are those of plain onnxruntime."""
    with sambarun.load(target, threads=1) as executable:
        outputs = executable.run(network.inputs)
    assert outputs
    for name, value in outputs.items():
        _assert_close(name, value, network.expected[name])


def _assert_boundaries_alike(target: Path, network: Network) -> None:
    """Run section by section: what each hands on is what plain onnxruntime has there.

    Symbols that carry the name of a value of the model are compared; a rewrite that merges
    operators keeps the name of the last value.
    """
    compared = 0
    with sambarun.load(target, threads=1, link=False) as executable:
        calls = range(len(executable.program.schedule))
        for call in calls:
            for name, value in executable.run(network.inputs, calls=[call]).items():
                if name in network.expected:
                    _assert_close(name, value, network.expected[name])
                    compared += 1
        computed = _computed(executable.program)
    assert compared >= 20
    # Only a rewrite that replaces an operator by several makes values that the model has not.
    assert compared >= 2 / 3 * computed, f"only {compared} of {computed} values could be compared"


def _computed(program: pef.Program) -> int:
    """How many symbols sections write."""
    return len({symbol for section in program.sections for symbol in section.outputs})


def _assert_close(name: str, actual: np.ndarray, expected: np.ndarray) -> None:
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(
        actual, expected, rtol=_RTOL, atol=_ATOL * scale, err_msg=f"value {name}"
    )
