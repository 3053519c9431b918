"""Training over several devices, and by hand: gradients go back over all of them."""

from __future__ import annotations

import queue
import warnings

import pytest
import torch
from pybuda_runs import later
from pybuda_training import (
    WAIT,
    Head,
    batches,
    near,
    on,
    parts_of,
    perceptron,
    push,
    sgd,
    taken,
    twin_of,
)
from torch import nn
from torch.nn import functional

import pybuda
import sambac
from pybuda import optimizers

Queue = queue.Queue[object]


@pytest.mark.parametrize("in_sequence", [False, True], ids=["in threads", "in sequence"])
@pytest.mark.parametrize("kinds", ["tt tt", "cpu tt", "tt cpu", "cpu cpu"])
def test_two_devices_train_as_one_module_does(kinds: str, in_sequence: bool) -> None:
    body, head = perceptron(), Head()
    kind_of_body, kind_of_head = kinds.split()
    twin = twin_of(body, head, by_sample=kind_of_head == "tt")
    first, last = on(kind_of_body, "first", body), on(kind_of_head, "last", head)
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(40)
    push(pairs, first, last)
    checkpoints = pybuda.run_training(steps=10, microbatch_count=4, _sequential=in_sequence)
    losses = pybuda.get_loss_queue()
    for step in range(10):
        for expected in twin.step(pairs[4 * step : 4 * step + 4]):
            near(taken(losses), expected, 1e-4)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    expected_parts = twin.named()
    assert found.keys() == expected_parts.keys()
    for name, tensor in found.items():
        near(tensor, expected_parts[name], 1e-4)


def test_a_loss_alone_on_a_cpu_takes_what_comes() -> None:
    body = perceptron()
    twin = twin_of(body, by_sample=False)
    first, last = on("tt", "first", body), pybuda.CPUDevice("loss")
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(20)
    push(pairs, first, last)
    checkpoints = pybuda.run_training(steps=5, accumulation_steps=2, microbatch_count=2)
    for step in range(5):
        for expected in twin.step(pairs[4 * step : 4 * step + 4]):
            near(taken(pybuda.get_loss_queue()), expected, 1e-4)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)


def test_a_pipeline_by_hand() -> None:
    body, head = perceptron(), Head()
    twin = twin_of(body, head, by_sample=True)
    first, last = on("tt", "first", body), on("tt", "last", head)
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    losses, forth, back = Queue(), Queue(), Queue()
    pairs = batches(8)
    checkpoints = pybuda.initialize_pipeline(
        training=True,
        output_queue=losses,
        sample_inputs=(pairs[0][0],),
        sample_targets=(pairs[0][1],),
        microbatch_count=2,
        d2d_fwd_queues=[forth],
        d2d_bwd_queues=[back],
    )
    assert pybuda.get_loss_queue() is losses
    for step in range(2):
        own = pairs[4 * step : 4 * step + 4]
        push(own, first, last)
        for half in (0, 1):
            pybuda.run_forward(2)
            pybuda.run_backward(2, zero_grad=half == 0)
        gradients = parts_of(pybuda.get_parameter_gradients(), "0", "1")
        pybuda.run_optimizer(checkpoint=step == 1)
        middles = [twin.module[0](x.double()).detach().requires_grad_() for x, _ in own]
        wanted = [
            functional.mse_loss(twin.module[1](m), y.double(), reduction="none").mean(1).sum()
            for m, (_, y) in zip(middles, own, strict=True)
        ]
        starts = torch.autograd.grad(sum(wanted), middles)
        for expected in twin.step(own):
            near(taken(losses), expected, 1e-4)
        for middle, start in zip(middles, starts, strict=True):
            near(taken_one(forth), middle.detach(), 1e-4)
            near(taken_one(back), start, 1e-4)
        for name, parameter in twin.module.named_parameters():
            assert parameter.grad is not None
            near(gradients[name], parameter.grad, 1e-4)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)
    assert forth.empty()
    assert back.empty()


def taken_one(items: Queue) -> torch.Tensor:
    item = items.get(timeout=WAIT)
    assert isinstance(item, list)
    (tensor,) = item
    found: torch.Tensor = tensor.value()
    return found


