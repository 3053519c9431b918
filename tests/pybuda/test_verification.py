"""Verification tells what differs from what is near."""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext

import onnx_ir as ir
import pytest
import torch
from pybuda_runs import tanh
from torch import nn

import pybuda
from pef.graphs import chips_of
from pybuda.verify import TestKind, VerifyConfig, verify_module, verify_module_pipeline
from sambac.passes.simplify.merge_chains import MergeChains
from sambahost.sample_trainer import SampleTrainer
from sambahost.training_pipeline import Loops, TrainingPipeline

RAMP = torch.linspace(-1, 1, 64).reshape(8, 8)
NOISE = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
NAN = torch.full((2,), math.nan)


@pytest.mark.parametrize(
    ("golden", "found", "settings", "passes"),
    [
        (RAMP, RAMP + 0.09, {"pcc": 1.1}, True),
        (RAMP, RAMP + 0.11, {"pcc": 1.1}, False),
        (RAMP, RAMP + 0.09, {"pcc": 1.1, "relative_atol": 0.05}, False),
        (RAMP, RAMP * 1.05, {"pcc": 1.1, "atol": 0.0, "rtol": 0.06}, True),
        (RAMP, RAMP * 3, {}, True),
        (RAMP, RAMP + NOISE, {}, False),
        (RAMP, RAMP + NOISE, {"pcc": 0.3}, True),
        (RAMP, RAMP[None], {}, True),
        (RAMP, RAMP.T.reshape(4, 16), {}, False),
        (RAMP, RAMP, {"golden_compare_callback": lambda a, b: False}, True),
        (RAMP + 0.05, RAMP, {"pcc": 1.1, "golden_compare_callback": lambda a, b: False}, False),
        (RAMP, torch.zeros(8, 8), {}, False),
        (torch.ones(4), torch.full((4,), 2.0), {}, True),
        (torch.ones(1), torch.full((1,), 2.0), {}, False),
        (NAN, NAN, {}, True),
        (torch.zeros(2), NAN, {}, False),
        (torch.tensor([True, False]), torch.tensor([True, False]), {}, True),
        (torch.tensor([True, False]), torch.tensor([True, True]), {}, False),
    ],
)  # fmt: skip
def test_the_rule(golden, found, settings, passes: bool) -> None:
    config = VerifyConfig(**settings)
    if passes:
        config.rule().require("y", golden, found)
        return
    with pytest.raises(AssertionError, match=r"^y is "):
        config.rule().require("y", golden, found)


