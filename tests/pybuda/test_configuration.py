"""What programs configure takes effect in what is compiled, or says that it has none."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from near import assert_near
from pybuda_runs import tanh

import pef
import pybuda
import sambac
from pef.program import Program
from pybuda import DataFormat, MathFidelity, PyBudaError, query
from pybuda.config import CompilerConfig, _get_global_compiler_config
from sambac.numerics import FORMATS, SOURCE_A, SOURCE_B, parts, rounded

X = torch.randn(1, 6, 40, generator=torch.Generator().manual_seed(1))
W = torch.randn(40, 24, generator=torch.Generator().manual_seed(2)) / 60
"""Small, so that the tanh of products keeps their digits."""
ONE_DIGIT = FORMATS["Bfp2_b"]
IDLE = "no operator that was compiled fits"


class Product(pybuda.PyBudaModule):
    """x @ w, in two operators whose names are known."""

    def __init__(self, name: str = "product", form: DataFormat | None = None) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(W, dev_data_format=form)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        found = pybuda.op.Matmul("layer.0.product", x, self.weights)
        return pybuda.op.Tanh("layer.0.squash", found)


class Double(pybuda.PyBudaModule):
    """Operators with names that modules of torch have attributes for."""

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Multiply("type.double", pybuda.op.Tanh("forward", x), x)


def product(module: pybuda.Module | None = None, x: object = X) -> np.ndarray:
    """Return what a device makes of x @ w, whose tanh came out."""
    (found,) = (module or Product()).run(x)
    return np.arctanh(found.value().numpy().astype(np.float64))


FULL = X.double().numpy() @ W.double().numpy()
LOW = parts(X.numpy(), SOURCE_B)[0].astype(np.float64) @ parts(W.numpy(), SOURCE_A)[0]
"""The product with the digits of one pass of the multiplier."""
NARROW = X.double().numpy() @ rounded(W.numpy(), ONE_DIGIT).astype(np.float64)
"""The product with weights of one digit."""


@pytest.mark.parametrize(
    ("configure", "expected"),
    [
        (lambda: None, FULL),
        (lambda: pybuda.set_configuration_options(math_fidelity=MathFidelity.LoFi), LOW),
        (
            lambda: _get_global_compiler_config().configure_mixed_precision(
                name_regex="layer.0.product", math_fidelity=MathFidelity.LoFi
            ),
            LOW,
        ),
        (
            lambda: _get_global_compiler_config().configure_mixed_precision(
                name_regex="product.weights", output_df=DataFormat.Bfp2_b
            ),
            NARROW,
        ),
        (
            lambda: _get_global_compiler_config().configure_mixed_precision(
                op_type="matmul", input_df={1: (DataFormat.Bfp2_b, False)}
            ),
            NARROW,
        ),
    ],
)
def test_numbers_are_those_that_were_asked_for(
    configure: Callable[[], None], expected: np.ndarray
) -> None:
    configure()
    assert_near(product(), expected)


def test_formats_of_parameters_and_of_tensors() -> None:
    module = Product()
    assert_near(product(module), FULL)
    module.weights.set_data_format(DataFormat.Bfp2_b)
    assert_near(product(module), NARROW)
    held = pybuda.Tensor.create_from_torch(X, dev_data_format=DataFormat.Bfp2_b)
    assert held.data_format is DataFormat.Bfp2_b
    assert torch.equal(held.value(), X)
    exact = rounded(X.numpy(), ONE_DIGIT).astype(np.float64) @ W.double().numpy()
    assert_near(product(Product("other"), held), exact)
    with pytest.raises(PyBudaError, match=r"dev_data_format is .*floating-point numbers are held"):
        pybuda.Parameter(2, dev_data_format=DataFormat.Int8)


def test_another_configuration_compiles_again() -> None:
    module = Product()
    assert_near(product(module), FULL)
    _get_global_compiler_config().default_math_fidelity = MathFidelity.LoFi
    assert_near(product(module), LOW)
    results = pybuda.run_inference(module, inputs=[(X,)], _sequential=True)
    assert_near(np.arctanh(results.get()[0].value().double().numpy()), LOW, 1e-4)
    pybuda.initialize_pipeline(training=False, sample_inputs=(X,))
    pybuda.set_configuration_options(math_fidelity=MathFidelity.HiFi4)
    with pytest.raises(PyBudaError, match="the configuration have changed; call initialize_pipel"):
        pybuda.run_forward()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, replace])
def test_copies_of_a_configuration_are_apart(copied: Callable[..., CompilerConfig]) -> None:
    config = CompilerConfig()
    before = config.settings()
    other = copied(config)
    other.enable_recompute = True
    assert other.settings() != before
    assert config.settings() == before
    assert copied(other).settings() == other.settings()
    assert replace(other, enable_recompute=False).settings() == before


def test_training_uses_the_configuration() -> None:
    optimizer = pybuda.optimizers.SGD(1e-12, device_params=True)
    device = pybuda.TTDevice("tt0", module=Product(), optimizer=optimizer)
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))

    def loss() -> float:
        device.push_to_inputs(X)
        device.push_to_target_inputs(torch.zeros(1, 6, 24))
        pybuda.run_training(_sequential=True)
        found = pybuda.get_loss_queue().get()
        return float(found[0].value())

    assert loss() == pytest.approx(np.mean(np.abs(np.tanh(FULL))), rel=1e-5)
    _get_global_compiler_config().configure_mixed_precision(
        op_type="matmul", math_fidelity=MathFidelity.LoFi
    )
    assert loss() == pytest.approx(np.mean(np.abs(np.tanh(LOW))), rel=1e-5)
    assert np.mean(np.abs(np.tanh(LOW))) < 0.99 * np.mean(np.abs(np.tanh(FULL)))


@pytest.mark.parametrize(("arch", "expected"), [("Grayskull", True), ("Wormhole_B0", False)])
def test_float32_falls_back_on_a_grayskull(arch: str, expected: bool) -> None:
    pybuda.TTDevice("tt0", arch=pybuda.BackendDevice[arch], fp32_fallback=DataFormat.Bfp2_b)
    assert (np.abs(product() - FULL).max() > 0.01) == expected


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ("layer.0.squash", 2),
        ([query.op_type("tanh") | query.op_type("matmul")], 1),
        (query.name_regex(r"layer\..*") & query.op_type("matmul").negate(), 2),
        (query.layer_regex("layer.0") & query.op_type("tanh"), 2),
        ("layer.0.squash.", 1),
    ],
)
@pytest.mark.parametrize("set_break", [pybuda.set_epoch_break, pybuda.set_chip_break])
def test_breaks_begin_sections(set_break, wanted, count: int, programs) -> None:
    set_break(wanted)
    pybuda.TTDevice("tt0", num_chips=2)
    idle = wanted == "layer.0.squash."
    with pytest.warns(UserWarning, match=IDLE) if idle else nullcontext():
        product()
    assert [len(program.sections) for program in programs] == [count]


def test_operators_may_be_called_as_they_like(programs) -> None:
    pybuda.set_epoch_break("type.double")
    config = _get_global_compiler_config()
    config.configure_mixed_precision(name_regex="forwar.", output_df=DataFormat.Bfp2_b)
    config.op_intermediates_to_save = ["type.double", "forward"]
    Double("double").run(X)
    double, narrow = pybuda.get_intermediates_queue().get(timeout=60)
    expected = rounded(np.tanh(X.numpy()), ONE_DIGIT)
    assert_near(narrow.value().numpy(), expected.astype(np.float64))
    assert_near(double.value().numpy(), expected.astype(np.float64) * X.double().numpy())
    assert [len(program.sections) for program in programs] == [2]


def test_chip_breaks_begin_chips(programs) -> None:
    pybuda.set_epoch_break("layer.0.squash")
    pybuda.TTDevice("tt0", num_chips=2)
    whole = product()
    pybuda.set_chip_break("layer.0.squash")
    assert np.array_equal(product(), whole)
    assert [pef.graphs.chips_of(program.graphs[0]) for program in programs] == [
        (range(2),), (range(1), range(1, 2)),
    ]  # fmt: skip
    pybuda.shutdown()
    with pytest.warns(UserWarning, match="chip breaks ask for 2 chips, device 'auto_tt0' has 1"):
        assert np.array_equal(product(), whole)


def test_breaks_in_modules_of_torch_and_onnx(programs) -> None:
    pybuda.set_epoch_break([query.op_type("relu")])
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    pybuda.PyTorchModule("layers", layers).run(torch.ones(1, 2))
    pybuda.shutdown()
    pybuda.OnnxModule("tanh", tanh(2)).run(torch.ones(1, 2))
    assert [len(program.sections) for program in programs] == [2, 1]


@pytest.mark.parametrize("training", [False, True])
def test_names_that_no_operator_has_are_told_once_all_devices_are_compiled(training) -> None:
    pybuda.set_epoch_break(["layer.0.squash", "layer.0.squosh", query.op_type("tanhh")])
    pybuda.set_epoch_break(query.layer_regex("layer.0") & query.op_type("relu").negate())
    pybuda.set_chip_break(["1", query.op_type("tanh")])
    pybuda.set_chip_break(query.name_regex("2") | query.op_type("gelu"))
    pybuda.set_configuration_options(op_intermediates_to_save=["layer.0.product", "product"])
    config = _get_global_compiler_config()
    config.configure_mixed_precision(name_regex="weighs", output_df=DataFormat.Bfp8_b)
    config.configure_mixed_precision(name_regex=".*product", output_df=DataFormat.Float16_b)
    pybuda.TTDevice("tt0", num_chips=2, module=Product())
    last = pybuda.TTDevice("tt1", num_chips=2)
    last.place_module(pybuda.PyTorchModule("more", torch.nn.Sequential(*[torch.nn.ReLU()] * 2)))
    if training:
        last.place_loss_module(pybuda.PyTorchModule("loss", torch.nn.MSELoss()))
    targets = (torch.zeros(1, 6, 24),) if training else ()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pybuda.initialize_pipeline(training, sample_inputs=(X,), sample_targets=targets)
    told = [str(each.message) for each in found]
    wanted = [
        "'weighs', 'layer.0.squosh' (did you mean 'layer.0.squash'?)",
        "'product' (did you mean 'product.weights'?), op_type('tanhh') (did you mean 'tanh'?)",
        "(name_regex('2') | op_type('gelu')) (did you mean 'relu'?); it has no effect",
    ]
    assert [each for each in told if IDLE in each] == [f"{IDLE} {', '.join(wanted)}"]
    only = [each for each in told if "nothing is saved" in each]
    assert len(only) == (2 if training else 0)  # of each device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=IDLE)
        pybuda.initialize_pipeline(training, sample_inputs=(X,), sample_targets=targets)


def test_names_are_told_behind_a_device_that_compiles_nothing() -> None:
    pybuda.set_epoch_break(["layer.0.squash", "squosh"])
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("first", torch.nn.Identity()))
    pybuda.TTDevice("tt0", module=Product())
    with pytest.warns(UserWarning, match=f"{IDLE} 'squosh'"):
        pybuda.run_inference(inputs=[(X,)], _sequential=True)


def test_names_are_told_by_a_module_that_runs_itself() -> None:
    pybuda.set_epoch_break(["layer.0.squash", "squosh"])
    with pytest.warns(UserWarning, match=f"{IDLE} 'squosh'"):
        (module := Product()).run(X)
    module.run(X)  # it is told once


def test_a_rule_that_says_nothing_is_told() -> None:
    with pytest.warns(UserWarning, match="got no format and no fidelity; it has no effect$"):
        pybuda.configure_mixed_precision(op_type="matmul")


@pytest.mark.parametrize("wanted", [False, True])
def test_training_recomputes_where_that_is_asked_for(wanted: bool, monkeypatch) -> None:
    found: list[bool] = []
    compiled = sambac.compile

    def kept(part: object, options: sambac.CompileOptions, **given: object) -> Program:
        found.append(options.recompute)
        return compiled(part, options, **given)

    monkeypatch.setattr(sambac, "compile", kept)
    pybuda.set_configuration_options(enable_recompute=wanted)
    device = pybuda.TTDevice("tt0", module=Product())
    device.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    targets = torch.zeros(1, 6, 24)
    pybuda.initialize_pipeline(training=True, sample_inputs=(X,), sample_targets=(targets,))
    assert found == [wanted]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("balancer_policy", "Ribbon"),
        ("enable_auto_fusing", False),
        ("performance_trace", pybuda.PerfTraceLevel.LIGHT),
        ("backend_output_dir", "out"),
    ],
)
def test_options_without_an_effect_say_so(option: str, value: object) -> None:
    config = _get_global_compiler_config()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pybuda.set_configuration_options(**{option: None})
    assert getattr(config, option) is None
    with pytest.warns(UserWarning, match=f"{option}=.*: on hardware .*; it has no effect here"):
        pybuda.set_configuration_options(**{option: value})
    assert getattr(config, option) == value
    assert config.settings() == CompilerConfig().settings()


def test_what_programs_set_on_the_configuration_is_there() -> None:
    config = _get_global_compiler_config()
    for name in (
        "compile_subgraphs", "convert_framework_params_to_tvm", "enable_single_buffer_fallback",
        "graph_solver_self_cut_type",
    ):  # fmt: skip
        with pytest.warns(UserWarning, match=f"{name}=1: on hardware .*; it has no effect here"):
            setattr(config, name, 1)
    config.conv_multi_op_fracture_factor_override["conv"] = 2
    config.cpu_fallback_ops.discard("embedding")
    pybuda.config.configure_mixed_precision(op_type="exp", output_df=pybuda.DataFormat.Bfp8_b)
    assert [rule.output for rule in config.settings().number_rules] == ["Bfp8_b"]
    pybuda.pybuda_reset()
    assert config.settings() == CompilerConfig().settings()


@pytest.mark.parametrize(
    "hint",
    [
        lambda: pybuda.override_op_size("op", (1, 2)),
        lambda: pybuda.config.override_t_stream_dir("op", "R"),
        lambda: pybuda.config._set_pybuda_override_veto({"balancer_policy": ""}, {}),
        lambda: pybuda.config.insert_nop("a", ["b"], hoist_tms=False),
        lambda: pybuda.config.insert_buffering_nop("a", ["b"], nop_count=2),
        lambda: pybuda.config.override_dram_parameters("op", True),
        lambda: pybuda.config.override_fracture_factor("op", 2),
        lambda: pybuda.config.override_input_buffer_multiplier("op", 0, multiplier=2),
        lambda: pybuda.config.override_multi_op_fracture_factor("op", 2),
        lambda: _get_global_compiler_config().balancer_op_override("op", "t_stream_shape", (1, 1)),
    ],
)
def test_hints_of_placement_say_that_they_have_no_effect(hint: Callable[[], None]) -> None:
    with pytest.warns(UserWarning, match=r": on hardware .*; it has no effect here"):
        hint()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: pybuda.set_configuration_options(balancer_polizy="x"), PyBudaError,
         r"no 'balancer_polizy' \(did you mean 'balancer_policy'\?\)"),
        (lambda: setattr(_get_global_compiler_config(), "amp_levl", 1), PyBudaError,
         r"no 'amp_levl' \(did you mean 'amp_level'\?\)"),
        (lambda: _get_global_compiler_config().balancer_polic, AttributeError, "balancer_policy"),
        (lambda: pybuda.config.override_u_k, AttributeError, r"did you mean 'override_u_kt'\?"),
        (lambda: pybuda.override_op_size("op", grid=1), TypeError, "did you mean 'grid_size'"),
        (lambda: pybuda.set_epoch_break([3]), PyBudaError, "3 came; the name of an operator, or"),
        (lambda: query.name_regex("*a"), PyBudaError, r"'\*a' is no regular expression: nothing "),
        (lambda: pybuda.set_configuration_options(op_intermediates_to_save="op"), PyBudaError,
         "op_intermediates_to_save is 'op'; a list of names of operators was expected"),
        (lambda: pybuda.set_configuration_options(op_intermediates_to_save=["a", 3]), PyBudaError,
         r"op_intermediates_to_save\[1\] is 3; op_intermediates_to_save is a list of names"),
        (lambda: pybuda.set_configuration_options(enable_recompute="yes"), PyBudaError,
         "enable_recompute is 'yes'; a bool was expected"),
        (lambda: setattr(_get_global_compiler_config(), "enable_recompute", 1), PyBudaError,
         "enable_recompute is 1; a bool was expected"),
        (lambda: pybuda.set_configuration_options(amp_level="1"), PyBudaError,
         "amp_level is '1'; a int was expected"),
        (lambda: pybuda.set_configuration_options(default_df_override={1: "Bfp8"}), PyBudaError,
         "default_df_override is a dict; floating-point numbers are held as"),
    ],
)  # fmt: skip
def test_names_that_there_are_not(
    call: Callable[[], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_all_options_that_are_wrong_are_told_at_once_and_none_is_set() -> None:
    before = CompilerConfig().settings()
    with pytest.raises(PyBudaError) as told:
        pybuda.set_configuration_options(
            enable_recompute="no", amp_levl=1, math_fidelity="HiFi2", op_intermediates_to_save=["a"]
        )
    lines = str(told.value).splitlines()
    wrong = ("enable_recompute", "the configuration has no 'amp_levl'", "default_math_fidelity")
    assert all(map(str.startswith, lines, wrong))
    assert len(lines) == len(wrong)
    assert _get_global_compiler_config().settings() == before


def test_a_module_that_cannot_be_compiled_is_called_by_its_name() -> None:
    class Strange(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.special.bessel_j0(x) + torch.special.bessel_j1(x)
            return torch.linalg.matrix_exp(found)

    both = r"bessel_j0 at .*bessel_j1 at .*matrix_exp at test_conf"
    with pytest.raises(sambac.CompileError, match=f"^Strange cannot be exported: these .*{both}"):
        pybuda.PyTorchModule("strange", Strange()).run(torch.ones(1, 2, 2))
