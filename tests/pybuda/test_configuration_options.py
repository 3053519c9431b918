"""Options of a configuration that a program makes, and rules that say nothing of an operator."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

import pybuda
from pybuda import DataFormat, PyBudaError
from pybuda.config import CompilerConfig


def test_a_configuration_of_its_own_takes_options() -> None:
    """Those without an effect warn, as they do where they are set."""
    with pytest.warns(UserWarning, match="enable_t_streaming=True: on hardware .* no effect here"):
        config = CompilerConfig(enable_t_streaming=True, default_df_override=DataFormat.Bfp8_b)
    assert config.default_df_override is DataFormat.Bfp8_b
    assert not CompilerConfig().settings().number_rules
    with pytest.raises(PyBudaError, match=r"no 'enable_t_streamin' \(did you mean 'enable_t_str"):
        CompilerConfig(enable_t_streamin=True)
    for name, instead in (("loopback_outputs", "push"), ("amp_properties", "call configure_mixed")):
        with pytest.raises(PyBudaError, match=f"no '{name}': {instead}"):
            CompilerConfig(**{name: {}})


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"op_type": "softmax"}, "Softmax"),
        ({"op_type": "matmul", "input_df": {7: (DataFormat.Bfp2_b, True)}}, "operands"),
        ({"op_type": "matmul"}, None),
        ({"epoch_type": "bwd"}, None),  # there may be training yet
    ],
)
def test_a_rule_that_says_nothing_of_an_operator_is_told(rule: dict, told: str | None) -> None:
    settings = {} if "input_df" in rule else {"output_df": DataFormat.Bfp8_b}
    pybuda.configure_mixed_precision(**rule, **settings)
    words = pytest.warns(UserWarning, match=f"no operator that was compiled fits the rule .*{told}")
    with nullcontext() if told is None else words:
        module = pybuda.PyTorchModule("layer", torch.nn.Linear(3, 2))
        pybuda.run_inference(module, inputs=[(torch.ones(1, 3),)]).get()
