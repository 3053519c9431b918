"""Which optimizer updates what, and what is refused."""

import numpy as np
import onnx_ir as ir
import pytest
from step_machine import StepMachine

from sambac.errors import CompileError
from sambac.graph.editor import Editor
from sambac.optimizers import SGD, AdamW, Optimizer
from sambac.training.selection import assign, optimizer_names
from sambac.training.step import StepOptions, add_step


def _values(*names: str, dtype: ir.DataType = ir.DataType.FLOAT) -> dict[str, ir.Value]:
    return {name: ir.val(name, dtype, (2,)) for name in names}


def _groups(*optimizers: Optimizer) -> dict[str, tuple[str, ...]]:
    groups = assign(optimizers, _values("enc.w", "enc.b", "head.w"))
    return {group.name: group.parameters for group in groups}


def test_the_narrowest_pattern_wins() -> None:
    assert _groups(SGD(), AdamW(params=("enc.*",)), AdamW(params=("enc.b",), name="bias")) == {
        "sgd": ("head.w",),
        "adamw": ("enc.w",),
        "bias": ("enc.b",),
    }


def test_names_of_one_kind_are_numbered() -> None:
    names = optimizer_names((AdamW(), SGD(), AdamW(name="x"), AdamW()))
    assert names == ("adamw.0", "sgd", "x", "adamw.1")


def test_a_name_with_brackets_matches_itself() -> None:
    groups = assign((SGD(params=("w[0]",)),), _values("w[0]", "w0"))
    assert groups[0].parameters == ("w[0]",)


def test_every_mistake_is_named_at_once() -> None:
    values = {**_values("enc.w", "head.w"), **_values("table", dtype=ir.DataType.INT64)}
    optimizers = (
        SGD(params=("enc.*", "haed.w"), name="x"),
        AdamW(params=("*.w",), name="x"),
    )
    with pytest.raises(CompileError) as caught:
        assign(optimizers, values)
    message = str(caught.value)
    assert "Two optimizers are called 'x'" in message
    assert "'table' is of type int64" in message
    assert "'haed.w' of the optimizer x matches no trained parameter (did you mean 'head.w'?)" in (
        message
    )
    assert "'enc.w' is matched by x and x alike" in message


def test_an_optimizer_with_nothing_left_is_told() -> None:
    weights = {"w": np.ones(2, "f")}
    machine = StepMachine(weights, StepOptions((SGD(), AdamW(params=("w",)))))
    assert machine.parts.warnings == (
        "The optimizer sgd updates nothing: others match its parameters more narrowly.",
    )
    assert "sgd.lr" not in {argin.name for argin in machine.parts.argins}


@pytest.mark.parametrize("norm", [0.0, -1.0, float("nan"), float("inf")])
def test_a_norm_to_clip_to_is_above_zero(norm: float) -> None:
    with pytest.raises(CompileError, match="max_grad_norm is"):
        StepMachine({"w": np.ones(2, "f")}, StepOptions(max_grad_norm=norm))


def test_a_name_that_the_model_uses_is_refused() -> None:
    weights = {"w": np.ones(2, "f"), "w__grad": np.ones(2, "f")}
    with pytest.raises(CompileError, match="needs the name 'w__grad'"):
        StepMachine(weights, StepOptions())


def test_gradients_that_serve_elsewhere_are_copied_not_renamed() -> None:
    """Two parameters may share a gradient, and a gradient may be an input or a public output."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23}, name="step")
    model = ir.Model(graph, ir_version=10)
    b = Editor(model)
    names = ("one", "two", "three", "four")
    one, *_ = (b.input(name, ir.DataType.FLOAT, (2,)) for name in names)
    seed = b.input("y__grad", ir.DataType.FLOAT, (2,))
    shared, public = b.op("Neg", seed), b.named(one, "public")
    graph.outputs.append(public)
    gradients = dict(zip(names, (shared, shared, seed, public), strict=True))
    add_step(model, gradients, StepOptions())
    assert [value.name for value in graph.outputs] == [
        "public",
        "one__grad",
        "two__grad",
        "three__grad",
        "four__grad",
    ]
    assert seed.name == "y__grad"


def test_the_class_of_all_optimizers_is_none() -> None:
    with pytest.raises(CompileError, match=r"give one of them, such as SGD\(\)"):
        Optimizer()
