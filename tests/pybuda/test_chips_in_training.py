"""Training on several chips of one device, which is what torch does on one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from pybuda_runs import later
from pybuda_training import WAIT, batches, is_checkpoint_of, near, peer_of, push, taken
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import TTDevice
from pybuda.optimizers import Adam
from sambahost.cuts import cut


class Tied(nn.Module):
    """A weight at both ends, what passes chips by, a mask, statistics that move, writes to views.

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
        begun[:, 1].add_(1)
        with torch.no_grad():
            gate = self.gate(begun).sigmoid()
        behind = self.squash(self.middle(self.norm(torch.cat([begun, x, -x]))))[:1]
        found: torch.Tensor = self.last(torch.where(begun > 0, behind, begun) + x)
        found[:, 0].mul_(2)
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


class WritesLater(nn.Module):
    """What the second chip has read by then is written on the first, where nothing needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 4), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun = x * 2
        found: torch.Tensor = self.layers(x) + begun[:, :4]
        begun[:, 1].add_(1)
        return found


class WritesApart(WritesLater):
    """What is written through a view comes to the second chip in two."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun = x * 2
        view, found = begun[:, :4], self.layers(x)
        view.mul_(found)
        return found + begun[:, :4]


class WritesTwice(WritesLater):
    """Both chips move one average."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        self.average.mul_(0.9).add_(0.1 * found.detach().mean(0))
        return found


class ReadsNothingInFront(nn.Module):
    """What trains is behind the break, but for what nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.unread, self.last = nn.Parameter(torch.ones(2)), nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last((ids[:, None] == torch.arange(3)).float())
        return found


_ONNX = """<ir_version: 8, opset_import: ["": 17]>
g (int64[n,6] i) => (float[n,4] y)
<float[3] table = {0.5, -1, 0.2}, float[6,6] w = {WEIGHT}, float[6,4] v = {OTHER},
 int64[1] one = {1}, int64[1] all = {-1}, float[4] s = {1, 2, 3, 4},
 float[4] b = {0, 1, 0, 1}, float[4] mean = {0, 0, 0, 0}, float[4] var = {1, 1, 1, 1}>
{
    j = Sub (i, one)
    x = Gather (table, j)
    a = MatMul (x, w)
    shape = Shape (a)
    t = Tanh (a)
    flat = Reshape (t, all)
    back = Reshape (flat, shape)
    yes = Constant <value = bool {1}> ()
    c = If (yes) <then_branch = then () => (float[n,6] p) { p = MatMul (back, w) },
                  else_branch = otherwise () => (float[n,6] q) { q = MatMul (a, w) }>
    begun = MatMul (x, v)
    m = Greater (a, x)
    chosen = Where (m, c, a)
    last = MatMul (chosen, v)
    sum = Add (last, begun)
    y = BatchNormalization (sum, s, b, mean, var)
}"""


def of_onnx() -> pybuda.OnnxModule:
    """A model with weights that two chips read, a body, sizes, a mask, statistics that move.

    Its first operator has nothing that could have a gradient.
    """
    draw = np.random.default_rng(2)
    text = _ONNX
    for name, count in (("WEIGHT", 36), ("OTHER", 24)):
        text = text.replace(name, ", ".join(f"{each:.3f}" for each in draw.normal(size=count)))
    return pybuda.OnnxModule("m", onnx.parser.parse_model(text))


def test_pieces_of_onnx_train_as_the_whole_does(tmp_path: Path) -> None:
    pairs = [(torch.tensor([[1, 3, 2, 1, 2, 3], [2, 2, 1, 3, 1, 3]]), torch.ones(2, 4))] * 2
    found, path = [], tmp_path / "image.tti"
    for breaks, chips in (([], 1), (["x", "t", "m", "y"], 4)):
        for name in breaks:
            pybuda.set_chip_break(name)
        optimizer = Adam(0.02, device_params=True)
        device = TTDevice("tt0", num_chips=4, module=of_onnx(), optimizer=optimizer)
        device.place_loss_module(later(nn.MSELoss(), "loss"))
        with pytest.warns(match="nothing in front of a chip") if breaks else nullcontext():
            image = device.compile_to_image(
                img_path=path,
                training=True,
                sample_inputs=pairs[0][:1],
                sample_targets=pairs[0][1:],
            )
        assert len(image.stages) == chips + 1  # the loss is a program of its own
        pybuda.pybuda_reset()
        push(pairs, TTDevice.load_image(img_path=path))
        checkpoints = pybuda.run_training(steps=2)
        losses = [taken(pybuda.get_loss_queue()) for _ in pairs]
        (state,) = checkpoints.get(timeout=WAIT)
        found.append([*losses, *(each.value() for each in state.values())])
        pybuda.pybuda_reset()
    for one, several in zip(*found, strict=True):
        torch.testing.assert_close(several, one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("module", [WritesLater, WritesApart, WritesTwice])
def test_what_does_not_train_on_several_chips(module: type[nn.Module]) -> None:
    pybuda.set_chip_break("layers.1")
    device = TTDevice("tt0", num_chips=2, module=later(module(), "m"))
    device.place_loss_module(later(nn.MSELoss(), "loss"))
    push(batches(1), device)
    says = "device 'tt0': .*'.*' writes to what is read on another chip"
    with pytest.raises(pybuda.PyBudaError, match=says):
        pybuda.run_training()


class StopsInFront(nn.Module):
    """Weights, and an input of numbers, in front of what no gradient passes."""

    def __init__(self, *, detached: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3), nn.Linear(3, 3)
        self.detached = detached

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with nullcontext() if self.detached else torch.no_grad():
            begun = self.first(x.to(torch.float32))
        found: torch.Tensor = self.last(begun.detach() if self.detached else begun)
        return found


@pytest.mark.parametrize(
    "module", [ReadsNothingInFront(), StopsInFront(detached=False), StopsInFront(detached=True)]
)
def test_a_front_without_anything_to_train_goes_to_the_chip_behind(module: nn.Module) -> None:
    x = torch.arange(3) if isinstance(module, ReadsNothingInFront) else torch.randn(2, 3)
    with pytest.warns(match="nothing in front of a chip break could have a gradient"):
        pieces = cut(module, [x], 1, ["last"])
    assert pieces == [module]
