"""Training on several chips of one device, which is what torch does on one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from pybuda_runs import later
from pybuda_training import WAIT, batches, is_checkpoint_of, near, peer_of, push, taken
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import TTDevice
from pybuda.optimizers import Adam


class Tied(nn.Module):
    """A weight at both ends, what passes chips by, a mask, statistics that move, a write.

    One chip has nothing that gets a gradient.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(6, 6)
        self.norm = nn.BatchNorm1d(6, affine=False)
        self.middle = nn.Linear(6, 6)
        self.gate = nn.Linear(6, 1)
        self.squash = nn.ReLU(inplace=True)
        self.last = nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.unread = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun = self.first(x)
        with torch.no_grad():
            gate = self.gate(begun).sigmoid()
        behind = self.squash(self.middle(self.norm(torch.cat([begun, x, -x]))))[:1]
        found: torch.Tensor = self.last(torch.where(begun > 0, behind, begun) + x)
        return found[:, :4] * gate


def test_chips_train_as_one_does(tmp_path: Path) -> None:
    model, path = Tied(), tmp_path / "tied.tti"
    twin = peer_of(model, functional.cross_entropy, lambda p: torch.optim.Adam(p, 0.02))
    pybuda.set_chip_break("last")
    pybuda.set_chip_break("gate")
    pybuda.set_chip_break(pybuda.query.op_type("relu"))
    optimizer = Adam(0.02, device_params=True)
    device = TTDevice("tt0", num_chips=4, module=later(model, "m"), optimizer=optimizer)
    device.place_loss_module(later(nn.CrossEntropyLoss(), "loss"))
    pairs = batches(3, size=2, classes=True)
    image = device.compile_to_image(
        img_path=path, training=True, sample_inputs=pairs[0][:1], sample_targets=pairs[0][1:]
    )
    assert len(image.stages) == 4
    expected = [twin.step([pair])[0] for pair in pairs]
    for from_image in (False, True):
        device = TTDevice.load_image(img_path=path) if from_image else device
        push(pairs, device)
        checkpoints = pybuda.run_training(steps=3)
        for losses in expected:
            near(taken(pybuda.get_loss_queue()), losses, 1e-4)
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
        pybuda.pybuda_reset()


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.other = nn.Dropout(), nn.Dropout()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = x * self.scale
        return self.first(ones) + 2 * self.other(ones)


def test_chips_draw_masks_of_their_own() -> None:
    pybuda.set_chip_break("other")
    device = TTDevice("tt0", num_chips=2, module=later(Drops(), "m"))
    device.place_loss_module(later(nn.L1Loss(), "loss"))
    push([(torch.ones(60, 1), torch.zeros(60, 1))], device)
    pybuda.run_training()
    assert {*taken(pybuda.get_loss_queue()).tolist()} == {0, 2, 4, 6}


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        found[:, 0].mul_(2)
        return found + 1


def branches() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((6, 4), np.float32), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "m"),
        helper.make_node("Tanh", ["m"], ["y"], "1"),
    ]
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])]
        for name, size in (("x", 6), ("y", 4))
    ]
    return helper.make_model(helper.make_graph(nodes, "branches", *ports, [weight]))


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (lambda: pybuda.PyTorchModule("m", Writes()), "writes to '.*', which others read"),
        (
            lambda: pybuda.OnnxModule("m", branches()),
            "'1' is in an ONNX model, which trains on one",
        ),
    ],
    ids=["writes", "onnx"],
)
def test_what_does_not_train_on_several_chips(module, says: str) -> None:
    pybuda.set_chip_break(["layers.1", "1"])
    device = TTDevice("tt0", num_chips=2, module=module())
    device.place_loss_module(later(nn.MSELoss(), "loss"))
    push(batches(1), device)
    with pytest.raises(pybuda.PyBudaError, match=f"device 'tt0': .*{says}"):
        pybuda.run_training()