def test_weights_are_updated_by_the_program() -> None:
    """As programs do that have an optimizer of their own, on the host."""
    body, head = perceptron(), Head()
    twin = twin_of(body, head, by_sample=False)
    first = pybuda.TTDevice("first", module=later(body, "body"))
    last = pybuda.CPUDevice("last", module=later(head, "head"))
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(4)
    push(pairs, first, last)
    pybuda.initialize_pipeline(training=True)
    for pair in pairs:
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        new = [
            {name: before[name].value() - 0.1 * gradient.value() for name, gradient in part.items()}
            for before, part in zip(
                pybuda.get_parameter_checkpoint(), pybuda.get_parameter_gradients(), strict=True
            )
        ]
        pybuda.update_device_parameters(first, [new[0]])
        pybuda.update_device_parameters(last, [{**new[1], "other": torch.ones(1)}])
        twin.step([pair])
    found = parts_of(pybuda.get_parameter_checkpoint(), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)
    with pytest.raises(pybuda.PyBudaError, match=r"no parameter '0.wait' \(did you mean '0.weig"):
        pybuda.update_device_parameters(first, [{"0.wait": torch.ones(1)}])
    with pytest.raises(pybuda.PyBudaError, match=r"'2.bias' is \[4\], a tensor of \[5\] came"):
        pybuda.update_device_parameters(first, [{"2.bias": torch.ones(5)}])
    with pytest.raises(pybuda.PyBudaError, match="parameters is a dict; a list of dictionaries, o"):
        pybuda.update_device_parameters(first, {"2.bias": torch.ones(4)})
    with pytest.raises(pybuda.PyBudaError, match="1 dictionaries of parameters came for 2 dev"):
        pybuda.update_device_parameters(parameters=[{}])
    assert parts_of(pybuda.get_parameter_checkpoint(last), "1").keys() <= found.keys()
    (gradients,) = pybuda.get_parameter_gradients(last)
    assert gradients.keys() == dict(head.named_parameters()).keys()


