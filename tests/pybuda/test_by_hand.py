"""Devices that a program drives one by one: passes, commands, compiling, torch beside them."""

from __future__ import annotations

import inspect
import queue
import re
import threading
from collections.abc import Sequence

import pytest
import torch
from pybuda_runs import later, tanh
from pybuda_training import WAIT
from torch import nn

import pybuda
from pef import Program
from pybuda.config import CompilerConfig
from sambahost.driven import Command, CommandType
from sambahost.training_pipeline import BETWEEN

X, Y = torch.linspace(-1, 1, 6).reshape(2, 3), torch.linspace(1, 0, 4).reshape(2, 2)
RATE = 0.1


def near(found: Sequence[object], expected: Sequence[object]) -> None:
    for one, other in zip(found, expected, strict=True):
        own = one.value() if isinstance(one, pybuda.Tensor | pybuda.Parameter) else one
        torch.testing.assert_close(own, torch.as_tensor(other), rtol=1e-4, atol=1e-6)


class Layers(nn.Module):
    """Two layers, and one that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.unread = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


def pipeline() -> tuple[pybuda.TTDevice, pybuda.CPUDevice, Layers, nn.Linear]:
    """A device that trains, and a CPU with a layer and the loss behind it; a microbatch waits."""
    front, back = Layers(), nn.Linear(2, 2)
    optimizer = pybuda.optimizers.Adam(RATE, device_params=True)
    device = pybuda.TTDevice("tt", module=later(front, "front"), optimizer=optimizer)
    host = pybuda.CPUDevice(
        "cpu",
        module=later(nn.Sequential(back), "back"),
        optimizer_f=lambda module: torch.optim.SGD(module.parameters(), RATE),
    )
    host.place_loss_module(later(nn.MSELoss(), "loss"))
    push(device, host)
    return device, host, front, back


def push(device: pybuda.Device, host: pybuda.Device) -> None:
    device.push_to_inputs(X)
    host.push_to_target_inputs(Y)


def gradients(front: nn.Module, back: nn.Module) -> tuple[torch.Tensor, ...]:
    """Torch's loss, the gradient between the two, and that of the first layer's weight."""
    between = front(X)
    loss = nn.functional.mse_loss(back(between), Y)
    wanted = [between, next(front.parameters())]
    return loss, *torch.autograd.grad(loss, wanted, retain_graph=True)


def test_devices_one_by_one_are_a_pipeline() -> None:
    device, host, front, back = pipeline()
    traced: queue.Queue[object] = queue.Queue()
    host.set_debug_gradient_trace_queue(traced)
    losses: queue.Queue[object] = queue.Queue()
    with pytest.raises(pybuda.PyBudaError, match="call initialize_pipeline first"):
        device.forward(1)
    pybuda.initialize_pipeline(training=True, output_queue=losses)
    loss, between, weight = gradients(front, back)
    with pytest.raises(pybuda.PyBudaError, match="0 microbatches were pushed, 1 are to run"):
        host.forward(1)
    device.forward(1)
    assert losses.empty()
    host.forward_pt(1)
    assert losses.get(timeout=WAIT) == pytest.approx((loss.item(),), rel=1e-5)
    with pytest.raises(pybuda.PyBudaError, match="0 gradients were pushed"):
        device.backward(1, zero_grad=True)
    host.backward(1, zero_grad=True)
    assert traced.get(timeout=WAIT) == []
    near(traced.get(timeout=WAIT), [between])
    device.backward(1, zero_grad=True)
    near([device.get_parameter_gradients()["first.weight"]], [weight])
    push(device, host)
    device.forward(1)
    host.forward_tf(1)
    host.backward(1, zero_grad=True)
    device.backward(1, zero_grad=False)
    near([device.get_parameter_gradients()["first.weight"]], [2 * weight])
    (once,) = torch.autograd.grad(loss, [back.bias])
    near([host.get_parameter_gradients()["0.bias"]], [once])
    push(device, host)
    device.forward(1)
    host.forward(1)
    host.backward(1, zero_grad=False)
    near([host.get_parameter_gradients()["0.bias"]], [2 * once])
    device.backward(1, zero_grad=True)
    many = BETWEEN + 1  # more than wait for a device while others run
    for _ in range(many):
        push(device, host)
    device.forward(many)
    host.forward_pt(many)
    host.backward(many, zero_grad=True)
    device.backward(many, zero_grad=True)
    near([device.get_parameter_gradients()["first.weight"]], [many * weight])


def test_commands_do_what_calls_do() -> None:
    device, host, front, back = pipeline()
    losses: queue.Queue[object] = queue.Queue()
    pybuda.initialize_pipeline(training=True, output_queue=losses)
    _, _, weight = gradients(front, back)
    both, kind = (device, host), CommandType
    for each in both:  # whichever comes first: who has nothing to do waits
        each.push_to_command_queue(Command(kind.RUN_FORWARD, {"loop_count": 1}))
    losses.get(timeout=WAIT)
    for each in both:
        passes = {"loop_count": 1, "zero_grad": True}
        each.push_to_command_queue(Command(kind.RUN_BACKWARD, passes))
    device.push_to_command_queue(Command(kind.GET_PARAMETER_GRADIENTS))
    answer = device.get_command_queue_response()
    near([answer["gradients"]["first.weight"]], [weight])
    for each in both:
        each.push_to_command_queue(Command(kind.RUN_OPTIMIZER))
        each.push_to_command_queue(Command(kind.RUN_SCHEDULERS))
    with pytest.warns(UserWarning, match="output_dir='traces': on hardware"):
        device.run("traces")
    device.push_to_command_queue(Command(kind.GET_PARAMETER_CHECKPOINT))
    moved = device.get_command_queue_response()["checkpoint"]["first.weight"].value()
    near([moved], [front.first.weight - RATE * weight.sign()])  # Adam's first step
    update = Command(kind.UPDATE_DEVICE_PARAMETERS, {"parameters": {"first.weight": 0 * weight}})
    assert not device.run_next_command(update)
    assert not device.get_parameter_checkpoint()["first.weight"].value().any()
    commands: queue.Queue[Command] = queue.Queue()
    commands.put(Command(kind.SYNC))
    assert not device.run_next_command(device.get_next_command(commands))
    assert device.get_command_queue_response() == {"sync": True}
    with pytest.raises(pybuda.PyBudaError, match="RUN_FORWARD: missing a required argument"):
        device.push_to_command_queue(Command(kind.RUN_FORWARD))
    for says, odd in (("_type is 'SYNC'", Command("SYNC")), ("params", Command(kind.SYNC, [1]))):
        with pytest.raises(pybuda.PyBudaError, match=says):
            device.push_to_command_queue(odd)
    with pytest.raises(pybuda.PyBudaError, match="cmd is 'quit'; a Command was expected"):
        device.push_to_command_queue("quit")
    assert device.run_next_command(Command(kind.QUIT))
    assert device.modules == []
    pybuda.shutdown()
    assert device.get_next_command(commands) is None
    assert device.get_command_queue_response() is None


def test_commands_that_compile_and_evaluate() -> None:
    module = nn.Linear(3, 2)
    device = pybuda.TTDevice("tt", module=later(module, "linear"))
    weight = module.weight.detach().clone().requires_grad_()
    asked = [
        (CommandType.COMPILE, {"inputs": (X,)}),
        (
            CommandType.CPUEVAL_FORWARD,
            {"inputs": [X], "parameters": {"weight": weight}, "save_for_backward": True},
        ),
        (
            CommandType.CPUEVAL_BACKWARD,
            {"bw_inputs": [torch.ones(2, 2)], "parameters": {"weight": weight}},
        ),
        (CommandType.DC_TRANSFER, {"direction": "forward"}),
    ]
    for kind, params in asked:
        device.push_to_command_queue(Command(kind, params))
    near(device.get_command_queue_response()["outputs"], [module(X)])
    near(device.get_command_queue_response()["result"], [module(X)])
    found = device.get_command_queue_response()["params_grads"]
    near([found["weight"]], [torch.ones(2, 2).T @ X])


def test_what_was_pushed_first() -> None:
    device, host, _, _ = pipeline()
    device.push_to_inputs(2 * X)
    for peek in (False, True):
        size, sample = device.get_first_inputs(peek=peek)
        assert size == 2
        near(sample, [X[:1]])
    near(host.get_first_targets(), [Y[:1]])
    assert host.get_first_inputs(peek=True) == (None, None)
    for empty in (host.get_first_inputs, device.get_first_targets):
        with pytest.raises(pybuda.PyBudaError, match="were pushed to device"):
            empty()


@pytest.mark.parametrize("forward", ["cpueval_forward", "cpueval_forward_pt", "cpueval_forward_tf"])
def test_torch_evaluates_what_is_placed(forward: str) -> None:
    device, host, front, back = pipeline()
    x, w = X.clone().requires_grad_(), (3 * front.first.weight.detach()).requires_grad_()
    expected = torch.func.functional_call(front, {"first.weight": w}, (x,))
    (found,) = device.cpueval_forward([x], {"first.weight": w}, True)
    near([found], [expected])
    with pytest.raises(pybuda.PyBudaError, match=r"no parameter 'first.weigh' \(did you mean"):
        device.cpueval_forward([x], {"first.weigh": w}, False)
    with pytest.raises(pybuda.PyBudaError, match=r"'first.bias' is \[4\], a value of \[1\] came"):
        device.cpueval_forward([x], {"first.bias": torch.ones(1)}, False)
    with pytest.raises(pybuda.PyBudaError, match=r"does not run on tensors of \[1, 1\]"):
        device.cpueval_forward([Y[:, :1]], {}, False)
    inputs, found = device.cpueval_backward([torch.ones_like(expected)], {"first.weight": w})
    near([*inputs, found["first.weight"]], torch.autograd.grad(expected.sum(), [x, w]))
    with pytest.raises(pybuda.PyBudaError, match="cpueval_forward saves one"):
        device.cpueval_backward([], {})
    near(getattr(host, forward)([Y], {}, False), [back(Y)])
    y, v = Y.clone().requires_grad_(), (2 * back.weight.detach()).requires_grad_()
    given = {"0.weight": v}
    expected = nn.functional.linear(y, v, back.bias)
    near(getattr(host, forward)([y], given, True), [expected])
    inputs, found = host.cpueval_backward([torch.full_like(expected, 2.0)], given)
    near([*inputs, found["0.weight"]], torch.autograd.grad(2 * expected.sum(), [y, v]))
    (loss,) = getattr(host, forward)([X[:, :2]], {}, True, [Y])
    near([loss], [nn.functional.mse_loss(back(X[:, :2]), Y)])
    assert host.cpueval_backward([], {}) == ([], {})
    last = pybuda.TTDevice("last", module=later(nn.Linear(3, 2), "last"))
    last.place_loss_module(later(nn.MSELoss(), "squares"))
    (error,) = last.cpueval_forward([X], {}, False, [Y])
    near([error.mean()], [nn.functional.mse_loss(last.cpueval_forward([X], {}, False)[0], Y)])
    device.cpueval_forward([x], {}, True)
    with pytest.raises(pybuda.PyBudaError, match=r"gradients of shapes \[\[1\]\] came for outputs"):
        device.cpueval_backward([torch.ones(1)], {})
    model = pybuda.TTDevice("onnx", module=pybuda.OnnxModule("tanh", tanh(3)))
    with pytest.raises(pybuda.PyBudaError, match="has an ONNX model"):
        model.cpueval_forward([X], {}, False)


def test_a_device_is_compiled_by_itself() -> None:
    device, host, front, back = pipeline()
    near(device.compile_for((X,)), [front(X)])
    with pytest.raises(pybuda.PyBudaError, match="a microbatch without tensors, or without"):
        device.compile_for(())
    wide = CompilerConfig(default_df_override=pybuda.DataFormat.Bfp2_b)
    (coarse,) = device.compile_for((X,), wide)
    assert (coarse.value() - front(X)).abs().max() > 0.01
    with pytest.raises(AssertionError, match="device 'tt': output 0"):
        device.compile_for((X,), wide, verify_cfg=pybuda.VerifyConfig(pcc=None, relative_atol=1e-4))
    (zeros,) = device.compile_for((X,), microbatch_size=2, microbatch_count=3)
    assert zeros.shape == (2, 2)
    assert not zeros.value().any()
    assert device.get_parameter_checkpoint().keys() == {
        f"{layer}.{kind}" for layer in ("first", "second", "unread") for kind in ("weight", "bias")
    }
    for compiles in (host.compile_for, host.compile_for_pt, host.compile_for_tf):
        near(compiles((Y,), compiler_cfg=None, microbatch_size=1, verify_cfg=None), [back(Y)])
        near(compiles((Y,), targets=[Y]), [nn.functional.mse_loss(back(Y), Y)])
    for compiles in (host.compile_for, host.compile_for_pt):
        near(compiles((Y,), microbatch_count=3), [back(Y)])
    counts = {"microbatch_size": 4, "microbatch_count": 2}
    assert pybuda.Device.compile_for(host, training=True, **counts) is None
    optimizer = pybuda.optimizers.SGD(RATE, device_params=True)
    last = pybuda.TTDevice("last", module=later(nn.Linear(3, 2), "last"), optimizer=optimizer)
    last.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    (losses,) = last.compile_for((X,), targets=(Y,), microbatch_size=2)
    assert losses.shape == (2, 1)


def test_parameters_and_what_optimizers_keep() -> None:
    device, _, front, back = pipeline()
    named = [item.get_name() for item in device.get_parameters()]
    assert named == ["first.weight", "first.bias", "second.weight", "second.bias"]
    every = device.get_parameters(ignore_unused_parameters=False)
    assert [item.get_name() for item in every][4:] == ["unread.weight", "unread.bias"]
    near([every[0].value()], [front.first.weight])
    assert device.get_optimizer_params(False)["first.bias"].keys() == {"lr"}
    _, _, weight = gradients(front, back)
    pybuda.run_training(_sequential=True)
    kept = device.get_optimizer_params(is_buda=True)["first.weight"]
    near([kept["mean"], kept["variance"], kept["lr"]], [0.1 * weight, 0.001 * weight**2, [RATE]])
    near([device.get_parameters()[0].value()], [front.first.weight - RATE * weight.sign()])
    assert device.get_scheduler_params(False) == {}
    optimizer = pybuda.optimizers.SGD(RATE, device_params=True)
    scheduled = pybuda.TTDevice(
        "scheduled",
        module=later(nn.Linear(1, 1), "one"),
        optimizer=optimizer,
        scheduler=pybuda.schedulers.LearningRateScheduler(optimizer),
    )
    near([scheduled.get_scheduler_params(False)["weight"]["lr"]], [[RATE]])


def test_a_graph_and_what_operators_give() -> None:
    device, _, front, _ = pipeline()
    programs, outputs, between, inputs, targets = device.generate_graph(
        X, return_intermediate=True, graph_name="front", compiler_cfg=None
    )
    assert [type(program) for program in programs] == [Program]
    near([*outputs, *inputs], [front(X), X])
    near([between["first"]], [front.first(X)])
    assert targets == ()
    assert device.get_dram_io_queues("input") == [("tensors_0", (1, 3))]
    assert device.get_dram_io_queues("output") == [("output_0", (1, 2))]
    with pytest.raises(pybuda.PyBudaError, match="queue_type is 'inputs'; there are input, "):
        device.get_dram_io_queues("inputs")
    wide = CompilerConfig(default_df_override=pybuda.DataFormat.Bfp2_b)
    (coarse,) = device.generate_graph(X, compiler_cfg=wide)[1]
    assert (coarse.value() - front(X)).abs().max() > 0.01
    exact = pybuda.VerifyConfig(pcc=None, relative_atol=1e-4)
    with pytest.raises(AssertionError, match="device 'tt': output 0"):
        device.generate_graph(X, compiler_cfg=wide, verify_cfg=exact)
    assert device.generate_graph(X, trace_only=True)[2] == {}
    with pytest.raises(pybuda.PyBudaError, match="was not compiled yet"):
        device.get_dram_io_queues("input")
    pybuda.shutdown()
    trains = pybuda.TTDevice("trains", module=later(front, "front"))
    trains.place_loss_module(later(nn.MSELoss(), "loss"))
    step, (loss,), *_ = trains.generate_graph(X, target_tensors=[Y], verify_cfg=None)
    assert {section.type.name for section in step[0].sections} >= {"FWD", "BCKWD"}
    assert loss.shape == (2,)
    assert trains.get_dram_io_queues("target") == [("tensors_1", (1, 2))]
    assert trains.get_dram_io_queues("bw_input") == trains.get_dram_io_queues("bw_output") == []


def test_a_device_forgets_its_modules() -> None:
    device, host, _, _ = pipeline()
    for each in (device, host):
        each.shutdown_device()
        assert each.modules == []
    assert device.get_first_inputs(peek=True) == (None, None)
    with pytest.raises(pybuda.PyBudaError, match="no targets were pushed"):
        host.get_first_targets()


def test_nothing_generates() -> None:
    for device in pipeline()[:2]:
        with pytest.raises(pybuda.PyBudaError, match="models with a cache between calls do not"):
            device.generate(1, 0, tokens_per_iter=1, token_id=2)


def test_what_has_nothing_to_do_here() -> None:
    device, _, _, _ = pipeline()
    device.dc_transfer("forward")
    told: queue.Queue[str] = queue.Queue()
    thread = threading.Thread(target=device.dc_transfer_thread, args=("backward", told))
    thread.start()
    told.put("backward")
    assert thread.is_alive()
    told.put("quit")
    thread.join(WAIT)
    assert not thread.is_alive()
    said = "direction is 'sideways'; there are forward"
    with pytest.raises(pybuda.PyBudaError, match=re.escape(said)):
        device.dc_transfer("sideways")
    assert device.get_active_subgraph() == 0
    device.set_active_subgraph(0)
    with pytest.raises(pybuda.PyBudaError, match="there is no graph 1; a device has one graph, 0"):
        device.set_active_subgraph(1)
    found = device.get_device_config(compiler_cfg=CompilerConfig())
    assert found == (pybuda.BackendDevice.Wormhole_B0, (0,), pybuda.BackendType.Silicon)


def test_a_torch_module_runs_backward() -> None:
    layer = nn.Linear(3, 2)
    module = pybuda.PyTorchModule("layer", layer)
    output = module.forward(X)
    module.backward((output, Y))
    near([layer.weight.grad], [Y.T @ X])


def test_keywords_of_devices_are_suggested() -> None:
    device, _, _, _ = pipeline()
    with pytest.raises(TypeError, match=r"argument 'loop_counts' .did you mean 'loop_count'"):
        device.forward(loop_counts=1)
    assert "loop_count" in inspect.signature(pybuda.Device.forward).parameters
