"""What training refuses, warns of, and does when something fails or ends."""

from __future__ import annotations

import queue
import threading
from functools import partial

import pytest
import torch
from pybuda_runs import at_work, later
from pybuda_training import (
    WAIT,
    Head,
    batches,
    device_with,
    is_checkpoint_of,
    near,
    on,
    peer,
    perceptron,
    push,
    taken,
)
from torch import nn

import pybuda
from pybuda import optimizers

Queue = queue.Queue[object]


@pytest.mark.parametrize("kind", ["tt", "cpu"])
def test_what_fails_reaches_who_waits(kind: str) -> None:
    body, head = perceptron(), Head()
    first, last = on("tt", "first", body), on(kind, "last", head)
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(2)
    push(pairs, first, last)
    checkpoints = pybuda.run_training(steps=5, microbatch_count=2)
    losses = pybuda.get_loss_queue()
    for _ in pairs:
        taken(losses)
    first.push_to_inputs(torch.zeros(3, 7))
    for waiting in (losses, checkpoints):
        with pytest.raises(pybuda.PyBudaError, match=r"'input 0' has shape \[1, 7\]; float32"):
            waiting.get(timeout=WAIT)
    with pytest.raises(pybuda.PyBudaError, match="the pipeline has failed"):
        pybuda.get_parameter_gradients()
    with pytest.raises(pybuda.PyBudaError, match="the pipeline has failed"):
        pybuda.run_backward()
    push(pairs, first, last)
    assert pybuda.run_training(microbatch_count=2).get(timeout=WAIT)


def test_an_error_in_the_last_device_ends_all_of_them() -> None:
    class Failing(nn.Module):
        def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            raise ValueError("no loss today")

    first = on("tt", "first", perceptron())
    last = pybuda.CPUDevice("last")
    last.place_loss_module(later(Failing(), "failing"))
    push(batches(30), first, last)
    checkpoints = pybuda.run_training(steps=3, microbatch_count=10)
    with pytest.raises(ValueError, match="no loss today"):
        checkpoints.get(timeout=WAIT)
    pybuda.shutdown()
    assert not at_work("first")
    assert not at_work("last")


def test_targets_that_do_not_fit_are_told() -> None:
    device = on("tt", "tt0", perceptron())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    checkpoints = pybuda.run_training(steps=2)
    taken(pybuda.get_loss_queue())
    wrong = (torch.zeros(3, 6), torch.zeros(3, 5))
    push([wrong], device)
    with pytest.raises(pybuda.PyBudaError, match=r"'target 0' has shape \[1, 5\]; float32\[1, 4\]"):
        checkpoints.get(timeout=WAIT)
    device.remove_modules()
    device.place_module(later(perceptron(), "m"))
    push([wrong], device)
    with (
        pytest.warns(UserWarning, match="target size"),
        pytest.raises(
            pybuda.PyBudaError, match=r"MSELoss does not run on tensors of \[1, 6\], \[1, 5"
        ),
    ):
        pybuda.run_training()


def test_who_asks_for_what_never_comes_is_told_of_an_end() -> None:
    device = on("tt", "tt0", perceptron())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    pybuda.initialize_pipeline(training=True)
    pybuda.run_forward(2)
    pybuda.run_backward(2)
    taken(pybuda.get_loss_queue())
    said: list[str] = []

    def ask() -> None:
        try:
            pybuda.get_parameter_gradients()
        except pybuda.PyBudaError as error:
            said.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    pybuda.shutdown()
    thread.join(WAIT)
    assert said
    told = ("ended before all of its results", "no pipeline", "does not train")
    assert any(each in said[0] for each in told)


def test_who_waits_is_told_of_an_end() -> None:
    device = on("tt", "tt0", perceptron())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    checkpoints = pybuda.run_training(steps=2)
    pybuda.shutdown()
    with pytest.raises(pybuda.PyBudaError, match="ended before all of its results"):
        checkpoints.get(timeout=WAIT)


def test_a_device_without_an_optimizer_warns() -> None:
    for kind in (pybuda.TTDevice, pybuda.CPUDevice):
        device = kind("d", module=later(perceptron(), "m"))
        device.place_loss_module(later(nn.MSELoss(), "mse"))
        push(batches(1), device)
        with pytest.warns(UserWarning, match="has no optimizer: its parameters stay"):
            (found,) = pybuda.run_training(_sequential=True).get(timeout=WAIT)
        assert torch.equal(found["0.weight"].value(), perceptron()[0].weight)
        pybuda.shutdown()


def trains(*devices: pybuda.Device) -> None:
    push(batches(1), devices[0], devices[-1])
    pybuda.run_training(_sequential=True)


class Vector(nn.Module):
    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return output - target