@pytest.mark.parametrize("writes_later", [False, True])
def test_weights_are_updated_of_a_device_that_is_not_compiled_yet(writes_later: bool) -> None:
    """One behind a CPU that trains is compiled for the first microbatch which comes from there."""
    body, head = Head(), nn.Linear(4, 4)
    twin = twin_of(body, head, by_sample=True)
    first = pybuda.CPUDevice(
        "first", lambda m: torch.optim.SGD(m.parameters(), 0.1), module=later(body, "body")
    )
    last = pybuda.TTDevice("last", module=later(head, "head"), optimizer=sgd(0.1))
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    inputs, targets = torch.randn(3, 4), torch.randn(3, 4)
    pybuda.initialize_pipeline(training=True, sample_inputs=(inputs,), sample_targets=(targets,))
    values = torch.linspace(-1, 1, 4)
    pybuda.update_device_parameters(last, [{"bias": torch.zeros(4)}])
    pybuda.update_device_parameters(last, [{"bias": values}])
    if writes_later:
        with torch.no_grad():
            head.bias.copy_(values := torch.linspace(0, 1, 4))
    assert torch.equal(pybuda.get_parameter_checkpoint(last)[0]["bias"].value(), values)
    with torch.no_grad():
        twin.module[1].bias.copy_(values)
    push([(inputs, targets)], first, last)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    pybuda.run_optimizer()
    twin.step([(inputs, targets)])
    near(pybuda.get_parameter_checkpoint(last)[0]["bias"].value(), twin.named()["1.bias"], 1e-5)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("tt", "'only' steps its optimizer before any backward pass: gradients are zero"),
        ("cpu", "'only' steps its optimizer, and no parameter has a gradient: they stay"),
    ],
)
def test_a_step_without_gradients_is_told(kind: str, told: str) -> None:
    pairs, device = batches(1), on(kind, "only", perceptron())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(pairs, device)
    pybuda.initialize_pipeline(training=True)
    before = pybuda.get_parameter_checkpoint(device)
    pybuda.run_forward(_sequential=True)
    with pytest.warns(UserWarning, match=told):
        pybuda.run_optimizer(_sequential=True)
    for found, was in zip(pybuda.get_parameter_checkpoint(device), before, strict=True):
        assert all(torch.equal(found[name].value(), was[name].value()) for name in was)
    pybuda.run_backward(zero_grad=True, _sequential=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pybuda.run_optimizer(_sequential=True)


def test_schedulers_of_both_kinds() -> None:
    class Tenth(pybuda.schedulers.LearningRateScheduler):
        def get_lr(self) -> float:
            return self.optimizer.learning_rate * 0.1

        def get_pytorch_scheduler(self, optimizer: torch.optim.Optimizer) -> object:
            if self.torch_scheduler is None:
                self.torch_scheduler = Own(optimizer)
            return self.torch_scheduler

    class Own(pybuda.torch_schedulers.TorchLearningRateScheduler):
        def get_lr(self) -> list[float | torch.Tensor]:
            return [base * 0.1**self.last_epoch for base in self.base_lrs]

    body, head = perceptron(), Head()
    twin = twin_of(body, head, by_sample=False)
    optimizer = optimizers.SGD(0.1, device_params=True)
    rates = Tenth(optimizer)
    first = pybuda.TTDevice("tt", module=later(body, "body"), optimizer=optimizer, scheduler=rates)
    last = pybuda.CPUDevice(
        "cpu",
        lambda m: torch.optim.SGD(m.parameters(), 0.1),
        rates.get_pytorch_scheduler,
        module=later(head, "head"),
    )
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(3)
    push(pairs, first, last)
    pybuda.initialize_pipeline(training=True)
    for number, pair in enumerate(pairs):
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        pybuda.run_optimizer()
        pybuda.run_schedulers()
        twin.optimizer.param_groups[0]["lr"] = 0.1 * 0.1**number
        twin.step([pair])
    found = parts_of(pybuda.get_parameter_checkpoint(), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)


def test_several_tensors_go_back_and_integers_do_not() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(8)
            self.table = nn.Embedding(5, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows = self.table(x)
            return rows, x, rows.sum(-1), rows.detach()

    class Join(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, rows, x, sums, unused) -> torch.Tensor:
            return rows.sum(-1) * self.w + sums * x

    class Difference(nn.Module):
        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return (output - target).square().sum()

    table = Split().table.weight.detach().double()
    x, y = torch.tensor([[0, 2, 3]] * 2), torch.ones(2, 3)
    table.requires_grad_()
    rows = nn.functional.embedding(x, table)
    (rows.sum(-1) + rows.sum(-1) * x - y).square().sum().backward()
    for kinds in (("tt", "tt"), ("tt", "cpu"), ("cpu", "tt")):
        first, last = on(kinds[0], "first", Split()), on(kinds[1], "last", Join())
        last.place_loss_module(later(Difference(), "d"))
        push([(x, y)], first, last)
        pybuda.initialize_pipeline(training=True)
        pybuda.run_forward()
        pybuda.run_backward()
        (gradients,) = pybuda.get_parameter_gradients(first)
        near(gradients["table.weight"].value(), table.grad)
        pybuda.shutdown()


def test_more_microbatches_than_wait_between_devices() -> None:
    body = perceptron()
    twin = twin_of(body, by_sample=False)
    first, last = on("tt", "first", body), pybuda.CPUDevice("loss")
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(40, size=1)
    push(pairs, first, last)
    checkpoints = pybuda.run_training(microbatch_count=40)
    twin.step(pairs)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)


def test_queues_of_processes_do_as_well() -> None:
    """Programs make them, as devices of the original are processes."""
    context = torch.multiprocessing.get_context("spawn")
    losses, checkpoints = context.Queue(), context.Queue()
    first, last = on("cpu", "first", perceptron()), on("cpu", "last", Head())
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    twin = twin_of(perceptron(), Head(), by_sample=False)
    pairs = batches(2)
    push(pairs, first, last)
    pybuda.run_training(steps=2, loss_queue=losses, checkpoint_queue=checkpoints)
    for pair in pairs:
        near(torch.tensor(losses.get(timeout=WAIT)).double(), *twin.step([pair]), 1e-4)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    for name, tensor in twin.named().items():
        near(found[name], tensor, 1e-4)
    first.push_to_inputs(torch.ones(1, 7))
    last.push_to_target_inputs(torch.ones(1, 4))
    pybuda.run_training()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        losses.get(timeout=WAIT)


def test_outputs_of_training_alone_are_refused() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = perceptron()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.body(x)
            return (y, y * 2) if self.training else (y,)

    first, last = on("tt", "first", Auxiliary()), pybuda.CPUDevice("last")
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), first, last)
    with pytest.raises(sambac.CompileError, match="returns 2 tensors while it trains and 1 while"):
        pybuda.run_training()
