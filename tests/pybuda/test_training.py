"""Training on one device beside torch in float64: losses, optimizers, gradients, checkpoints."""

from __future__ import annotations

import queue
from contextlib import nullcontext

import pytest
import torch
from pybuda_runs import later
from pybuda_training import (
    WAIT,
    Classifier,
    batches,
    device_with,
    is_checkpoint_of,
    l1,
    near,
    peer,
    peer_of,
    perceptron,
    push,
    sgd,
    taken,
)
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import optimizers


@pytest.mark.parametrize("in_sequence", [False, True], ids=["in threads", "in sequence"])
def test_fifty_steps_are_those_of_torch(in_sequence: bool) -> None:
    model = perceptron()
    loss = functional.cross_entropy
    twin = peer_of(model, loss, lambda p: torch.optim.Adam(p, 0.02))
    device = device_with(
        model, later(nn.CrossEntropyLoss(), "loss"), optimizers.Adam(0.02, device_params=True)
    )
    pairs = batches(100, size=2, classes=True)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=50, microbatch_count=2, _sequential=in_sequence)
    losses = pybuda.get_loss_queue()
    for step in range(50):
        for expected in twin.step(pairs[2 * step : 2 * step + 2]):
            near(taken(losses), expected, 1e-4)
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
    assert checkpoints.empty()
    assert losses.empty()


def test_gradients_add_up_over_microbatches_and_accumulation_steps() -> None:
    model = perceptron()
    twin = peer(model)
    device = device_with(model)
    pairs = batches(24)
    push(pairs, device)
    own: queue.Queue[object] = queue.Queue()
    checkpoints = pybuda.run_training(
        epochs=2, steps=2, accumulation_steps=3, microbatch_count=2, loss_queue=own
    )
    for step in range(4):
        for expected in twin.step(pairs[6 * step : 6 * step + 6]):
            near(taken(own), expected)
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)


def test_checkpoints_come_every_so_many_steps_and_at_the_end() -> None:
    model = perceptron()
    twin = peer(model)
    device = device_with(model)
    pairs = batches(5)
    push(pairs, device)
    own: queue.Queue[object] = queue.Queue()
    checkpoints = pybuda.run_training(steps=5, checkpoint_queue=own, checkpoint_interval=2)
    assert checkpoints is own
    for step, pair in enumerate(pairs, 1):
        twin.step([pair])
        if step in (2, 4, 5):
            is_checkpoint_of(own.get(timeout=WAIT), twin)
    push(batches(2), device)
    assert pybuda.run_training(steps=2, checkpoint_interval=2) is own  # it goes on
    for pair in batches(2):
        twin.step([pair])
    is_checkpoint_of(own.get(timeout=WAIT), twin)
    assert own.empty()


def test_a_pybuda_module_trains_and_stays_as_it_was() -> None:
    module = Classifier("c")
    before = [p.value().clone() for p in module.get_parameters()]
    w, b = (before[n].double().requires_grad_() for n in (0, 1))
    optimizer = torch.optim.SGD([w, b], 0.3)
    device = pybuda.TTDevice("tt0", module=module, optimizer=sgd(0.3))
    device.place_loss_module(pybuda.op.loss.CrossEntropyLoss("ce"))
    torch.manual_seed(5)
    inputs = [torch.randn(2, 3, 6) for _ in range(5)]
    classes = [torch.randint(0, 4, (2, 3)) for _ in range(5)]
    for x, y in zip(inputs, classes, strict=True):
        device.push_to_inputs(x)
        device.push_to_target_inputs(functional.one_hot(y, 4).float())
    checkpoints = pybuda.run_training(steps=5)
    for x, y in zip(inputs, classes, strict=True):
        optimizer.zero_grad()
        logits = x.double() @ w + b + 0.5
        expected = functional.cross_entropy(logits.transpose(1, 2), y, reduction="none").mean(1)
        near(taken(pybuda.get_loss_queue()), expected.detach())
        expected.sum().backward()
        optimizer.step()
    (found,) = checkpoints.get(timeout=WAIT)
    assert found.keys() == {"c.weight", "c.bias"}
    near(found["c.weight"].value(), w.detach())
    near(found["c.bias"].value(), b.detach())
    assert all(map(torch.equal, before, (p.value() for p in module.get_parameters())))


