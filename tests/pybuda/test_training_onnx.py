"""ONNX models train by their initializers' names, beside torch in float64."""

from __future__ import annotations

import io
import queue
import warnings
from pathlib import Path

import onnx
import pytest
import torch
from onnx import numpy_helper
from pybuda_runs import later
from pybuda_training import (
    WAIT,
    Head,
    batches,
    is_checkpoint_of,
    l1,
    near,
    on,
    parts_of,
    peer_of,
    perceptron,
    push,
    sgd,
    taken,
    twin_of,
)
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import optimizers


def exported(module: nn.Module, size: int = 6, batch: str = "n") -> onnx.ModelProto:
    """The module in ONNX; initializers have the names of its parameters, `batch` is open."""
    found = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that names what users' files have
        torch.onnx.export(
            module,
            (torch.randn(2, size),),
            found,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: batch}, "y": {0: batch}},
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
        )
    return onnx.load_from_string(found.getvalue())


def placed(module: nn.Module, name: str = "model", size: int = 6) -> pybuda.OnnxModule:
    return pybuda.OnnxModule(name, exported(module, size))


@pytest.mark.parametrize("in_sequence", [False, True], ids=["in threads", "in sequence"])
@pytest.mark.parametrize("where", ["tt", "cpu"])
def test_fifty_steps_are_those_of_torch(where: str, in_sequence: bool) -> None:
    model = perceptron()
    twin = peer_of(
        model, functional.mse_loss, lambda p: torch.optim.Adam(p, 0.02), by_sample=where == "tt"
    )
    adam = optimizers.Adam(0.02, device_params=True)
    device = pybuda.TTDevice("tt0", module=placed(model), optimizer=adam)
    last = device if where == "tt" else pybuda.CPUDevice("loss")
    last.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(100, size=2)
    push(pairs, device, last)
    checkpoints = pybuda.run_training(steps=50, microbatch_count=2, _sequential=in_sequence)
    losses = pybuda.get_loss_queue()
    for step in range(50):
        for expected in twin.step(pairs[2 * step : 2 * step + 2]):
            near(taken(losses), expected, 1e-4)
    found = checkpoints.get(timeout=WAIT)
    assert isinstance(found, list)
    is_checkpoint_of(found[:1], twin)


@pytest.mark.parametrize("kinds", ["onnx tt", "tt onnx", "onnx cpu", "cpu onnx", "onnx onnx"])
def test_pipelines_of_two_devices_train_as_one_module(kinds: str) -> None:
    body, head = perceptron(), Head()
    twin = twin_of(body, head, by_sample=not kinds.endswith("cpu"))
    devices = []
    for kind, name, module, size in zip(
        kinds.split(), ("first", "last"), (body, head), (6, 4), strict=True
    ):
        if kind == "onnx":
            devices.append(
                pybuda.TTDevice(name, module=placed(module, name, size), optimizer=sgd(0.1))
            )
        else:
            devices.append(on(kind, name, module))
    devices[1].place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(40)
    push(pairs, *devices)
    checkpoints = pybuda.run_training(steps=10, microbatch_count=4)
    for step in range(10):
        for expected in twin.step(pairs[4 * step : 4 * step + 4]):
            near(taken(pybuda.get_loss_queue()), expected, 1e-4)
    found = parts_of(checkpoints.get(timeout=WAIT), "0", "1")
    assert found.keys() == twin.named().keys()
    for name, tensor in found.items():
        near(tensor, twin.named()[name], 1e-4)


def test_modules_of_both_kinds_on_one_device_train_together() -> None:
    body, head = perceptron(), Head()
    twin = twin_of(nn.Tanh(), body, head, by_sample=True)
    modules = [later(nn.Tanh(), "front"), placed(body), later(head, "head")]
    device = pybuda.TTDevice("tt0", module=modules, optimizer=sgd(0.1))
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    pairs = batches(20)
    push(pairs, device)
    checkpoints = pybuda.run_training(steps=10, accumulation_steps=2)
    for step in range(10):
        for expected in twin.step(pairs[2 * step : 2 * step + 2]):
            near(taken(pybuda.get_loss_queue()), expected, 1e-4)
    (found,) = checkpoints.get(timeout=WAIT)
    expected_ones = {name[2:]: value for name, value in twin.named().items()}
    assert found.keys() == expected_ones.keys()
    for name, tensor in found.items():
        near(tensor.value(), expected_ones[name], 1e-4)


def test_what_was_trained_is_what_runs_and_what_goes_on() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Unflatten(1, (2, 3)), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(6, 4))
    module = placed(model.eval())
    before = {i.name: numpy_helper.to_array(i) for i in module.module.graph.initializer}
    twin = peer_of(model.train(), l1, lambda p: torch.optim.SGD(p, 0.05))
    norm = twin.module[1]
    device = pybuda.TTDevice("tt0", module=module, optimizer=sgd())
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    pairs = batches(4)
    variance = norm.running_var.clone()
    for half in (pairs[:2], pairs[2:]):
        push(half, device)
        checkpoints = pybuda.run_training(steps=2)
        for pair in half:
            for row in pair[0].double().unflatten(1, (2, 3)):  # ONNX divides by 3, torch by 2
                variance = 0.9 * variance + 0.1 * row.var(1, correction=0)
            (expected,) = twin.step([pair])
            near(taken(pybuda.get_loss_queue()), expected, 1e-4)
        norm.running_var.copy_(variance)
        is_checkpoint_of(checkpoints.get(timeout=WAIT), twin)
        device.push_to_inputs(half[0][0])
        (found,) = pybuda.run_inference().get(timeout=WAIT)
        with torch.no_grad():
            near(found.value(), twin.module.eval()(half[0][0].double()), 1e-4)
        twin.module.train()
    after = {i.name: numpy_helper.to_array(i) for i in module.module.graph.initializer}
    assert all((before[name] == after[name]).all() for name in before)


