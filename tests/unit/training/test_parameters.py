"""What counts as a parameter, and how parameters become inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from pef.symbols import SymbolKind
from sambac.errors import CompileError
from sambac.facts import Roles
from sambac.training.parameters import adopt_states, frozen_by, roles_of, take_parameters

Parse = Callable[[str], ir.Model]

NORMALIZED = """
g (float[2,3] x) => (float[2,3] y)
<float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] s = {1,1,1}, float[3] b = {0,0,0},
 float[3] mean = {0,0,0}, float[3] var = {1,1,1}, float low = {0}, float[1] unread = {0},
 int64[1] axis = {0}>
{ h = MatMul(x, w)  n = BatchNormalization(h, s, b, mean, var)
  c = Clip(n, low)  r = Unsqueeze(c, axis)  y = Squeeze(r, axis) }"""


def test_what_an_onnx_file_trains(parse: Parse) -> None:
    """Statistics are buffers; settings, scalars, integers and what nobody reads are neither."""
    roles = roles_of(parse(NORMALIZED))
    assert roles.parameters == ("w", "s", "b")
    assert roles.buffers == ("mean", "var")


def test_states_become_inputs_with_their_content(parse: Parse) -> None:
    model = parse(NORMALIZED)
    roles = frozen_by(roles_of(model), ["s"])
    found = take_parameters(model, roles)
    assert [value.name for value in model.graph.inputs] == ["x", "w", "s", "b", "mean", "var"]
    assert set(model.graph.initializers) == {"low", "unread", "axis"}
    assert found.trained == ("w", "b")
    assert found.states["mean"].kind is SymbolKind.BUFFER
    content = found.states["w"].content
    assert content is not None
    np.testing.assert_array_equal(content.numpy(), np.arange(1, 10).reshape(3, 3))


def test_the_evaluation_has_the_states_as_inputs_too(parse: Parse) -> None:
    model, evaluation = parse(NORMALIZED), parse(NORMALIZED)
    states = take_parameters(model, roles_of(model)).states
    adopt_states(evaluation, states)
    assert [v.name for v in evaluation.graph.inputs] == [v.name for v in model.graph.inputs]


def test_patterns_freeze_tied_names_too() -> None:
    roles = Roles(parameters=("a.w", "a.b", "c.w"), aliases={"d.w": "c.w"})
    assert frozen_by(roles, ["d.*"]).frozen == {"c.w"}
    assert frozen_by(roles, ["a.*"]).frozen == {"a.w", "a.b"}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a.v", "e.*"], r"'a\.v' to freeze matches no parameter.*'e\.\*' to freeze matches no"),
        (["*"], "every parameter is frozen"),
    ],
)
def test_patterns_that_help_nobody(patterns: list[str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        frozen_by(Roles(parameters=("a.w", "a.b")), patterns)


def test_a_model_without_parameters_cannot_be_trained() -> None:
    with pytest.raises(CompileError, match="the model has no parameters"):
        frozen_by(Roles(), [])


def test_whole_numbers_cannot_be_trained_but_be_frozen(parse: Parse) -> None:
    text = "g (int64[2] x) => (int64[2] y) <int64[2] w = {1, 2}> { y = Add(x, w) }"
    with pytest.raises(CompileError, match=r"not 'w' \(INT64\); freeze them"):
        take_parameters(parse(text), Roles(parameters=("w",)))
    found = take_parameters(parse(text), Roles(parameters=("w",), frozen=frozenset({"w"})))
    assert found.trained == ()


@pytest.mark.parametrize(("first", "trained"), [("0", False), ("0.5", True)])
def test_zeros_that_a_layer_begins_with_are_no_weight(
    parse: Parse, first: str, trained: bool
) -> None:
    model = parse(f"""g (float[3,2,4] x, float[1,6,4] w, float[1,6,2] r) => (float[3,1,2,2] y)
<float[1,2,2] h = {{{first}, 0, 0, 0}}> {{ y = GRU<hidden_size=2>(x, w, r, "", "", h) }}""")
    assert roles_of(model).parameters == (("h",) if trained else ())


@pytest.mark.parametrize(
    ("dtype", "number", "trained"),
    [
        (np.float32, -np.inf, False),
        (np.float32, np.finfo(np.float32).min, False),
        (np.float32, -1e9, False),
        (np.float32, 1e8, True),
        (np.float16, np.finfo(np.float16).min, False),
        (np.float16, -1e4, True),
        (np.float64, np.nan, True),
    ],
)
def test_what_masks_is_no_weight(
    parse: Parse, dtype: type[np.floating], number: float, trained: bool
) -> None:
    model = parse("g (float[2,2] x) => (float[2,2] y) { y = Add(x, m) }")
    numbers = np.array([[0, number], [0, 0]], dtype)
    mask = ir.val("m", const_value=ir.Tensor(numbers, name="m"))
    model.graph.node(0).replace_input_with(1, mask)
    model.graph.register_initializer(mask)
    assert roles_of(model).parameters == (("m",) if trained else ())