def test_modules_that_share_a_parameter_train_one() -> None:
    first, second = Classifier("first"), Back("second")
    second.weight = first.weight
    device = pybuda.TTDevice("tt0", module=[first, second], optimizer=sgd(0.1))
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    x, y = torch.randn(1, 6), torch.randn(1, 6)
    device.push_to_inputs(x)
    device.push_to_target_inputs(y)
    (found,) = pybuda.run_training().get(timeout=WAIT)
    w = first.weight.value().double().requires_grad_()
    b = first.bias.value().double()
    l1((x.double() @ w + b + 0.5) @ w.T, y.double()).backward()
    near(found["first.weight"].value(), (w - 0.1 * w.grad).detach())


class Back(pybuda.PyBudaModule):
    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("", x, pybuda.op.Transpose("", self.weight, 0, 1))


def test_parameters_of_a_loss_train_too_and_equal_names_get_those_of_modules() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), 2.0))

        def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (self.weight * (prediction - target)).square().sum()

    torch.manual_seed(2)
    model = nn.Linear(6, 4)
    device = device_with(model, later(Weighted(), "loss"))
    pairs = batches(1)
    push(pairs, device)
    (found,) = pybuda.run_training().get(timeout=WAIT)
    assert found.keys() == {"model.weight", "loss.weight", "bias"}
    difference = (model(pairs[0][0]) - pairs[0][1]).detach()
    expected = 2 - 0.05 * (2 * 2 * difference.square()).sum(0)
    near(found["loss.weight"].value(), expected.double(), 1e-4)


def test_several_outputs_and_targets_reach_the_loss_as_tuples() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return self.body(x), x.sum(1)

    class Both(nn.Module):
        def forward(self, outputs, targets) -> torch.Tensor:
            return functional.mse_loss(outputs[0], targets[0]) + (outputs[1] * targets[1]).sum()

    torch.manual_seed(3)
    model = Two()
    device = device_with(model, later(Both(), "both"))
    x, y, z = torch.randn(3, 6), torch.randn(3, 4), torch.randn(3)
    device.push_to_inputs(x)
    device.push_to_target_inputs(y, z)
    pybuda.run_training()
    expected = functional.mse_loss(model.body(x), y, reduction="none").mean(1) + x.sum(1) * z
    near(taken(pybuda.get_loss_queue()), expected.detach().double())


def test_dropout_of_a_forward_pass_is_that_of_its_backward_pass() -> None:
    """The gradient of a sum of kept inputs says which were kept: exactly those of the loss."""

    class Drop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.dropout(x * self.scale, 0.5, self.training)

    class Sum(nn.Module):
        def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (outputs * target).sum()

    device = device_with(Drop(), later(Sum(), "sum"))
    x = 2.0 ** torch.arange(-10, 10, 20 / 64).reshape(1, 64)
    for _ in range(3):
        device.push_to_inputs(x.repeat(2, 1))
        device.push_to_target_inputs(torch.ones(2, 64))
    losses: queue.Queue[object] = queue.Queue()
    pybuda.initialize_pipeline(training=True, output_queue=losses)
    pybuda.run_forward(3)
    seen = torch.stack([taken(losses) for _ in range(3)]).reshape(-1)
    assert len({*seen.tolist()}) == 6  # each sample drops others
    pybuda.run_backward(3, zero_grad=True)
    (gradients,) = pybuda.get_parameter_gradients()
    near(gradients["scale"].value().sum().reshape(1), seen.sum().reshape(1).double())


