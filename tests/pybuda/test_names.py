"""What no other test holds: small promises of the page of names, each with what would break it."""

from __future__ import annotations

import importlib
import queue
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from pybuda_runs import Times, evaluated, later, near, tanh
from pybuda_training import WAIT, batches, device_with, on, perceptron, push
from torch import nn

import pybuda
from pybuda import DataFormat, MathFidelity
from pybuda._C.backend_api import DeviceMode
from sambac.numerics import FORMATS, rounded

Queue = queue.Queue[object]
NUMBERS = {
    "DataFormat": (
        "Float32=0 Float16=1 Bfp8=2 Bfp4=3 Float16_b=5 Bfp8_b=6 Bfp4_b=7 Int32=8 Lf8=10 Bfp2=11 "
        "UInt16=12 Int8=14 Bfp2_b=15 RawUInt8=240 RawUInt16=241 RawUInt32=242 Invalid=255"
    ),
    "MathFidelity": "LoFi=0 HiFi2=2 HiFi3=3 HiFi4=4 Invalid=255",
    "BackendType": "Model=0 Versim=1 Silicon=2 Golden=3 Emulation=4 NoBackend=5",
    "BackendDevice": "Grayskull=0 Wormhole_B0=1 Blackhole=2 Invalid=255",
    "PerfTraceLevel": "NONE=0 LIGHT=1 VERBOSE=2",
}
X = torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
HELD = [form for form in DataFormat if form.name in FORMATS]


@pytest.mark.parametrize("name", NUMBERS)
def test_formats_have_the_numbers_of_the_original(name: str) -> None:
    found = " ".join(f"{each.name}={each.value}" for each in getattr(pybuda, name))
    assert found == NUMBERS[name]


class Held(pybuda.PyBudaModule):
    """x times a parameter that is held in a format."""

    def __init__(self, form: DataFormat) -> None:
        super().__init__("held")
        self.weights = pybuda.Parameter(X[:1], dev_data_format=form)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Multiply("", x, self.weights)


@pytest.mark.parametrize("form", HELD)
def test_a_parameter_is_held_in_a_format(form: DataFormat) -> None:
    (found,) = Held(form).run(torch.ones(1, 32))
    expected = torch.from_numpy(rounded(X[:1].numpy(), FORMATS[form.name]))
    assert torch.equal(found.value(), expected)
    assert torch.equal(expected, X[:1]) == (form is DataFormat.Float32)


@pytest.mark.parametrize("form", [each for each in DataFormat if each not in HELD])
def test_formats_that_hold_no_numbers_are_refused(form: DataFormat) -> None:
    says = f"dev_data_format is {form}; floating-point numbers are held as Float32, Float16, "
    with pytest.raises(pybuda.PyBudaError, match=says):
        pybuda.Parameter(2, dev_data_format=form)


def test_more_passes_keep_more_digits() -> None:
    layer = nn.Linear(32, 32, bias=False)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
    exact, errors = layer.weight.detach().double() @ X.double().T, []
    for fidelity in [*MathFidelity][:4]:
        pybuda.set_configuration_options(math_fidelity=fidelity)
        (found,) = later(layer, "layer").run(X)
        errors.append(float((found.value().double().T - exact).norm() / exact.norm()))
    low, two, three, four = errors
    assert low > 3 * two > 3 * three > 3 * four > 0
    with pytest.raises(pybuda.PyBudaError, match=r"is MathFidelity.Invalid; choose LoFi, HiFi2"):
        pybuda.set_configuration_options(math_fidelity=MathFidelity.Invalid)


def test_results_go_to_the_queue_that_a_program_brings() -> None:
    own = Queue()
    inputs = [(torch.ones(1, 2),), (torch.zeros(1, 2),)]
    assert pybuda.run_inference(later(Times(2.0), "m"), inputs=inputs, output_queue=own) is own
    near(own.get(timeout=WAIT), [2 * torch.ones(1, 2)])
    near(own.get(timeout=WAIT), [torch.zeros(1, 2)])


def test_checkpoints_go_to_the_queue_that_a_program_brings() -> None:
    own = Queue()
    device = on("tt", "tt0", perceptron())
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    assert pybuda.initialize_pipeline(training=True, checkpoint_queue=own) is own
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    pybuda.run_optimizer(checkpoint=True)
    (found,) = own.get(timeout=WAIT)
    assert "0.weight" in found
    with pytest.raises(pybuda.PyBudaError, match="checkpoint_queue came without training"):
        pybuda.initialize_pipeline(training=False, checkpoint_queue=own)


