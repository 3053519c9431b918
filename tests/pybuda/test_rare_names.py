"""Names and arguments that programs use beside the page: what takes effect, and what is told."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from types import ModuleType

import pytest
import torch
from pybuda_runs import ONE, Times, evaluated, later, near
from pybuda_training import WAIT, batches, device_with, on, perceptron, push
from torch import nn

import pybuda
from pybuda import _C, op, pybudaglobal
from pybuda._C.backend_api import DeviceMode
from pybuda._C.placer import DRAMPlacementAlgorithm
from pybuda.verify import backend, config

IDLE = "has no effect here"
MODULES = (pybuda, pybuda.config, op.nn, op.loss, pybuda.optimizers, pybuda.query, pybuda.verify)


def callables() -> Iterator[tuple[str, Callable[..., object], inspect.Signature]]:
    """Yield what programs call: functions, classes and their methods, by name."""
    for module in MODULES:
        for name, value in vars(module).items():
            here = not name.startswith("_") and not isinstance(value, ModuleType)
            if not here or not str(getattr(value, "__module__", "")).startswith("pybuda"):
                continue
            if inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value, inspect.signature(value)
            elif isinstance(value, type) and not issubclass(value, Enum | Exception):
                for method, own in vars(value).items():
                    if inspect.isfunction(own) and (method == "__init__" or method[0] != "_"):
                        yield f"{value.__qualname__}.{method}", own, inspect.signature(own)


def test_every_call_suggests_keywords() -> None:
    """A letter too many: each function says what it is called, and none runs."""
    asked = 0
    for name, function, signature in callables():
        kinds = {each.kind for each in signature.parameters.values()}
        words = [each for each in signature.parameters if each != "self"]
        if not words or inspect.Parameter.VAR_KEYWORD in kinds:
            continue
        wrong = f"{words[-1]}x"
        with pytest.raises(TypeError) as caught:
            function(**{wrong: 1})
        assert f"there is no argument '{wrong}' (did you mean '" in str(caught.value), name
        said = function.__qualname__.removesuffix(".__init__")
        assert str(caught.value).startswith(f"{said}: "), name
        asked += 1
    assert asked > 90


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pybuda.run_training(epoch=2), "run_training: .*did you mean 'epochs'"),
        (
            lambda: pybuda.TTDevice("t", modul=None),
            r"TTDevice: .*'module'\?\); it takes name, num_",
        ),
        (lambda: pybuda.Tensor.create_from_torch(ONE, dev_format=1), "mean 'dev_data_format'"),
        (lambda: op.nn.AvgPool2dModule("a", kernel=2), "AvgPool2dModule: .*'kernel_size'"),
        (lambda: pybuda.override_op_size("a", grid=(1, 1)), "override_op_size: .*'grid_size'"),
        (lambda: pybuda.config.insert_nop("a"), "insert_nop: missing a required argument: 'dest_o"),
    ],
)
def test_keywords_are_suggested(call: Callable[[], object], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pybuda.initialize_pipeline(False, sample_inputs=3), "3 came; a torch, numpy"),
        (
            lambda: pybuda.initialize_pipeline(False, sample_inputs="x"),
            "'.*' came; a torch, numpy",
        ),
        (lambda: pybuda.TTDevice("t", num_chips="2"), "num_chips is '2'; a whole number from 0"),
        (lambda: pybuda.TTDevice("t", chip_ids=3), "chip_ids is 3; a list of numbers was expected"),
        (
            lambda: pybuda.CPUDevice("c", input_dtypes=torch.int8),
            "input_dtypes is .*a list of types",
        ),
        (
            lambda: pybuda.CPUDevice("c", input_dtypes=[1]),
            r"input_dtypes\[0\] is 1; input_dtypes is",
        ),
        (
            lambda: pybuda.CPUDevice("c", optimizer_f=1),
            "optimizer_f is 1; a function was expected",
        ),
        (
            lambda: pybuda.CPUDevice("c", scheduler_f=1),
            "scheduler_f is 1; a function was expected",
        ),
        (
            lambda: backend.verify_module(None),
            r"modules\[0\] is None; modules is a list of modules",
        ),
        (
            lambda: backend.verify_module(later(nn.Tanh(), "t"), (3, 6)),
            r"input_shapes\[0\] is 3; in",
        ),
        (
            lambda: backend.verify_module(later(nn.Tanh(), "t"), [], "cfg"),
            "verify_cfg is 'cfg'; a py",
        ),
    ],
)
def test_what_an_argument_may_be_is_told(call: Callable[[], object], says: str) -> None:
    pybuda.TTDevice("tt0", module=later(nn.Tanh(), "tanh"))
    with pytest.raises(pybuda.PyBudaError, match=says):
        call()


def test_functions_of_the_program_keep_their_own_errors() -> None:
    class Wide(pybuda.PyBudaModule):
        def __init__(self, name: str, width: int) -> None:
            super().__init__(name)
            self.width = width

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return x

    assert Wide("wide", width=3).width == 3
    with pytest.raises(TypeError, match="unexpected keyword argument 'widht'"):
        Wide("wide", widht=3)
    with pytest.raises(AttributeError, match=re.escape("(did you mean 'set_epoch_break'?)")):
        _ = pybuda.config.set_epoch_brake


def test_arguments_for_hardware_are_told() -> None:
    inputs, module = [(ONE,)], later(Times(2.0), "double")
    with pytest.warns(UserWarning, match=f"_perf_trace=True: on hardware records.*{IDLE}"):
        found = pybuda.run_inference(module, inputs=inputs, _perf_trace=True)
    near(found.get(timeout=WAIT), [2 * ONE])
    with pytest.warns(UserWarning, match=f"_device_mode=DeviceMode.CompileOnly: .*{IDLE}"):
        results = pybuda.initialize_pipeline(
            training=False, sample_inputs=(ONE,), _device_mode=DeviceMode.CompileOnly
        )
    device = module.get_device()
    assert device is not None
    device.push_to_inputs(ONE)
    pybuda.run_forward()
    near(results.get(timeout=WAIT), [2 * ONE])
    pybuda.shutdown()
    trained = device_with(perceptron())
    push(batches(1), trained)
    with pytest.warns(UserWarning, match=IDLE):
        checkpoints = pybuda.run_training(_perf_trace=True)
    assert checkpoints.get(timeout=WAIT)


def test_schedulers_count_their_steps_themselves() -> None:
    class Halved(pybuda.torch_schedulers.TorchLearningRateScheduler):
        def get_lr(self) -> list[float | torch.Tensor]:
            return [base * 0.5**self.last_epoch for base in self.base_lrs]

    scheduler = Halved(torch.optim.SGD(nn.Linear(2, 2).parameters(), 1.0))
    with pytest.warns(UserWarning, match=f"^epoch=7: .* {IDLE}"):
        scheduler.step(7)
    scheduler.step()
    assert [group["lr"] for group in scheduler.optimizer.param_groups] == [0.25]
    assert scheduler.get_last_lr() == [0.25]


def test_a_scheduler_that_steps_by_a_metric_is_refused() -> None:
    device = pybuda.CPUDevice(
        "cpu0",
        lambda module: torch.optim.SGD(module.parameters(), 0.1),
        torch.optim.lr_scheduler.ReduceLROnPlateau,
        module=later(nn.Linear(6, 4), "net"),
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    with pytest.raises(pybuda.PyBudaError, match="ReduceLROnPlateau, which steps by a metric"):
        pybuda.run_training(_sequential=True)


def test_an_optimizer_that_steps_by_a_closure_is_refused() -> None:
    device = pybuda.CPUDevice(
        "cpu0",
        lambda module: torch.optim.LBFGS(module.parameters()),
        module=later(nn.Linear(6, 4), "net"),
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    with pytest.raises(pybuda.PyBudaError, match="'cpu0' is of type LBFGS, which steps by a closu"):
        pybuda.run_training(_sequential=True)


def test_an_optimizer_with_a_scheduler_steps_alone() -> None:
    """A scheduler puts a function in the place of its `step`, which takes the optimizer."""
    layer = nn.Linear(6, 4)
    before = layer.weight.detach().clone()
    device = pybuda.CPUDevice(
        "cpu0",
        lambda module: torch.optim.SGD(module.parameters(), 0.1),
        lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        module=later(layer, "net"),
    )
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    push(batches(1), device)
    pybuda.run_training(_sequential=True)
    assert not torch.equal(layer.weight, before)


def test_a_module_knows_its_device() -> None:
    module, loss = later(nn.Tanh(), "tanh"), later(nn.MSELoss(), "mse")
    assert module.get_device() is None
    pybuda.TTDevice("tt0", module=later(nn.ReLU(), "relu"))
    with pytest.warns(UserWarning, match=IDLE):
        device = pybuda.CPUDevice("cpu0", mp_context="spawn", module=module)
    device.place_loss_module(loss)
    assert module.get_device() is device
    assert loss.get_device() is device
    device.remove_modules()
    assert module.get_device() is None


def test_forward_of_a_torch_module_is_never_replaced() -> None:
    layer = nn.Linear(2, 2)
    for redirect in (True, False):
        module = pybuda.PyTorchModule("layer", layer, redirect_forward=redirect)
        near(module.run(ONE), [evaluated(layer, ONE)])
        assert "forward" not in vars(layer)


def test_who_syncs_waits_for_what_was_begun() -> None:
    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            threading.Event().wait(0.2)
            return x

    first, device = on("tt", "tt0", nn.ReLU()), on("cpu", "cpu0", Slow())
    pybuda.sync()  # nothing was begun
    for sync in (pybuda.sync, device.sync, first.sync):
        results = pybuda.run_inference(inputs=[(ONE,), (2 * ONE,)])
        sync()
        near(results.get_nowait(), [ONE])
        near(results.get_nowait(), [2 * ONE])


def test_who_syncs_is_told_of_errors() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    on("cpu", "cpu0", Failing())
    pybuda.run_inference(inputs=[(ONE,)])
    with pytest.raises(
        (ValueError, pybuda.PyBudaError), match=r"^no\non device 'cpu0'$|has failed \(no\)"
    ):
        pybuda.sync()


@pytest.mark.parametrize("kind", ["tt", "cpu"])
def test_a_device_gives_its_own_parameters_and_gradients(kind: str) -> None:
    model = perceptron()
    device = on(kind, f"{kind}0", model)
    device.place_loss_module(later(nn.MSELoss(), "mse"))
    before = device.get_parameter_checkpoint()
    assert torch.equal(before["0.weight"].value(), model[0].weight)
    for same in (device.get_all_parameters(), device.pop_parameter_checkpoint()):
        assert torch.equal(same["0.weight"].value(), model[0].weight)
    with pytest.raises(pybuda.PyBudaError, match="does not train: there are no gradients"):
        device.get_parameter_gradients()
    ((inputs, targets),) = batches(1)
    pybuda.initialize_pipeline(training=True, sample_inputs=(inputs,), sample_targets=(targets,))
    push([(inputs, targets)], device)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    (expected,) = pybuda.get_parameter_gradients(device)
    gradients = device.get_parameter_gradients()
    assert gradients.keys() == expected.keys() == before.keys()
    for name, gradient in gradients.items():
        assert float(gradient.value().abs().sum()) > 0
        assert torch.equal(gradient.value(), expected[name].value())
    pybuda.update_device_parameters(device, [{"0.bias": torch.ones(8)}])
    assert torch.equal(device.get_parameter_checkpoint()["0.bias"].value(), torch.ones(8))


def test_parameters_are_there_while_inference_runs_for_ever() -> None:
    model = perceptron()
    device = on("tt", "tt0", model)
    results = pybuda.run_inference(input_count=0)
    found = device.get_parameter_checkpoint()
    assert torch.equal(found["2.bias"].value(), model[2].bias)
    assert pybuda.get_parameter_checkpoint()[0].keys() == found.keys()
    ((inputs, _),) = batches(1)
    device.push_to_inputs(inputs)
    near(results.get(timeout=WAIT), [evaluated(model, inputs)])


def test_a_window_is_divided_by_any_number() -> None:
    images = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    sums = nn.functional.avg_pool2d(images, 2, divisor_override=1)
    module = op.nn.AvgPool2dModule("a", 2, 2, 0, divisor_override=2.5)
    near(module.run(images), [sums / 2.5])
    with pytest.raises(RuntimeError, match="divisor must be not zero"):
        op.AvgPool2d("", pybuda.Tensor(images), 2, divisor_override=0)


@pytest.mark.parametrize("kind", ["tt", "cpu"])
def test_a_cache_that_a_model_returns_is_its_tensors(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    size = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 10}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    ids = torch.tensor([[1, 2, 3]])
    for cache in (True, False):
        config = transformers.GPT2Config(**size, **special, use_cache=cache)
        model = transformers.GPT2LMHeadModel(config).eval()
        device = on(kind, "d", model)
        device.push_to_inputs(ids)
        with torch.no_grad():
            logits, *rest = model(ids).to_tuple()
        (layer,) = rest[0].layers if cache else [None]
        wanted = [logits] if layer is None else [logits, layer.keys, layer.values]
        near(pybuda.run_inference().get(timeout=WAIT), wanted)
        pybuda.shutdown()


def test_stages_and_passes_have_the_numbers_of_the_original() -> None:
    depths = [each.name for each in pybuda.CompileDepth]
    assert len(depths) == 15
    assert [pybuda.CompileDepth[name].value for name in ("INIT_COMPILE", "AUTOGRAD", "FULL")] == [
        0, 6, 14,
    ]  # fmt: skip
    assert [each.name for each in _C.NodeEpochType] == ["Forward", "Backward", "Optimizer"]
    assert [each.value for each in DRAMPlacementAlgorithm] == [0, 1, 2, 3]
    assert vars(_C)["Bfp8_b"] is pybuda.DataFormat.Bfp8_b
    with pytest.warns(UserWarning, match=f"CompileDepth.FULL: .*ends after that stage; .*{IDLE}"):
        pybuda.config._get_global_compiler_config().compile_depth = pybuda.CompileDepth.FULL


@pytest.mark.parametrize("given", [_C.NodeEpochType.Forward, "fwd"])
def test_a_rule_is_for_a_pass(given: object) -> None:
    configure = pybuda.config._get_global_compiler_config().configure_mixed_precision
    configure(epoch_type=given, output_df=pybuda.DataFormat.Bfp2_b)
    (found,) = later(Times(1.0), "once").run(torch.tensor([[1.0, 0.01]]))
    assert found.value().tolist() == [[1.0, 0.0]]
    with pytest.warns(UserWarning, match="intermediate_df: on hardware") as caught:
        configure(op_type="matmul", intermediate_df=pybuda.DataFormat.Float16_b)
    assert caught[0].filename == __file__  # where the program says it
    with pytest.raises(pybuda.PyBudaError, match="epoch_type 'opt' has no formats of its own"):
        configure(epoch_type=_C.NodeEpochType.Optimizer, output_df=pybuda.DataFormat.Bfp2_b)


def test_names_of_verification() -> None:
    assert backend.verify_module is pybuda.verify.verify_module
    assert config.VerifyConfig is pybuda.VerifyConfig
    assert config.DataFormat is pybuda.DataFormat


def test_global_names() -> None:
    assert pybudaglobal.TILE_DIM == 32
    assert [pybudaglobal.align_up_tile(size) for size in (0, 1, 32, 33)] == [0, 32, 32, 64]
    pybuda.TTDevice("tt0")
    pybudaglobal.pybuda_reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pybuda.TTDevice("tt0")  # the name is free again


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_device_is_neither_copied_nor_pickled(copies: Callable[[object], object]) -> None:
    for device in (pybuda.TTDevice("tt0"), pybuda.CPUDevice("cpu0")):
        with pytest.raises(pybuda.PyBudaError, match=f"device '{device.name}' is not copied or pi"):
            copies(device)