def test_what_training_refuses() -> None:
    first = on("tt", "first", perceptron())
    for call, name in (
        (pybuda.run_inference, "output_queue"),
        (pybuda.run_training, "loss_queue"),
        (pybuda.run_training, "checkpoint_queue"),
        (partial(pybuda.initialize_pipeline, training=True), "checkpoint_queue"),
        (partial(pybuda.initialize_pipeline, training=True), "output_queue"),
    ):
        with pytest.raises(pybuda.PyBudaError, match=f"{name} is a list; a queue.Queue was expect"):
            call(**{name: []})
    with pytest.raises(pybuda.PyBudaError, match=r"d2d_fwd_queues\[0\] is 1; a queue.Queue was"):
        pybuda.initialize_pipeline(training=True, d2d_fwd_queues=[1])
    with pytest.raises(pybuda.PyBudaError, match="'first', the last one, has no loss module"):
        pybuda.run_training()
    first.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match="has the loss module 'mse'; remove_loss_module"):
        first.place_loss_module(later(nn.MSELoss(), "again"))
    with pytest.raises(pybuda.PyBudaError, match="steps is 0; there is nothing to train"):
        pybuda.run_training(steps=0)
    with pytest.raises(pybuda.PyBudaError, match="checkpoint_interval is -1"):
        pybuda.run_training(checkpoint_interval=-1)
    for run in (pybuda.run_forward, pybuda.run_backward):
        pybuda.initialize_pipeline(
            training=True, sample_inputs=torch.ones(1, 6), sample_targets=torch.ones(1, 4)
        )
        with pytest.raises(pybuda.PyBudaError, match="for ever, which is for inference alone"):
            run(0)
    with pytest.raises(pybuda.PyBudaError, match="0 microbatches were pushed, 3 are to run"):
        pybuda.run_training(steps=3, _sequential=True)
    with pytest.raises(pybuda.PyBudaError, match="give sample_inputs and sample_targets, or push"):
        pybuda.initialize_pipeline(training=True)
    with pytest.raises(pybuda.PyBudaError, match=r"no pipeline|have changed"):
        pybuda.run_optimizer()
    push(batches(1), first)
    with pytest.raises(pybuda.PyBudaError, match="checkpoint_queue came without training"):
        pybuda.initialize_pipeline(training=False, checkpoint_queue=Queue())
    pybuda.initialize_pipeline(training=False)
    with pytest.raises(pybuda.PyBudaError, match="one of inference; call initialize_pipeline"):
        pybuda.run_optimizer(checkpoint=True)
    pybuda.initialize_pipeline(training=True)
    with pytest.raises(pybuda.PyBudaError, match="backward more often than it ran forward"):
        pybuda.run_backward(_sequential=True)
    second = on("cpu", "second", Head())
    second.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match="'first' has a loss module, which belongs on the"):
        trains(first, second)
    with pytest.raises(pybuda.PyBudaError, match="targets came for device 'first'; the last one,"):
        first.push_to_target_inputs(torch.ones(1))
    with pytest.raises(pybuda.PyBudaError, match="targets have no names"):
        second.push_to_target_inputs({"y": torch.ones(1)})


@pytest.mark.parametrize("kind", ["tt", "cpu"])
def test_a_loss_is_one_number(kind: str) -> None:
    device = on(kind, "d", perceptron())
    device.place_loss_module(later(Vector(), "vector"))
    with pytest.raises(pybuda.PyBudaError, match="one number was expected"):
        trains(device)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: optimizers.SGD(0.1), "takes either device_params=True or a list of parameters"),
        (lambda: optimizers.SGD(0.1, [], True), "takes either device_params=True or a list"),
        (lambda: optimizers.SGD(0.1, []), "give Parameters, or device_params=True"),
        (lambda: optimizers.SGD(0.1, [torch.ones(1)]), "a Tensor came among parameters"),
        (lambda: optimizers.SGD(-1.0, device_params=True), "lr is -1; give"),
        (lambda: optimizers.LAMB(clip_value=(2, 1), device_params=True), "clip_value is"),
        (lambda: pybuda.TTDevice("t", optimizer="sgd"), "optimizer is 'sgd'; a pybuda"),
        (lambda: pybuda.TTDevice("t", scheduler=1), "scheduler is 1; a pybuda"),
        (lambda: pybuda.schedulers.LearningRateScheduler(1), "a scheduler got a int"),
        (lambda: pybuda.op.loss.L1Loss("l", "mean"), "reduction is 'mean'; it is one of avg, sum"),
        (lambda: pybuda.TTDevice("t").place_loss_module(nn.MSELoss()), "a MSELoss came where"),
        (lambda: pybuda.CPUDevice("c").place_loss_module(pybuda.op.loss.L1Loss("l")), "runs PyTor"),
    ],
)  # fmt: skip
def test_what_is_refused(make, says) -> None:
    with pytest.raises(pybuda.PyBudaError, match=says):
        make()


