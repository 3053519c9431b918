"""Checkpoints that older programs write load into those of today."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import sambac
import sambarun

FOLDER = Path(__file__).parent / "runs"
# Of the model that is in `0_2_training` with momentum, and in `0_2_recompute` without.
MODEL = """
    <ir_version: 8, opset_import: ["" : 13]>
    g (float[4, 6] x, int64[4] t) => (float loss)
    <float[6, 8] w1, float[8] b1, float[8, 3] w2>
    {
      a = MatMul (x, w1)  b = Add (a, b1)  c = Relu (b)  d = MatMul (c, w2)
      loss = SoftmaxCrossEntropyLoss (d, t)
    }
"""
OLD = sambac.SGD(lr=0.5)


def compiled(optimizer: sambac.Optimizer, level: str = "O3") -> sambac.Program:
    model = onnx.parser.parse_model(MODEL)
    for name, shape in {"w1": (6, 8), "b1": (8,), "w2": (8, 3)}.items():
        content = np.ones(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    options = sambac.CompileOptions(train=True, optimizers=(optimizer,), level=level)
    return sambac.compile(model, options)


def inputs(name: str) -> dict[str, np.ndarray]:
    with np.load(FOLDER / f"{name}.npz") as archive:
        return {key[3:]: archive[key] for key in archive if key.startswith("in/")}


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize(
    "optimizer", [OLD, replace(OLD, momentum=0.9), replace(OLD, weight_decay=0.1)]
)
def test_momentum_that_an_older_program_left_out_is_zero(
    optimizer: sambac.Optimizer, level: str, tmp_path: Path
) -> None:
    path, given = tmp_path / "old.safetensors", inputs("0_2_recompute")
    with sambarun.load(FOLDER / "0_2_recompute.pef", threads=1) as old:
        old.step(given)
        old.save(path)
        expected = [float(old.step(given)["loss"]) for _ in range(3)]
    with sambarun.load(compiled(optimizer, level), threads=1) as new:
        before = new.step(given)  # momentum buffers that a load has to clear
        with pytest.warns(sambarun.OtherProgramWarning, match="'sgd.momentum'.* are 0 now"):
            new.load(path)
        assert (new.argins["sgd.momentum"], new.argins["sgd.weight_decay"]) == (0, 0)
        assert not any(v.any() for k, v in new.state().items() if k.endswith("momentum_buffer"))
        found = [float(new.step(given)["loss"]) for _ in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert float(before["loss"]) != pytest.approx(found[0])


def test_momentum_of_an_older_program_is_kept(tmp_path: Path) -> None:
    path, given = tmp_path / "old.safetensors", inputs("0_2_training")
    with sambarun.load(FOLDER / "0_2_training.pef", threads=1) as old:
        old.step(given)
        old.save(path)
        expected, momentum = float(old.step(given)["loss"]), old.argins["sgd.momentum"]
    with sambarun.load(compiled(replace(OLD, momentum=0.5)), threads=1) as new:
        with pytest.warns(sambarun.OtherProgramWarning, match="left out 'sgd.weight_decay', which"):
            new.load(path)
        assert new.argins["sgd.momentum"] == momentum > 0
        assert any(v.any() for k, v in new.state().items() if k.endswith("momentum_buffer"))
        np.testing.assert_allclose(float(new.step(given)["loss"]), expected, rtol=1e-4)


def without(path: Path, *names: str) -> None:
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    save_file({k: v for k, v in kept.items() if k not in names}, path, metadata)


@pytest.mark.parametrize(
    ("optimizer", "lost"),
    [
        # Buffers of a momentum that is there; a rate; a state that every step reads.
        (replace(OLD, momentum=0.9), ("w1__momentum_buffer",)),
        (OLD, ("w1__momentum_buffer", "b1__momentum_buffer", "w2__momentum_buffer")),
        (OLD, ("sgd.lr", "sgd.momentum")),
        (OLD, ("w1", "sgd.momentum")),
        (sambac.AdamW(), ("w1__exp_avg", "adamw.weight_decay")),
        (sambac.AdamW(), ("adamw.beta1", "adamw.weight_decay")),
        # Older programs may lack it; a file of this one is damaged, and 0 is not what it held.
        (sambac.AdamW(), ("adamw.weight_decay",)),
        (replace(OLD, momentum=0.9), ("sgd.momentum", "w1__momentum_buffer")),
    ],
)
def test_nothing_else_may_be_missing(
    optimizer: sambac.Optimizer, lost: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "damaged.safetensors"
    with sambarun.load(compiled(optimizer), threads=1) as executable:
        executable.step(inputs("0_2_recompute"))
        executable.save(path)
        kept = executable.state()
        without(path, *lost)
        with pytest.raises(sambarun.RunError, match=f"'{lost[0]}' is missing"):
            executable.load(path)
        for name, array in executable.state().items():
            np.testing.assert_array_equal(array, kept[name])
