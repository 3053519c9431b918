"""Losses: found among the outputs, or built on them."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest

from sambac.errors import CompileError
from sambac.training.losses import build_losses, parse_losses

Parse = Callable[[str], ir.Model]

TWO_HEADS = """
g (float[8,16] x, float[16,4] w) => (float[8,4] a, float[8,4] b)
{ loss = MatMul(x, w)  a = Identity(loss)  b = Tanh(a) }"""


def build(model: ir.Model, *wanted: str) -> tuple[str, ...]:
    public = tuple(str(value.name) for value in model.graph.outputs)
    return build_losses(model, parse_losses(wanted), public)


def inputs(model: ir.Model) -> dict[str, tuple[int, ...]]:
    return {str(value.name): tuple(value.shape or ()) for value in model.graph.inputs}


def test_the_only_scalar_is_the_loss(parse: Parse) -> None:
    model = parse(
        "g (float[8] x) => (float[8] y, float l) { y = Exp(x) l = ReduceSum<keepdims=0>(x) }"
    )
    assert build(model) == ("l",)


def test_without_a_scalar_somebody_has_to_say(parse: Parse) -> None:
    with pytest.raises(
        CompileError, match=r"this one has none; say which .* the outputs are a \(.*, b \("
    ):
        build(parse(TWO_HEADS))


def test_a_built_loss_is_an_output_and_its_target_an_input(parse: Parse) -> None:
    model = parse(TWO_HEADS)
    assert build(model, "cross_entropy:a,t") == ("loss",)
    assert [value.name for value in model.graph.outputs] == ["a", "b", "loss"]
    assert inputs(model)["t"] == (8,)


def test_losses_of_one_kind_have_names_of_their_own(parse: Parse) -> None:
    model = parse(TWO_HEADS)
    names = build(model, "mse:a,t", "mse:b,u", "cross_entropy:a,labels")
    assert names == ("mse", "mse_1", "cross_entropy")
    assert [value.name for value in model.graph.outputs] == ["a", "b", *names]
    assert {"t", "u", "labels"} <= set(inputs(model))


def test_losses_may_share_a_target(parse: Parse) -> None:
    model = parse(TWO_HEADS)
    build(model, "mse:a,t", "mse:b,t")
    assert list(inputs(model)) == ["x", "w", "t"]


def test_what_is_inside_gives_way(parse: Parse) -> None:
    model = parse("g (float[8] x) => (float[8] y) { t = Exp(x) loss = Neg(t) y = Tanh(loss) }")
    build(model, "mse:y,t")
    values = [str(value.name) for node in model.graph for value in node.outputs]
    values += inputs(model)
    assert len(values) == len(set(values))
    assert {"loss", "t"} <= set(values)


@pytest.mark.parametrize(
    ("shape", "labels"),
    [("8,4", (8,)), ("8,5,4", (8, 5)), ("8,4,5,6", (8, 5, 6))],
    ids=["rows", "tokens", "pixels"],
)
def test_where_the_classes_are(parse: Parse, shape: str, labels: tuple[int, ...]) -> None:
    model = parse(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Exp(x) }}")
    build(model, "cross_entropy:y,t")
    assert inputs(model)["t"] == labels


def test_given_labels_say_where_the_classes_are(parse: Parse) -> None:
    model = parse("g (float[8,4,5] x, int64[8,5] t) => (float[8,4,5] y) { y = Exp(x) }")
    assert build(model, "cross_entropy:y,t") == ("loss",)
    assert not any(node.op_type == "Reshape" for node in model.graph)


def test_every_mistake_is_named_at_once(parse: Parse) -> None:
    with pytest.raises(CompileError) as caught:
        build(parse(TWO_HEADS), "c", "mse:d,t", "mse:a,w")
    assert "there is no output 'c' to be the loss" in str(caught.value)
    assert "there is no output 'd' for mse" in str(caught.value)
    assert "the target 'w' is FLOAT [16, 4], expected FLOAT [8, 4] like 'a'" in str(caught.value)


def test_a_loss_takes_two_tensors() -> None:
    said = "'mse:a' needs two tensors, .* and names 1; give mse:PREDICTION,TARGET"
    with pytest.raises(CompileError, match=said):
        parse_losses(["mse:a"])
    with pytest.raises(CompileError, match="and names 1; give"):
        parse_losses(["mse:a,"])
    with pytest.raises(CompileError, match="and names 3; give"):
        parse_losses(["mse:a,b,c"])


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("crossentropy:", r"no kind of loss 'crossentropy' \(did you mean 'cross_entropy'\?\); k"),
        ("crossentropy:a,y", "no kind of loss 'crossentropy' .did you mean 'cross_entropy'"),
        ("MSE:a,b", "no kind of loss 'MSE' .did you mean 'mse'"),
        ("mse", "'mse' to be the loss, and a kind of loss needs the names of what it compares; ki"),
        ("nll", "no kind of loss 'nll'; kinds of loss are cross_entropy:LOGITS,LABELS and mse:"),
        (
            "output",
            r"be the loss \(did you mean 'output_0'\?\); the outputs are output_0 \(float32 ",
        ),
    ],
)
def test_what_is_neither_an_output_nor_a_loss(parse: Parse, wish: str, said: str) -> None:
    """Of two outputs that are spelled alike, the one that can be a loss is meant."""
    model = parse(
        """
g (float[8,4] x) => (float output_0, float[8,4] output_1) {
    output_0 = ReduceSum <keepdims = 0> (x)
    output_1 = Exp(x)
}"""
    )
    with pytest.raises(CompileError, match=said):
        build(model, wish)


@pytest.mark.parametrize(("name", "shape"), [("a", "[8, 4]"), ("b", "[8, 4]"), ("c", "[1, 2]")])
def test_a_loss_is_a_single_number(parse: Parse, name: str, shape: str) -> None:
    model = parse(
        """
g (float[8,16] x, float[16,4] w, float[1,2] v, float[1,1] u)
  => (float[8,4] a, float[8,4] b, float[1,2] c, float[1,1] d)
{ a = MatMul(x, w)  b = Tanh(a)  c = Exp(v)  d = Exp(u) }"""
    )
    with pytest.raises(CompileError) as caught:
        build(model, name)
    assert f"the output '{name}' is {shape}, a loss is a single number" in str(caught.value)
    assert f"(--loss mse:{name},TARGET)" in str(caught.value)
    assert build(model, "d") == ("d",)