class Scaled(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(NOISE)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Matmul("product", x, self.weights)


@pytest.mark.parametrize(
    "module", [Scaled("scaled"), pybuda.PyTorchModule("layer", torch.nn.Linear(8, 4))]
)
def test_modules_are_run_on_the_device(module: pybuda.Module) -> None:
    verify_module(module, [(3, 8)])
    verify_module(module, inputs=(RAMP,))
    pybuda.config._get_global_compiler_config().default_df_override = pybuda.DataFormat.Bfp2_b
    with pytest.raises(
        AssertionError, match=r"device 'tt0': output 0 is up to .* from what torch gives"
    ):
        verify_module(module, inputs=(RAMP,), verify_cfg=VerifyConfig(pcc=1, relative_atol=0.001))


ALL = {"pcc": None, "atol": 1e-4}
RATE = {"learning_rate": 0.05}


class Layer(pybuda.PyBudaModule):
    """A layer whose parameters have no values yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(8, 8)
        self.bias = pybuda.Parameter(1, 8)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Sigmoid("s", pybuda.op.Matmul("m", x, self.weights, self.bias))


@pytest.mark.parametrize("kind", ["sgd", "adam", "adamw", "lamb", "lars"])
def test_training_is_compared_step_by_step(kind: str, monkeypatch) -> None:
    begun, plain = [], TrainingPipeline.train
    monkeypatch.setattr(
        TrainingPipeline, "train", lambda self, *given: begun.append(given) or plain(self, *given)
    )
    config = VerifyConfig(
        test_kind=TestKind.TRAINING_RECOMPUTE if kind == "sgd" else TestKind.TRAINING,
        optimizer={"type": kind, "params": RATE},
        scheduler=Halving,
        epochs=2,
        steps=3,
        accumulation_steps=2,
        microbatch_count=2,
        checkpoint_interval=5,
        sequential=kind == "sgd",
        scale_loss=3.0,
        **ALL,
    )
    device, host = verify_module_pipeline([Layer("layer")], [(3, 8)], config)
    assert begun == [(Loops(2, 3, 2, 2, 5), kind == "sgd")]
    assert type(device.optimizer).__name__.lower() == kind
    assert device.optimizer.learning_rate == RATE["learning_rate"] / 4
    assert host.loss.module(torch.ones(2), torch.zeros(2)) == 3


class Halving(pybuda.schedulers.LearningRateScheduler):
    def get_lr(self) -> float:
        return self.optimizer.learning_rate / 2


def test_several_devices_are_compared_one_by_one() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    parts = (body, nn.Linear(144, 8), nn.Tanh(), nn.Linear(8, 4))
    modules = [pybuda.PyTorchModule(f"m{index}", part) for index, part in enumerate(parts)]
    kinds = ["TTDevice", "TTDevice", "-", "CPUDevice"]
    optimizer = {"type": "sgd", "params": RATE}
    config = VerifyConfig(
        test_kind=TestKind.TRAINING, steps=3, sequential=False, optimizer=optimizer, **ALL
    )
    devices = verify_module_pipeline(
        modules,
        [(2, 3, 8, 8)],
        config,
        device_types=kinds,
        loss_module=pybuda.PyTorchModule("loss", nn.MSELoss()),
    )
    assert [device.get_name() for device in devices] == ["tt0", "tt1", "cpu3"]
    config = VerifyConfig(num_chips=2, chip_ids=(1, 3), devtype=pybuda.BackendType.Model)
    *found, _ = verify_module_pipeline(modules, [(2, 3, 8, 8)], config, device_types=kinds)
    assert [(each.chip_ids, each.devtype.name) for each in found] == [((1, 3), "Model")] * 2
    assert not pybuda.device.current().devices


def test_sections_and_formats_are_those_of_the_configuration(programs) -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Sigmoid())
    module, chosen = pybuda.PyTorchModule("model", model), pybuda.query.op_type
    breaks = {"epoch_breaks": [chosen("tanh")], "chip_breaks": [chosen("sigmoid")]}
    verify_module(module, [(3, 8)], VerifyConfig(num_chips=2, **breaks, **ALL))
    (program,) = programs
    assert chips_of(program.graphs[0]) == (range(2), range(2, 3))
    narrow = {"arch": pybuda.BackendDevice.Grayskull, "fp32_fallback": pybuda.DataFormat.Bfp2_b}
    with pytest.raises(AssertionError, match="output 0 is up to"):
        verify_module(module, [(3, 8)], VerifyConfig(**narrow, **ALL))


@pytest.mark.parametrize("kind", [TestKind.INFERENCE, TestKind.TRAINING])
def test_passes_of_the_compiler_are_verified(kind, monkeypatch) -> None:
    """A pass that makes something else of an operator is named, whatever the whole gives."""
    model, shapes = pybuda.PyTorchModule("model", nn.Sequential(nn.Linear(8, 4), nn.Tanh())), (3, 8)
    config = VerifyConfig(
        test_kind=kind, verify_all=True, optimizer={"type": "sgd", "params": RATE}
    )
    verify_module(model, [shapes], config)
    plain = MergeChains.__call__

    def wrong(step: MergeChains, graph: ir.Model) -> ir.passes.PassResult:
        plain(step, graph)
        for node in graph.graph:
            node.op_type = {"Tanh": "Cos", "Cos": "Tanh"}.get(node.op_type, node.op_type)
        return ir.passes.PassResult(graph, modified=True)

    monkeypatch.setattr(MergeChains, "__call__", wrong)
    monkeypatch.setattr(MergeChains, "operators", None)
    with pytest.raises(AssertionError, match="after the pass merge_chains, 'output_0' is up to"):
        verify_module(model, [shapes], config)


def _twice(plain):
    def called(*args, **kwargs):
        found = plain(*args, **kwargs)
        if isinstance(found, dict):
            return {name: 2 * value for name, value in found.items()}
        return tuple(None if value is None else 2 * value for value in found)

    return called


@pytest.mark.parametrize(
    ("method", "wrong", "settings", "says"),
    [
        ("forward", _twice, {}, "device 'tt0': output 0"),
        ("backward", _twice, {}, "device 'tt1': gradient of input 0"),
        ("backward", _twice, {"enable_input_gradient_checking": False}, ""),
        ("gradients", _twice, {}, "device 'tt1': gradient of parameter 'b.weights'"),
        ("gradients", _twice, {"waive_gradient_errors": ["bias", "weights"]}, ""),
        ("gradients", _twice, {"enable_parameter_gradient_checking": False}, ""),
        ("optimize", lambda plain: lambda self: None, {}, "device 'tt.': parameter '.*'"),
        ("optimize", lambda plain: lambda self: None, {"enabled": False}, ""),
    ],
)
def test_what_a_device_does_otherwise_is_told(monkeypatch, method, wrong, settings, says) -> None:
    plain = getattr(SampleTrainer, method)
    monkeypatch.setattr(SampleTrainer, method, wrong(plain))
    config = VerifyConfig(
        test_kind=TestKind.TRAINING, optimizer={"type": "sgd", "params": RATE}, **ALL, **settings
    )
    told = pytest.raises(AssertionError, match=f"^{says} is up to") if says else nullcontext()
    with told:
        verify_module_pipeline(
            [Layer("a"), Layer("b")],
            [(3, 8)],
            config,
            device_types=["TTDevice", "TTDevice"],
            loss_module=pybuda.op.loss.L1Loss("l1"),
        )


def test_runs_of_a_program_are_verified() -> None:
    coarse, exact = {"default_df_override": pybuda.DataFormat.Bfp2_b}, VerifyConfig(**ALL)
    module = pybuda.PyTorchModule("layer", nn.Linear(8, 4))
    pybuda.run_inference(module, inputs=[(RAMP,)], _verify_cfg=exact).get()
    pybuda.set_configuration_options(**coarse)
    pybuda.run_inference(module, inputs=[(RAMP,)]).get()
    results = pybuda.run_inference(module, inputs=[(RAMP,)], _verify_cfg=exact)
    with pytest.raises(AssertionError, match="device 'auto_tt0': output 0 is up to"):
        results.get(timeout=60)
    off = VerifyConfig.disabled()
    assert pybuda.run_inference(module, inputs=[(RAMP,)], _verify_cfg=off).get(timeout=60)
    with pytest.raises(pybuda.PyBudaError, match=r"_verify_cfg is 1; a .*VerifyConfig was"):
        pybuda.run_inference(module, inputs=[(RAMP,)], _verify_cfg=1)


@pytest.mark.parametrize("sequential", [False, True])
def test_training_in_one_call_is_verified(monkeypatch, sequential: bool) -> None:
    device = pybuda.TTDevice(
        "tt0",
        module=pybuda.PyTorchModule("layer", nn.Linear(8, 4)),
        optimizer=pybuda.optimizers.SGD(0.1, device_params=True),
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))

    def train(**more: object) -> pybuda.Tensor:
        device.push_to_inputs(RAMP)
        device.push_to_target_inputs(torch.zeros(len(RAMP), 4))
        checkpoints = pybuda.run_training(_sequential=sequential, **more)
        return checkpoints.get(timeout=60)

    assert train(_verify_cfg=VerifyConfig(**ALL))
    monkeypatch.setattr(SampleTrainer, "gradients", _twice(SampleTrainer.gradients))
    with pytest.raises(AssertionError, match=r"device 'tt0': gradient of parameter '.*' is up to"):
        train(_verify_cfg=VerifyConfig(**ALL))


def test_inputs_are_drawn_as_they_are_described() -> None:
    table, seen = nn.Embedding(25000, 4), []
    module = pybuda.PyTorchModule("table", table)
    table.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    verify_module(module, [(2, 3)], input_params=[{"data_format": torch.int32}])
    assert any(ids.dtype is torch.int32 for ids in seen)
    with pytest.raises(pybuda.PyBudaError, match=r"'data_fromat' \(did you mean 'data_format'"):
        verify_module(module, [(2, 3)], input_params=[{"data_fromat": torch.int32}])


def test_an_onnx_model_is_compared_with_its_evaluator() -> None:
    module = pybuda.OnnxModule("tanh", tanh(2))
    verify_module(module, [(3, 2)], VerifyConfig(**ALL))
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Bfp2_b)
    with pytest.raises(AssertionError, match="output 0 is up to"):
        verify_module(module, [(3, 2)], VerifyConfig(**ALL))


def test_devices_of_the_program_are_left_alone() -> None:
    module = pybuda.PyTorchModule("layer", nn.Linear(8, 4))
    pybuda.run_inference(module, inputs=[(RAMP,)]).get()
    own = module.get_device()
    verify_module(pybuda.PyTorchModule("other", nn.Linear(8, 4)), [(1, 8)])
    assert module.get_device() is own
    assert pybuda.run_inference(module, inputs=[(RAMP,)]).get(timeout=60)


def test_what_has_no_effect_is_told() -> None:
    idle = {
        "devmode": 1,
        "dump_tensors_path": "there",
        "graph_name": "net",
        "tti_path": "image.tti",
    }
    last = dict.fromkeys(("golden_ignore_df_precision", "intermediates", "verify_last"), False)
    stages = (
        "run_golden", "run_net2pipe", "skip_shutdown", "verify_each_buda_pass",
        "verify_pipeline_result_vs_framework", "verify_post_autograd_passes", "verify_post_placer",
        "verify_pybuda_codegen_vs_framework", "verify_tvm_compile",
    )  # fmt: skip
    for name, value in {**idle, **last, **dict.fromkeys(stages, True)}.items():
        with pytest.warns(UserWarning, match=f"^{name}: on hardware .* it has no effect here$"):
            VerifyConfig(**{name: value})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VerifyConfig(verify_post_placer=False, verify_post_autograd_passes=False)
    with pytest.raises(pybuda.PyBudaError, match="test_kind is 'training'"):
        VerifyConfig(test_kind="training")
    assert TestKind.get_training() == [TestKind.TRAINING, TestKind.TRAINING_RECOMPUTE]
    assert TestKind.get_all() == [TestKind.INFERENCE, *TestKind.get_training()]


def test_a_pipeline_by_hand_is_verified(monkeypatch) -> None:
    device = pybuda.TTDevice(
        "tt0", module=Layer("a"), optimizer=pybuda.optimizers.SGD(0.1, device_params=True)
    )
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    for parameter in device.modules[0].get_parameters():
        parameter.set_value(torch.randn(*parameter.shape))
    sample = torch.randn(2, 8)
    pybuda.initialize_pipeline(
        training=True,
        sample_inputs=(sample,),
        sample_targets=(sample,),
        _verify_cfg=VerifyConfig(**ALL),
    )
    for _ in range(2):
        device.push_to_inputs(sample)
        device.push_to_target_inputs(sample)
        pybuda.run_forward()
        pybuda.run_backward(zero_grad=True)
        pybuda.update_device_parameters(device, [{"a.bias": torch.randn(1, 8)}])
        pybuda.run_optimizer()
    pybuda.sync()
    monkeypatch.setattr(SampleTrainer, "optimize", lambda self: None)
    device.push_to_inputs(sample)
    device.push_to_target_inputs(sample)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    pybuda.run_optimizer()
    with pytest.raises(AssertionError, match=r"device 'tt0': parameter '.*' is up to"):
        pybuda.sync()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"verify_all": "no"}, "verify_all is 'no'; a bool was expected"),
        ({"steps": 0}, "steps is 0; a whole number from 1 on was expected"),
        ({"epochs": -1}, "epochs is -1; a whole number from 1 on"),
        ({"accumulation_steps": 1.5}, "accumulation_steps is 1.5; a whole number from 1 on"),
        ({"microbatch_count": 0}, "microbatch_count is 0; a whole number from 1 on"),
        ({"checkpoint_interval": -1}, "checkpoint_interval is -1; a whole number from 0 on"),
        ({"pcc": "x"}, "pcc is 'x'; a number that is not infinite, or None was expected"),
        ({"rtol": True}, "rtol is True; a number from 0 on that is not infinite, or a dict"),
        ({"pcc": float("nan")}, "pcc is nan; a number that is not infinite, or None was expected"),
        ({"rtol": float("inf")}, "rtol is inf; a number from 0 on that is not infinite, or a dict"),
        ({"atol": {torch.float32: -1.0}}, "atol is a dict; a number from 0 on that is not infin"),
        ({"relative_atol": None}, "relative_atol is None; a number from 0 on that is not infinite"),
        ({"scale_loss": float("inf")}, "scale_loss is inf; a number that is not infinite"),
        ({"waive_gradient_errors": "weight"}, "waive_gradient_errors is 'weight'; a list was"),
        ({"golden_compare_callback": 1}, "golden_compare_callback is 1; a function, or None was"),
        ({"optimizer": "sgd"}, "optimizer is 'sgd'; a dict by name, or None was expected"),
        ({"devtype": "Golden"}, "devtype is 'Golden'; a .*BackendType, or None was"),
    ],
)
def test_settings_that_would_compare_nothing_are_refused(setting: dict, says: str) -> None:
    with pytest.raises(pybuda.PyBudaError, match=says):
        VerifyConfig(**setting)
    ((name, value),) = setting.items()
    config = VerifyConfig()
    with pytest.raises(pybuda.PyBudaError, match=says):
        setattr(config, name, value)
    assert config == VerifyConfig()


def test_all_settings_that_are_wrong_are_told_at_once() -> None:
    says = "^enabled is 'no'.*\\ndevtype is 'Golden'.*\\nsteps is 0"
    with pytest.raises(pybuda.PyBudaError, match=says):
        VerifyConfig(enabled="no", devtype="Golden", steps=0)


def test_settings_that_there_are_not_are_refused_when_they_are_set_later() -> None:
    with pytest.raises(pybuda.PyBudaError, match=r"no 'pccc' \(did you mean 'pcc'"):
        VerifyConfig().pccc = 0.5
    told = "'parms' beside type and params"
    for chosen in ({"type": "adamw", "parms": {"learning_rate": 1.0}}, {"typ": "adamw"}):
        training = VerifyConfig(test_kind=TestKind.TRAINING, optimizer=chosen)
        with pytest.raises(pybuda.PyBudaError, match=told):
            verify_module(pybuda.PyTorchModule("net", nn.Linear(4, 3)), [(1, 4)], training)
        told = "there is no optimizer ''"


@pytest.mark.parametrize("odd", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_does_not_let_the_rest_pass(odd: float) -> None:
    golden = torch.tensor([odd, 1.0, 2.0])
    rule = VerifyConfig(pcc=None).rule()
    assert rule.complaint(golden, torch.tensor([odd, 1.1, 2.0])) == ""
    assert "is up to" in rule.complaint(golden, torch.tensor([odd, 3.0, 2.0]))