def test_inference_runs_what_was_trained_and_training_goes_on() -> None:
    model = perceptron()
    before = model[0].weight.detach().clone()
    twin = peer_of(model, l1, lambda p: torch.optim.Adam(p, 0.05))
    device = device_with(model, None, optimizers.Adam(0.05, device_params=True))
    pairs = batches(6)
    for half in (pairs[:3], pairs[3:]):
        push(half, device)
        checkpoints = pybuda.run_training(steps=3)
        for pair in half:
            twin.step([pair])
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
        (found,) = pybuda.run_inference(inputs=[pairs[0][0]]).get(timeout=WAIT)
        near(found.value(), twin.module(pairs[0][0].double()).detach(), 1e-4)
    assert torch.equal(model[0].weight, before)
    with torch.no_grad():
        model[0].weight.zero_()
        twin.module[0].weight.zero_()
    (found,) = pybuda.run_inference(inputs=[pairs[0][0]]).get(timeout=WAIT)
    near(found.value(), twin.module(pairs[0][0].double()).detach(), 1e-4)
    device.remove_modules()
    device.place_module(later(perceptron(), "again"))
    (found,) = pybuda.run_inference(inputs=[pairs[0][0]]).get(timeout=WAIT)
    near(found.value(), perceptron()(pairs[0][0]).detach().double())


def convolutions() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 3),
    )


def attention() -> nn.Module:
    torch.manual_seed(4)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))


@pytest.mark.parametrize(("make", "shape"), [(convolutions, (2, 8, 8)), (attention, (5, 8))])
def test_networks_train_and_are_evaluated_as_in_torch(make, shape: tuple[int, ...]) -> None:
    """Statistics of the device move with each sample, as those of torch do that sees each alone."""
    model = make().eval()  # training begins all the same
    loss = functional.cross_entropy
    twin = peer_of(model.train(), loss, lambda p: torch.optim.SGD(p, 0.05))
    device = device_with(model.eval(), later(nn.CrossEntropyLoss(), "loss"))
    torch.manual_seed(9)
    pairs = [(torch.randn(2, *shape), torch.randint(0, 3, (2,))) for _ in range(4)]
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=4)
    for pair in pairs:
        near(taken(pybuda.get_loss_queue()), *twin.step([pair]), 1e-4)
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
    (found,) = pybuda.run_inference(inputs=[pairs[0][0]]).get(timeout=WAIT)
    near(found.value(), twin.module.eval()(pairs[0][0].double()).detach(), 1e-4)


@pytest.mark.parametrize("first", [True, False], ids=["moved first", "read first"])
def test_buffers_that_move_are_as_they_were_in_the_backward_pass(first: bool) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))
            self.register_buffer("count", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if first:
                self.count.add_(1)
            y = x * self.w * self.count
            if not first:
                self.count.add_(1)
            return y.square()

    class Sum(nn.Module):
        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (output - target).sum()

    device = device_with(Counting(), later(Sum(), "sum"))
    x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    for _ in range(3):
        push([(x, torch.zeros(1, 4))], device)
    pybuda.initialize_pipeline(training=True)
    pybuda.run_forward(3)
    pybuda.run_backward(3)
    (found,) = pybuda.get_parameter_gradients()
    counts = [count + first for count in (1, 2, 3)]
    expected = sum(2 * x[0].double() ** 2 * count**2 for count in counts)
    near(found["w"].value(), expected)
    push([(x, torch.zeros(1, 4))], device)
    pybuda.run_forward(_sequential=True)  # it goes on counting
    losses = [taken(pybuda.get_loss_queue()) for _ in range(4)]
    near(losses[3], (x.double().square() * (4 + first) ** 2).sum(1))


def test_a_module_that_was_changed_trains_as_it_is_now() -> None:
    """What no tensor tells of: another activation. What was trained before is kept."""
    model, pairs = perceptron(), batches(2)
    twin = peer(model)
    device = device_with(model)
    for pair, kind in zip(pairs, (nn.Tanh, nn.ReLU), strict=True):
        model[1], twin.module[1] = kind(), kind()
        push([pair], device)
        told = "have changed since they were compiled to train.*optimizer begins anew"
        with pytest.warns(UserWarning, match=told) if kind is nn.ReLU else nullcontext():
            checkpoints = pybuda.run_training()
        near(taken(pybuda.get_loss_queue()), *twin.step([pair]))  # the step goes on behind it
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
    model[1] = nn.Tanh()
    pybuda.initialize_pipeline(
        training=True, sample_inputs=(pairs[0][0],), sample_targets=(pairs[0][1],)
    )
    pybuda.run_forward(0 + 1)
    model[1] = nn.ReLU()
    with pytest.raises(pybuda.PyBudaError, match="have changed since they were compiled to train"):
        pybuda.run_forward()
