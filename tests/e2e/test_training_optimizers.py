"""Every optimizer from words to a resumed run, and checkpoints of one that meet another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import pef
import sambac
import sambarun
from sambac.optimizers import parse_optimizer
from sambarun.train_loop import Run, train
from sambarun.training.data import Batches, Cursor

_MODEL = """
<ir_version: 10, opset_import: ["": 17]>
net (float[4,3] x) => (float[4,2] y)
<float[3,2] w = {0.5, -1.5, 2.0, 0.25, -0.75, 1.0}, float[2] b = {0.1, -0.2}>
{ h = MatMul (x, w)  a = Add (h, b)  d = Dropout (a)  y = Tanh (d) }"""

CHOICES = {
    "sgd": ("sgd:lr=0.1",),
    "momentum": ("sgd:lr=0.1,momentum=0.9",),
    "nesterov": ("sgd:lr=0.1,momentum=0.9,nesterov",),
    "adam": ("adam:lr=0.01",),
    "amsgrad": ("adam:lr=0.01,amsgrad",),
    "adamw": ("adamw:lr=0.01,amsgrad",),
    "rmsprop": ("rmsprop:lr=0.01",),
    "centered": ("rmsprop:lr=0.01,centered,momentum=0.9",),
    "adagrad": ("adagrad:lr=0.01",),
    "lamb": ("lamb:lr=0.01",),
    "lars": ("lars:lr=0.1,momentum=0.9",),
    "groups": ("adamw:lr=0.01", "lamb:lr=0.1,params=b"),
    "two of a kind": ("adam:lr=0.01", "adam:lr=0.1,params=b,amsgrad"),
}


@cache
def program(choice: str, accumulate: bool = False) -> pef.Program:
    optimizers = tuple(parse_optimizer(text) for text in CHOICES[choice])
    options = sambac.CompileOptions(
        train=True, loss=("mse:y,t",), optimizers=optimizers, accumulate=accumulate
    )
    return sambac.compile(onnx.parser.parse_model(_MODEL), options)


def _run(executable: sambarun.Executable, start: Cursor, steps: int) -> tuple[list[float], Cursor]:
    """Train over ten rows, two batches an epoch; return the losses and where the run stands."""
    rng = np.random.default_rng(0)
    data = {name: rng.standard_normal((10, n)).astype("f") for name, n in (("x", 3), ("t", 2))}
    batches = Batches(executable.program, data)
    done = list(train(executable, batches, Run(steps, start)))
    return [step.losses["loss"] for step in done], done[-1].cursor


@pytest.mark.parametrize("choice", CHOICES)
def test_a_resumed_run_is_the_run_that_went_on(choice: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    with sambarun.load(program(choice)) as executable:
        losses, end = _run(executable, Cursor(shuffle=1), 7)
        executable.save(whole, end)
    with sambarun.load(program(choice)) as executable:
        first, middle = _run(executable, Cursor(shuffle=1), 3)
        executable.save(parts, middle)
    with sambarun.load(program(choice)) as executable:
        rest, end = _run(executable, executable.load(parts), 4)
        executable.save(parts, end)
    assert first + rest == losses
    assert len(set(losses)) == len(losses)
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("choice", "other", "said"),
    [
        ("sgd", "adam", "It is of the optimizer adam, and the program trains with sgd."),
        ("adam", "adamw", "It is of the optimizer adamw, and the program trains with adam."),
        ("lamb", "groups", "It is of the optimizer adamw, lamb, and the program trains with lamb."),
        ("adam", "two of a kind", "It is of the optimizer adam.0, adam.1, and the program tr"),
        ("amsgrad", "adam", "'w__max_exp_avg_sq' is missing."),
        ("adam", "amsgrad", "'w__max_exp_avg_sq' is not in the program"),
    ],
)
def test_a_checkpoint_of_another_optimizer_is_refused(
    choice: str, other: str, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.safetensors"
    with sambarun.load(program(other)) as executable:
        _run(executable, Cursor(), 1)
        executable.save(path, Cursor(step=1))
    with sambarun.load(program(choice)) as executable:
        before = _contents(executable)
        with pytest.raises(sambarun.RunError) as caught:
            executable.load(path)
        assert f"{path} does not fit the program. " in str(caught.value)
        assert said in str(caught.value)
        assert ("It is of the optimizer" in str(caught.value)) is said.startswith("It is")
        assert _contents(executable) == before


def _contents(executable: sambarun.Executable) -> Sequence[tuple[str, bytes]]:
    return [(name, array.tobytes()) for name, array in executable.state().items()]