def test_what_functions_of_the_program_must_return() -> None:
    device = pybuda.CPUDevice("a", lambda m: m, module=later(perceptron(), "m"))
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match="returned a Sequential; one torch Optimizer"):
        trains(device)
    pybuda.shutdown()
    device = pybuda.CPUDevice(
        "a",
        lambda m: torch.optim.SGD(m.parameters(), 0.1),
        lambda o: [o],
        module=later(perceptron(), "m"),
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match="returned a list; one torch LRScheduler"):
        trains(device)
    optimizer = optimizers.SGD(0.1, [pybuda.Parameter(torch.ones(1), name="0.wait")])
    pybuda.shutdown()
    tt = pybuda.TTDevice("t", module=later(perceptron(), "m"), optimizer=optimizer)
    tt.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match=r"'0.wait', .* \(did you mean '0.weight'\?\)"):
        trains(tt)


def test_options_without_effect_warn() -> None:
    with pytest.warns(UserWarning, match="LAMB: correction=True has no effect"):
        optimizers.LAMB(correction=True, device_params=True)
    with pytest.warns(UserWarning, match="LARS: nesterov=True has no effect"):
        optimizers.LARS(nesterov=True, device_params=True)


def test_parameters_without_training_are_those_of_modules() -> None:
    model = perceptron()
    pybuda.TTDevice("tt", module=later(model, "m"))
    (((name, tensor), *_),) = (part.items() for part in pybuda.get_parameter_checkpoint())
    assert name == "0.weight"
    assert torch.equal(tensor.value(), model[0].weight)


def test_inference_has_no_use_for_a_loss() -> None:
    model = perceptron()
    device = pybuda.TTDevice("tt", module=later(model, "m"))
    pybuda.CPUDevice("loss").place_loss_module(later(nn.MSELoss(), "mse"))
    x = torch.ones(2, 6)
    device.push_to_inputs(x)
    (found,) = pybuda.run_inference().get(timeout=WAIT)
    near(found.value(), model(x).detach().double())


def test_a_first_device_need_not_have_parameters_that_train() -> None:
    for module, x in (
        (nn.Embedding(6, 4).requires_grad_(False), torch.tensor([1, 2])),
        (nn.Linear(3, 4).requires_grad_(False), torch.ones(2, 3)),
    ):
        pybuda.shutdown()
        first, last = on("tt", "first", module), on("tt", "last", Head())
        last.place_loss_module(later(nn.MSELoss(), "mse"))
        push([(x, torch.ones(2, 4))], first, last)
        if not x.is_floating_point():
            with pytest.raises(pybuda.PyBudaError, match="neither parameters that train nor inp"):
                pybuda.run_training()
            continue
        (nothing, found) = pybuda.run_training().get(timeout=WAIT)
        assert not nothing
        assert not torch.equal(found["out.weight"].value(), Head().out.weight)


def test_gradients_on_a_cpu_do_not_depend_on_the_mode_of_the_caller() -> None:
    model = perceptron()
    device = pybuda.CPUDevice("cpu", module=later(model, "m"))
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    pybuda.initialize_pipeline(training=True)
    with torch.no_grad():
        pybuda.run_forward(_sequential=True)
        pybuda.run_backward(_sequential=True)
    (gradients,) = pybuda.get_parameter_gradients()
    assert float(gradients["0.weight"].value().abs().sum()) > 0


def test_a_parameter_trains_on_one_device() -> None:
    shared = nn.Linear(4, 4)
    first, last = on("tt", "first", shared), on("cpu", "last", nn.Sequential(nn.Tanh(), shared))
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    with pytest.raises(pybuda.PyBudaError, match=r"'1.weight' is on the devices 'first'"):
        pybuda.run_training()
    shared.requires_grad_(False)
    push([(torch.ones(1, 4), torch.ones(1, 4))], first, last)
    assert pybuda.run_training().get(timeout=WAIT)


def test_a_schedule_is_that_of_one_device() -> None:
    class Same(pybuda.schedulers.LearningRateScheduler):
        def get_lr(self) -> float:
            return 0.1

    optimizer = optimizers.SGD(0.1, device_params=True)
    pybuda.TTDevice("a", optimizer=optimizer)
    pybuda.TTDevice("b", optimizer=optimizer)
    with pytest.raises(pybuda.PyBudaError, match="'a' and 'c' have one optimizer, whose"):
        pybuda.TTDevice("c", optimizer=optimizer, scheduler=Same(optimizer))
    with pytest.raises(pybuda.PyBudaError, match="scheduler of device 'c' is of another optimiz"):
        pybuda.TTDevice("c", scheduler=Same(optimizer))


def test_freezing_after_compiling_is_told_once_and_has_no_effect() -> None:
    model = perceptron()
    twin = peer(model)
    device = device_with(model)
    pairs = batches(3)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=1, _sequential=True)
    model[0].weight.requires_grad_(False)
    with pytest.warns(UserWarning, match=r"goes on training \S*0\.weight, frozen") as told:
        pybuda.run_training(steps=2, _sequential=True)
    assert len(told) == 1
    checkpoints.get(timeout=WAIT)
    for pair in pairs:
        twin.step([pair])
    is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
