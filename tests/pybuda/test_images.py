"""Images: a device that is compiled in one process runs in another, without the model's source."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from near import assert_near
from pybuda_runs import tanh
from torch import nn

import pef
import pybuda
from pybuda import DataFormat, PyBudaError, TTDevice, TTDeviceImage

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(3))
Y = torch.randn(4, 1, generator=torch.Generator().manual_seed(4))


class Scaled(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(torch.linspace(-1, 1, 32).reshape(8, 4))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("product", x, self.weights)


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        channels = (nn.Unflatten(1, (2, 4)), nn.BatchNorm1d(2), nn.Flatten())
        return nn.Sequential(nn.Linear(8, 8), *channels, nn.Tanh(), nn.Linear(8, 1))


_LATER = """
import json, sys, torch, pybuda
path, said = sys.argv[1:]
image = pybuda.TTDeviceImage.from_disk(path)
device = pybuda.TTDevice.load_image(img=image)
device.push_to_inputs(*(torch.tensor(each) for each in json.loads(said)))
(found,) = pybuda.run_inference().get()
print(json.dumps(found.value().tolist()))
"""


def test_a_process_without_the_model_runs_it(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "net.tti"
    modules = [Scaled("scaled"), pybuda.OnnxModule("tanh", tanh(4))]
    device = TTDevice("tt0", module=modules, chip_ids=[3])
    image = device.compile_to_image(img_path=path, sample_inputs=(X,))
    assert image.get_input_shapes() == [(1, 8)]
    assert not image.training
    expected = (X @ modules[0].weights.value()).tanh()
    command = [sys.executable, "-c", _LATER, str(path), json.dumps([X.tolist()])]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert_near(torch.tensor(json.loads(found.stdout)).numpy(), expected.double().numpy())


def _trained(device: TTDevice, steps: int) -> tuple[list[float], list[dict[str, torch.Tensor]]]:
    for _ in range(steps):
        device.push_to_inputs(X)
        device.push_to_target_inputs(Y)
    checkpoints = pybuda.run_training(steps=steps, _sequential=True)
    queue = pybuda.get_loss_queue()
    losses = [float(queue.get()[0].value().sum()) for _ in range(steps)]
    (found,) = checkpoints.get()
    return losses, [{name: value.value() for name, value in found.items()}]


def _device() -> TTDevice:
    module = pybuda.PyTorchModule("net", net().eval())
    optimizer = pybuda.optimizers.Adam(0.01, device_params=True)
    device = TTDevice("tt0", module=module, optimizer=optimizer)
    device.place_loss_module(pybuda.PyTorchModule("mse", nn.MSELoss()))
    return device


def test_training_goes_on_from_an_image_as_it_would_have(tmp_path: Path) -> None:
    path = tmp_path / "net.tti"
    device = _device()
    image = device.compile_to_image(
        img_path=path, training=True, sample_inputs=(X,), sample_targets=(Y,)
    )
    assert image.training
    losses, (weights,) = _trained(device, 3)
    pybuda.shutdown()
    loaded = TTDevice.load_image(img_path=path)
    first, (one,) = _trained(loaded, 1)
    assert first == pytest.approx(losses[:1])
    assert one.keys() == weights.keys()
    assert loaded.optimizer is not None
    assert loaded.optimizer.learning_rate == 0.01
    found, (last,) = _trained(loaded, 2)
    assert found == pytest.approx(losses[1:], rel=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(last[name], value)


def test_an_image_keeps_what_was_trained() -> None:
    device = _device()
    _, (weights,) = _trained(device, 2)
    image = device.compile_to_image(training=True, sample_inputs=(X,), sample_targets=(Y,))
    evaluating = device.compile_to_image(sample_inputs=(X,))
    device.push_to_inputs(X)
    expected = pybuda.run_inference().get()[0].value()
    pybuda.shutdown()
    TTDevice.load_image(img=image)
    (found,) = pybuda.get_parameter_checkpoint()
    for name, value in weights.items():
        torch.testing.assert_close(found[name].value(), value)
    pybuda.shutdown()
    loaded = TTDevice.load_image(img=evaluating)
    loaded.push_to_inputs(X)
    torch.testing.assert_close(pybuda.run_inference().get()[0].value(), expected)


def test_formats_chips_and_kinds_are_in_the_image() -> None:
    pybuda.set_configuration_options(default_df_override=DataFormat.Bfp2_b)
    arch = pybuda.BackendDevice.Grayskull
    device = TTDevice("gs", 2, arch=arch, module=Scaled("s"), fp32_fallback=DataFormat.Float16)
    image = device.compile_to_image(sample_inputs={"x": X}, microbatch_count=4)
    (narrow,) = [t.value() for t in _run(device, {"x": X})]
    pybuda.pybuda_reset()
    loaded = TTDevice.load_image(img=image, device_id_overrides=[6, 7])
    assert (loaded.arch, loaded.chip_ids, loaded.get_name()) == (arch, (6, 7), "gs")
    assert torch.equal(_run(loaded, {"x": X})[0].value(), narrow)
    assert not torch.allclose(narrow, X @ torch.linspace(-1, 1, 32).reshape(8, 4), atol=1e-3)
    said = image.info()
    for part in ("Bfp2_b", "fp32_fallback: Float16", "microbatch_count: 4", "input shapes: [(1, 8"):
        assert part in said
    with pytest.raises(PyBudaError, match="1 device_id_overrides came; the image is for 2 chips"):
        TTDevice.load_image(img=image, device_id_overrides=[1])
    pybuda.shutdown()
    pybuda.set_configuration_options(default_df_override=DataFormat.Float16)
    with pytest.warns(UserWarning, match="what is configured has no effect on an image"):
        TTDevice.load_image(img=image)


def _run(device: TTDevice, inputs: object) -> list[pybuda.Tensor]:
    device.push_to_inputs(inputs)
    found = pybuda.run_inference().get()
    assert isinstance(found, list)
    return found


def _rewritten(source: Path, target: Path, **changed: object) -> Path:
    """Write an image that says something else."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "bundle.json":
                data = json.dumps({**json.loads(data), **changed}).encode()
            new.writestr(name, data)
    return target


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": 99}, "is an image of format 99; this version reads format 2: call compile_to"),
        ({"arch": "Abacus"}, "is a damaged image: there is no 'Abacus'"),
        ({"stages": []}, "is a damaged image"),
        ({"stages": [{"inputs": ["none"], "names": [], "outputs": []}]}, "there is no 'none'"),
    ],
)
def test_an_image_that_says_something_else_is_refused(
    changed: dict[str, object], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.tti"
    TTDevice("tt0", module=Scaled("s")).compile_to_image(img_path=path, sample_inputs=(X,))
    with pytest.raises(PyBudaError, match=says):
        TTDeviceImage.load_from_disk(_rewritten(path, tmp_path / "other.tti", **changed))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.tti"
    TTDevice("tt0", module=Scaled("s")).compile_to_image(img_path=path, sample_inputs=(X,))
    data, whole = path.read_bytes(), TTDeviceImage.from_disk(path).info()
    refused = 0
    for index in range(0, len(data), len(data) // 40):
        damaged = bytearray(data)
        damaged[index] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = TTDeviceImage.load_from_disk(path).info()
        except (PyBudaError, pef.PefError):
            refused += 1
        else:
            assert found == whole, "what was changed is nothing that is read"
    assert refused > 30
    path.write_bytes(b"no image")
    with pytest.raises(PyBudaError, match="is no bundle of programs, or a damaged one"):
        TTDeviceImage.load_from_disk(path)


def test_what_images_refuse(tmp_path: Path) -> None:
    device = _device()
    with pytest.raises(PyBudaError, match="nothing says what to compile for: give sample_inputs"):
        device.compile_to_image()
    with pytest.raises(PyBudaError, match="sample_targets came without training=True"):
        device.compile_to_image(sample_inputs=(X,), sample_targets=(Y,))
    with pytest.raises(PyBudaError, match="load_image takes either img or img_path"):
        TTDevice.load_image()
    training = device.compile_to_image(training=True, sample_inputs=(X,), sample_targets=(Y,))
    plain = device.compile_to_image(sample_inputs=(X,))
    plain.save_to_disk(tmp_path / "new" / "folders" / "plain.tti")
    pybuda.shutdown()
    loaded = TTDevice.load_image(img=training)
    loaded.push_to_inputs(X)
    with pytest.raises(PyBudaError, match="came from an image of training; compile_to_image"):
        pybuda.run_inference()
    pybuda.shutdown()
    loaded = TTDevice.load_image(img_path=tmp_path / "new" / "folders" / "plain.tti")
    with pytest.raises(PyBudaError, match="image of inference, whose weights are inside"):
        pybuda.get_parameter_checkpoint()
    loaded.place_module(Scaled("s"))
    loaded.push_to_inputs(X)
    with pytest.raises(PyBudaError, match="came from an image, whose modules run by themselves"):
        pybuda.run_inference()


class Halving(pybuda.schedulers.LearningRateScheduler):
    def get_lr(self) -> float:
        return self.optimizer.learning_rate / 2


def test_a_scheduler_is_code() -> None:
    optimizer = pybuda.optimizers.SGD(0.1, device_params=True)
    device = TTDevice("tt0", module=Scaled("s"), optimizer=optimizer, scheduler=Halving(optimizer))
    with pytest.raises(PyBudaError, match="an image holds no code, and a Halving is that"):
        device.compile_to_image(training=True, sample_inputs=(X,))


@pytest.mark.parametrize("first", [True, False])
def test_a_loaded_device_trains_behind_another_one(first: bool) -> None:
    before = nn.Linear(8, 8)
    if not first:
        pybuda.CPUDevice("cpu", module=pybuda.PyTorchModule("before", before))
    device = TTDevice("tt0", module=pybuda.PyTorchModule("net", net()))
    device.place_loss_module(pybuda.PyTorchModule("mse", nn.MSELoss()))
    image = device.compile_to_image(training=True, sample_inputs=(X,), sample_targets=(Y,))
    pybuda.shutdown()
    made = pybuda.CPUDevice("cpu", module=pybuda.PyTorchModule("before", before))
    late = TTDevice.load_image(img=image)
    made.push_to_inputs(X)
    late.push_to_target_inputs(Y)
    if first:
        with pytest.raises(PyBudaError, match="was compiled as the first of its pipeline"):
            pybuda.initialize_pipeline(training=True)
        return
    pybuda.initialize_pipeline(training=True)
    pybuda.run_forward(_sequential=True)
    pybuda.run_backward(zero_grad=True, _sequential=True)
    module, beside = net().train(), deepcopy(before)
    beside.zero_grad()
    for index in range(4):
        nn.functional.mse_loss(
            module(beside(X[index : index + 1])), Y[index : index + 1]
        ).backward()
    found, gradients = pybuda.get_parameter_gradients()
    expected = {name: item.grad for name, item in beside.named_parameters()}
    own = {name: item.grad for name, item in module.named_parameters()}
    for name, value in expected.items():
        torch.testing.assert_close(found[name].value(), value, rtol=1e-4, atol=1e-5)
    for name, value in own.items():
        torch.testing.assert_close(gradients[name].value(), value, rtol=1e-4, atol=1e-5)