def test_by_hand_gradients_updates_and_names_of_inputs() -> None:
    model = perceptron()
    module = placed(model)
    device = pybuda.TTDevice("tt0", module=module, optimizer=sgd(0.1))
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    assert [p.get_name() for p in module.get_parameters()] == [
        n for n, _ in model.named_parameters()
    ]
    x, y = batches(1)[0]
    pybuda.initialize_pipeline(training=True, sample_inputs={"x": x}, sample_targets=(y,))
    weight = torch.zeros(4, 8)
    pybuda.update_device_parameters(device, [{"2.weight": weight}])
    device.push_to_inputs({"x": x})
    device.push_to_target_inputs(y)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    (gradients,) = pybuda.get_parameter_gradients()
    with torch.no_grad():
        model[2].weight.zero_()
    twin = model.double()
    l1(twin(x.double()), y.double()).mul(len(x)).backward()
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        near(gradients[name].value(), parameter.grad)


def test_an_optimizer_of_some_parameters_updates_those_alone() -> None:
    model, head = perceptron(), Head()
    module, behind = placed(model), later(head, "head")
    (wanted,) = (p for p in module.get_parameters() if p.get_name() == "0.bias")
    device = pybuda.TTDevice(
        "tt0", module=[module, behind], optimizer=optimizers.SGD(0.1, parameters=[wanted])
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    (found,) = pybuda.run_training().get(timeout=WAIT)
    own = {**dict(model.named_parameters()), **dict(head.named_parameters())}
    changed = {name for name, value in found.items() if not torch.equal(value.value(), own[name])}
    assert changed == {"0.bias"}


def test_an_image_trains_as_the_device_would_have(tmp_path: Path) -> None:
    def device() -> pybuda.TTDevice:
        modules = [placed(perceptron()), later(Head(), "head")]
        adam = optimizers.Adam(0.01, device_params=True)
        made = pybuda.TTDevice("tt0", module=modules, optimizer=adam)
        made.place_loss_module(later(nn.MSELoss(), "mse"))
        return made

    pairs, path = batches(3), tmp_path / "model.tti"
    image = device().compile_to_image(
        img_path=path, training=True, sample_inputs=pairs[0][:1], sample_targets=pairs[0][1:]
    )
    assert image.get_input_shapes() == [(1, 6)]
    found = []
    for load in (False, True):
        pybuda.shutdown()
        push(pairs, pybuda.TTDevice.load_image(img_path=path) if load else device())
        found.append(pybuda.run_training(steps=3).get(timeout=WAIT)[0])
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name].value(), value.value())


def test_what_cannot_be_is_told() -> None:
    module = placed(perceptron())
    device = pybuda.TTDevice("tt0", module=module, optimizer=sgd())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    x, y = batches(1)[0]
    push([(x, y)], device)
    with pytest.raises(pybuda.PyBudaError, match="has an ONNX model, which torch cannot train"):
        pybuda.run_training(_verify_cfg=pybuda.VerifyConfig(), _sequential=True)
    pybuda.shutdown()
    shared = later(nn.Linear(6, 6), "shared")
    again = later(shared.module, "again")
    device = pybuda.TTDevice(
        "tt0", module=[shared, placed(nn.Tanh(), size=6), again], optimizer=sgd()
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push([(x, torch.randn(3, 6))], device)
    with pytest.raises(pybuda.PyBudaError, match="before and behind an ONNX model"):
        pybuda.run_training(_sequential=True)
    pybuda.shutdown()
    device = pybuda.TTDevice("tt0", module=placed(perceptron()), optimizer=sgd())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    losses: queue.Queue[object] = queue.Queue()
    device.push_to_inputs({"z": x})
    device.push_to_target_inputs(y)
    with pytest.raises(pybuda.PyBudaError, match="inputs called z came; the model has x"):
        pybuda.run_training(loss_queue=losses, _sequential=True)


@pytest.mark.filterwarnings("ignore:the modules of device 'tt0' have changed")
def test_a_model_that_is_changed_is_compiled_again() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2] x) => (float[1,1] y) <float[2,1] w = {1, 2}> { h = MatMul(x, w) y = Tanh(h) }
    """)
    x, weight = torch.tensor([[0.1, 0.2]]), torch.tensor([[1.0], [2.0]])
    optimizer = optimizers.SGD(0.5, device_params=True)
    module = pybuda.OnnxModule("m", model)
    device = pybuda.TTDevice("tt0", module=module, optimizer=optimizer)
    near(pybuda.run_inference(inputs=[(x,)]).get(timeout=WAIT)[0].value(), (x @ weight).tanh())
    model.graph.node[1].op_type = "Sigmoid"
    near(pybuda.run_inference(inputs=[(x,)]).get(timeout=WAIT)[0].value(), (x @ weight).sigmoid())
    device.place_loss_module(later(nn.L1Loss(), "loss"))

    def step() -> torch.Tensor:
        push([(x, torch.zeros(1, 1))], device)
        (found,) = pybuda.run_training().get(timeout=WAIT)
        trained: torch.Tensor = found["w"].value()
        return trained

    trained = step()
    pybuda.get_loss_queue().get(timeout=WAIT)
    model.graph.node[1].op_type = "Tanh"  # what was trained goes on
    step()
    near(taken(pybuda.get_loss_queue()), (x @ trained).tanh()[0])
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(-weight.numpy(), "w"))
    step()
    near(taken(pybuda.get_loss_queue()), (x @ weight).tanh()[0])
