"""What programs ask of numbers, and what the compiler is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import pybuda
import sambac
import sambarun
from pybuda import DataFormat, MathFidelity, PyBudaError
from pybuda.number_config import NumberConfig
from sambac import CompileOptions, NumberRule
from sambac.numerics import FORMATS, SOURCE_A, SOURCE_B, parts, rounded

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Attention")


class Product(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = torch.nn.Parameter(torch.randn(40, 24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weights


def product(config: NumberConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what a device makes of x @ w, x and w."""
    module, x = Product(), torch.randn(6, 40, generator=torch.Generator().manual_seed(1))
    options = CompileOptions(number_rules=config.rules())
    program = sambac.compile(module, options, inputs={"x": x})
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    return found, x.numpy(), module.weights.detach().numpy()


def test_nothing_is_set_at_first() -> None:
    config = NumberConfig()
    assert config.rules() == ()
    config.default_df_override = DataFormat.Float32
    config.amp_level = 0
    assert config.rules() == ()
    found, x, w = product(config)
    np.testing.assert_allclose(found, x.astype(float) @ w, rtol=0, atol=1e-4)


def test_defaults_take_effect() -> None:
    config = NumberConfig(default_math_fidelity=MathFidelity.LoFi)
    found, x, w = product(config)
    expected = parts(x, SOURCE_B)[0].astype(float) @ parts(w, SOURCE_A)[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    config = NumberConfig(default_df_override=DataFormat.Float16_b)
    found, x, w = product(config)
    form = FORMATS["Float16_b"]
    exact = rounded(x, form).astype(float) @ rounded(w, form)
    np.testing.assert_allclose(found, exact, rtol=2**-8)
    np.testing.assert_array_equal(found, rounded(found, form))
    config.default_accumulate_df = DataFormat.Float16_b
    assert config.rules()[1:] == (NumberRule(accumulate="Float16_b"),)


def test_parameters_alone_are_in_a_format() -> None:
    config = NumberConfig()
    config.configure_mixed_precision(
        op_type="matmul", input_df={1: (DataFormat.Bfp4_b, False), 0: (DataFormat.Bfp2_b, False)}
    )
    found, x, w = product(config)
    expected = x.astype(float) @ rounded(w, FORMATS["Bfp4_b"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"op_type": "matmul", "math_fidelity": MathFidelity.HiFi2},
            NumberRule(op_type=PRODUCTS, fidelity="HiFi2"),
        ),
        (
            {"name_regex": "layer.*", "output_df": DataFormat.Bfp8, "epoch_type": "bwd"},
            NumberRule(name="layer.*", output="Bfp8", stage="bwd"),
        ),
        (
            {"is_gradient_op": False, "accumulate_df": DataFormat.Float32},
            NumberRule(stage="fwd", accumulate="Float32"),
        ),
        (
            {"op_type": "add", "input_df": DataFormat.Float16},
            NumberRule(op_type=("Add",), operands="Float16"),
        ),
        (
            {"op_type": "multiply", "input_df": {0: (DataFormat.Bfp8_b, True)}},
            NumberRule(op_type=("Mul",), operands={0: "Bfp8_b"}),
        ),
        (
            {"op_type": "matmul", "input_parameter_indices_to_optimize": [(1, 4)]},
            NumberRule(op_type=PRODUCTS, weights={1: "Bfp4_b"}),
        ),
    ],
)
def test_rules_of_mixed_precision(settings: dict[str, Any], expected: NumberRule) -> None:
    config = NumberConfig()
    config.configure_mixed_precision(op_type="exp", output_df=DataFormat.Bfp8_b)
    config.configure_mixed_precision(**settings)
    assert config.rules() == (NumberRule(op_type=("Exp",), output="Bfp8_b"), expected)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"output_df": DataFormat.Bfp8}, "needs an op_type, epoch_type, name_regex or is_gradi"),
        ({"op_type": "matmull"}, r"no operators of type 'matmull' \(did you mean 'matmul'\?\)"),
        ({"op_type": "exp", "output_df": DataFormat.Int8}, "output_df is .*are held as Float32,"),
        ({"op_type": "exp", "accumulate_df": DataFormat.Bfp8}, "accumulate_df is Bfp8; sums are"),
        ({"op_type": "exp", "math_fidelity": MathFidelity.Invalid}, "choose LoFi, HiFi2"),
        ({"epoch_type": "opt"}, "optimizers compute in float32"),
        ({"epoch_type": "forward"}, "epoch_type is 'forward'; choose fwd, bwd, opt"),
        ({"epoch_type": "fwd", "is_gradient_op": True}, "which no operator is"),
        ({"name_regex": "(", "output_df": DataFormat.Bfp8}, "configure_mixed_precision: name is"),
        ({"op_type": "exp", "input_parameter_indices_to_optimize": [(0, 3)]}, "3 bits were asked"),
        ({"op_type": ["exp"]}, "there are no operators of type a list"),
        ({"op_type": "matmul", "input_df": {1: DataFormat.Bfp8}},
         r"input_df\[1\] is DataFormat.Bfp8; a format and whether activations are meant too were"),
        ({"op_type": "matmul", "input_df": {1: (DataFormat.Bfp8, "no")}}, r"df\[1\] is a tuple"),
        ({"op_type": "matmul", "input_df": {1: ("Bfp8", True)}}, r"input_df\[1\] is 'Bfp8'; fl"),
        ({"op_type": "matmul", "input_df": {"x": (DataFormat.Bfp8, True)}},
         "an operand of input_df is 'x'; a whole number from 0 on was expected"),
        ({"op_type": "matmul", "input_df": [DataFormat.Bfp8]}, "input_df is a list; floating"),
        *(
            ({"op_type": "exp", "input_parameter_indices_to_optimize": odd},
             rf"input_parameter_indices_to_optimize is {said}.*; \[\(1, 8\)\] was expected")
            for odd, said in ((3, "3"), ([3], "a list"), ([(1, 8, 3)], "a list"), ({1: 8}, "a d"))
        ),
        ({"op_type": "exp", "input_parameter_indices_to_optimize": [(-1, 8)]},
         "an operand of input_parameter_indices_to_optimize is -1; a whole number from 0 on"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    config = NumberConfig()
    with pytest.raises(PyBudaError, match=words):
        config.configure_mixed_precision(**settings)
    assert config.rules() == ()


def test_what_has_no_effect_says_so() -> None:
    config = NumberConfig()
    with pytest.warns(UserWarning, match="intermediate_df: on hardware .* no effect"):
        config.configure_mixed_precision(op_type="exp", intermediate_df=DataFormat.Bfp8)
    assert config.rules() == ()
    config.amp_level = 3
    with pytest.warns(UserWarning, match="amp_level is 3; levels are 1 and 2, none is used"):
        assert config.rules() == ()


@pytest.mark.parametrize(
    ("option", "value", "attribute"),
    [
        ("default_df_override", DataFormat.Bfp8_b, "default_df_override"),
        ("accumulate_df", DataFormat.Float16_b, "default_accumulate_df"),
        ("amp_level", 1, "amp_level"),
    ],
)
def test_options_are_attributes(option: str, value: object, attribute: str) -> None:
    pybuda.set_configuration_options(**{option: value})
    expected = NumberConfig(**{attribute: value}).rules()
    assert pybuda.config._get_global_compiler_config().rules() == expected != ()


@pytest.mark.parametrize(
    ("level", "override", "weights", "output"),
    [
        (1, None, {1: "Bfp8_b", 2: "Bfp8_b"}, "Bfp8_b"),
        (2, None, {}, "Bfp8"),
        (2, DataFormat.Float16_b, {1: "Bfp8_b", 2: "Bfp8_b"}, "Bfp8_b"),
        (1, DataFormat.Float16, {}, "Bfp8"),
    ],
)
def test_levels_of_automatic_precision(
    level: int, override: DataFormat | None, weights: dict[int, str], output: str
) -> None:
    rules = NumberConfig(amp_level=level, default_df_override=override).rules()
    matmul = next(rule for rule in rules if rule.op_type == PRODUCTS)
    assert (matmul.weights or {}, matmul.output) == (weights, output)
    assert rules[0].operands == (override.name if override else rules[0].operands)


@pytest.mark.parametrize(
    ("level", "form", "fidelity"),
    [(1, "Bfp8_b", "HiFi2"), (2, "Bfp4_b", "HiFi2"), (3, "Bfp4_b", "LoFi")],
)
def test_light_levels(level: int, form: str, fidelity: str) -> None:
    config = NumberConfig()
    config.enable_amp_light(level)
    assert config.rules() == (NumberRule(op_type=PRODUCTS, weights={1: form}, fidelity=fidelity),)
    with pytest.raises(PyBudaError, match="levels are 1, 2 and 3"):
        config.enable_amp_light(4)