class Told(nn.Module):
    """Keeps the threads that run it forward and backward, and what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.threads = nn.Linear(6, 4), set[object]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.here()
        self.given: torch.Tensor = self.layer(x)
        if self.given.requires_grad:
            self.given.register_hook(self.here)
        return self.given

    def here(self, gradient: torch.Tensor | None = None) -> None:
        self.threads.add(threading.current_thread())


def test_in_sequence_all_is_done_by_the_caller() -> None:
    told = Told()
    device = on("cpu", "cpu0", told)
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    ((x, y),) = batches(1)
    pybuda.run_inference(inputs=[(x,)], _sequential=True).get_nowait()
    push([(x, y)], device)
    pybuda.run_training(_sequential=True).get_nowait()
    losses = Queue()
    checkpoints = pybuda.initialize_pipeline(
        training=True, output_queue=losses, sample_inputs=(x,), sample_targets=(y,)
    )
    push([(x, y)], device)
    pybuda.run_forward(_sequential=True)
    losses.get_nowait()
    pybuda.run_backward(_sequential=True)
    pybuda.run_optimizer(checkpoint=True, _sequential=True)
    checkpoints.get_nowait()
    assert told.threads == {threading.current_thread()}
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    device.push_to_inputs(x)
    pybuda.run_forward(_sequential=True)
    results.get_nowait()
    assert told.threads == {threading.current_thread()}
    device.push_to_inputs(x)
    pybuda.run_forward()
    results.get(timeout=WAIT)
    assert len(told.threads) == 2


def test_a_graph_is_kept_after_the_backward_pass() -> None:
    for kept in (False, True):
        told = Told()
        device = pybuda.CPUDevice("cpu0", retain_backward_graph=kept, module=later(told, "told"))
        device.place_loss_module(later(nn.MSELoss(), "mse"))
        push(batches(1), device)
        with pytest.warns(UserWarning, match="has no optimizer"):
            pybuda.run_training(_sequential=True)
        if kept:
            (again,) = torch.autograd.grad(told.given.square().sum(), told.layer.weight)
            assert again.abs().sum() > 0
        else:
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                torch.autograd.grad(told.given.square().sum(), told.layer.weight)
        pybuda.shutdown()


def test_what_has_no_effect_is_taken() -> None:
    x = torch.randn(2, 4)
    for given, warned in (
        ({"devtype": pybuda.BackendType.Golden}, nullcontext()),
        ({"device_mode": DeviceMode.CompileOnly}, pytest.warns(match="^device_mode=.* no effect")),
        ({"mp_context": "spawn"}, pytest.warns(match="^mp_context='spawn': .* no effect")),
    ):
        with warned:
            device = pybuda.TTDevice("tt0", module=later(nn.Tanh(), "tanh"), **given)
        device.push_to_inputs(x)
        near(pybuda.run_inference().get(timeout=WAIT), [x.tanh()])
        pybuda.shutdown()
    near(pybuda.OnnxModule("tanh", tanh(4), onnx_path="/nowhere").run(x[:1]), [x[:1].tanh()])
    pybuda.shutdown()
    for sequential in (False, True):
        model = perceptron()
        device = device_with(model)
        ((inputs, targets),) = batches(1)
        pybuda.initialize_pipeline(
            training=True, sample_inputs=(inputs,), sample_targets=(targets,), microbatch_count=1,
            _sequential=sequential,
        )  # fmt: skip
        push([(inputs, targets)] * 3, device)
        pybuda.run_forward(3)
        pybuda.run_backward(3)
        (gradients,) = pybuda.get_parameter_gradients(_sequential=sequential)
        assert float(gradients["0.weight"].value().abs().sum()) > 0
        ones = {"0.bias": torch.ones(8)}
        pybuda.update_device_parameters(device, [ones], _sequential=sequential)
        (found,) = pybuda.get_parameter_checkpoint(_sequential=sequential)
        assert torch.equal(found["0.bias"].value(), torch.ones(8))
        pybuda.shutdown()


def test_several_chips_compute_what_one_does() -> None:
    torch.manual_seed(0)
    layers, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4)
    pybuda.set_chip_break(pybuda.query.op_type("relu"))
    for chips, expected in (
        ({}, (0,)),
        ({"num_chips": 0}, (0,)),
        ({"num_chips": 2}, (0, 1)),
        ({"chip_ids": [3, 1]}, (3, 1)),
    ):
        device = pybuda.TTDevice("tt0", module=later(layers, "layers"), **chips)
        assert device.chip_ids == expected
        device.push_to_inputs(x)
        few = pytest.warns(UserWarning, match="ask for 2 chips, device 'tt0' has 1")
        with few if len(expected) == 1 else nullcontext():
            near(pybuda.run_inference().get(timeout=WAIT), [evaluated(layers, x)])
        pybuda.shutdown()
    with pytest.raises(pybuda.PyBudaError, match="num_chips is 1, chip_ids are 2"):
        pybuda.TTDevice("tt0", num_chips=1, chip_ids=[0, 1])


def test_modules_and_devices_have_names() -> None:
    module = later(nn.Tanh(), "tanh")
    assert module.get_name() == "tanh"
    assert pybuda.OnnxModule("exported", tanh(4)).get_name() == "exported"
    assert Held(DataFormat.Float32).get_name() == "held"
    for kind in (pybuda.TTDevice, pybuda.CPUDevice):
        device = kind(f"a {kind.__name__}", module=module)
        assert device.get_name() == f"a {kind.__name__}"
    with pytest.raises(pybuda.PyBudaError, match="there is a device 'a TTDevice' already"):
        pybuda.TTDevice("a TTDevice")


def test_a_torch_module_runs_on_the_host() -> None:
    class Difference(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    module = later(Difference(), "difference")
    found = module.forward(pybuda.Tensor(torch.ones(2)), b=np.full(2, 3.0, "float32"))
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [-2, -2]


def test_parameters_are_added_by_name() -> None:
    class Scaled(pybuda.PyBudaModule):
        def __init__(self) -> None:
            super().__init__("scaled")
            self.add_parameter("factor", pybuda.Parameter(torch.full((1, 2), 3.0)))
            shift = pybuda.Parameter(torch.ones(1, 2))
            self.add_parameter("shift", shift, prepend_name=True)

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return x * self.get_parameter("factor") + self.get_parameter("scaled.shift")

    module = Scaled()
    assert [each.get_name() for each in module.get_parameters()] == ["factor", "scaled.shift"]
    near(module.run(torch.ones(1, 2)), [torch.full((1, 2), 4.0)])
    with pytest.raises(pybuda.PyBudaError, match="has a parameter 'factor' already"):
        module.add_parameter("factor", pybuda.Parameter(torch.ones(1, 2)))


def test_a_loss_module_is_removed() -> None:
    device = device_with(perceptron())
    ((inputs, targets),) = batches(1)
    push([(inputs, torch.ones(3, 9))], device)
    device.remove_loss_module()
    with pytest.raises(pybuda.PyBudaError, match="'tt0', the last one, has no loss module"):
        pybuda.run_training()
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    device.push_to_target_inputs(targets)  # those before went with the loss
    assert pybuda.run_training().get(timeout=WAIT)


def test_a_reset_forgets_the_configuration() -> None:
    pybuda.set_configuration_options(math_fidelity=MathFidelity.LoFi)
    pybuda.TTDevice("tt0")
    pybuda.pybuda_reset()
    assert pybuda.config._get_global_compiler_config().default_math_fidelity is None
    pybuda.TTDevice("tt0")  # the name is free again


def test_names_that_the_original_has_twice() -> None:
    for name in ("SGD", "Adam", "AdamW", "LAMB", "LARS"):
        assert getattr(pybuda, name) is getattr(pybuda.optimizers, name)
    for name in ("CompilerConfig", "configure_mixed_precision"):
        assert getattr(pybuda, name) == getattr(pybuda.config, name)
    for owner in (pybuda, pybuda.config):
        with pytest.raises(TypeError, match=r"'op_typ' \(did you mean 'op_type'"):
            owner.configure_mixed_precision(op_typ="matmul")
    for call in (
        lambda: pybuda.insert_nop("a", ["b"], hoist_tms=False),
        lambda: pybuda.insert_buffering_nop("a", ["b"]),
        lambda: pybuda.override_dram_queue_placement("e2e_a_0", channel=0),
    ):
        with pytest.warns(UserWarning, match="it has no effect here$"):
            call()


def test_modules_of_the_original_have_what_programs_import_from_them() -> None:
    api, utils, compiling = map(
        importlib.import_module, ("pybuda.run.api", "pybuda.utils", "pybuda.compile")
    )
    assert api is pybuda.run.api
    assert api.detect_available_devices is pybuda.detect_available_devices
    assert api.run_inference is pybuda.run.run_inference
    assert pybuda.run.get_loss_queue is api.get_loss_queue is pybuda.get_loss_queue
    assert utils is pybuda.utils
    assert [utils.align_up_tile(size) for size in (1, 32, 33)] == [32, 32, 64]
    with pytest.warns(UserWarning, match="LAST_SUCCESSFUL_STAGE is None: .*errors say where"):
        assert compiling.LAST_SUCCESSFUL_STAGE is None
    assert compiling is pybuda.compile


def test_outputs_that_would_be_inputs_of_the_next_call_are_refused() -> None:
    config = pybuda.config._get_global_compiler_config()
    for sets in (setattr, lambda _, name, value: pybuda.set_configuration_options(**{name: value})):
        with pytest.raises(pybuda.PyBudaError, match=r"loopback_outputs.*push outputs as inputs"):
            sets(config, "loopback_outputs", {"cache": 1})


def test_tensors_have_the_name_that_the_original_has_for_them() -> None:
    made = pybuda.tensor.TensorFromPytorch(torch.tensor([[1.0, -2.0]]), None, True)
    (found,) = pybuda.PyTorchModule("relu", nn.ReLU()).run(made)
    assert isinstance(found, pybuda.tensor.TensorFromPytorch)
    assert found.value().tolist() == [[1.0, 0.0]]
