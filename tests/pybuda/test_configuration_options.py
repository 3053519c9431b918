"""Options of a configuration that a program makes, and what it says that fits no operator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module

import pytest
import torch

import pybuda
from pybuda import DataFormat, PyBudaError, query
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


@pytest.mark.parametrize(
    ("predicate", "told"),
    [
        (query.op_type("matmull"), r"op_type\('matmull'\) \(did you mean 'matmul'\?\)"),
        (query.op_type("mat(mul"), r"\(did you mean 'matmul'\?\)"),
        (query.name_regex("laier"), r"name_regex\('laier'\) \(did you mean 'layer'\?\)"),
        (
            query.op_type("matmul") & query.name_regex("laier").negate() & query.op_type("sofmax"),
            r"\(did you mean 'layer'\?\)",
        ),
        (query.layer_regex("else"), r"layer_regex\('else'\); it has no effect"),
    ],
)
def test_a_predicate_that_holds_for_nothing_is_told_with_what_may_be_meant(
    predicate: query.NodePredicateBuilder, told: str
) -> None:
    pybuda.set_epoch_break(predicate)
    layer = torch.nn.Sequential()
    layer.add_module("layer", torch.nn.Linear(3, 2))
    module = pybuda.PyTorchModule("module", layer)
    with pytest.warns(UserWarning, match=f"no operator that was compiled fits .*{told}"):
        pybuda.run_inference(module, inputs=[(torch.ones(1, 3),)]).get()


@pytest.mark.parametrize("own", [True, False])
def test_a_device_compiled_by_hand_tells_names_that_fit_nothing(own: bool) -> None:
    """Those of the configuration that it is compiled by, too."""
    config = CompilerConfig() if own else pybuda.config._get_global_compiler_config()
    config.place_on_new_epoch("wait")
    device = pybuda.TTDevice("tt", module=pybuda.PyTorchModule("layer", torch.nn.Linear(3, 2)))
    with pytest.warns(UserWarning, match=r"fits 'wait' \(did you mean 'weight'\?\); it has no"):
        device.compile_for((torch.ones(1, 3),), compiler_cfg=config if own else None)


@pytest.mark.parametrize("make", [query.name_regex, query.layer_regex, query.op_type])
def test_predicates_are_of_words(make: Callable[[object], object]) -> None:
    for wrong in (None, 3, b"matmul"):
        with pytest.raises(PyBudaError, match=r"is no (regular expression: it is no text|type of)"):
            make(wrong)


@pytest.mark.parametrize(
    ("path", "wrong", "meant"),
    [
        ("op", "Matmull", "Matmul"),
        ("op.nn", "Lineer", "Linear"),
        ("op.loss", "L1Los", "L1Loss"),
        ("optimizers", "SDG", "SGD"),
        ("query", "name_rgex", "name_regex"),
        ("verify", "verify_modul", "verify_module"),
        ("schedulers", "LearningRateSchedule", "LearningRateScheduler"),
    ],
)
def test_misspelt_names_of_modules_are_answered(path: str, wrong: str, meant: str) -> None:
    module = import_module(f"pybuda.{path}")
    with pytest.raises(AttributeError, match=rf"has no '{wrong}' \(did you mean '{meant}'\?\)"):
        getattr(module, wrong)
