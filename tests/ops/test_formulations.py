"""Every formulation of every choice point gives what the others give, wherever it says it fits.

A new formulation is tested by being in the table; a new choice point needs sizes here, and what
computes it in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from sambac.errors import InternalError
from sambac.graph.decisions import Decisions
from sambac.graph.editor import Editor
from sambac.ops.gradients import filters
from sambac.ops.gradients.choice_points import CHOICE_POINTS
from sambac.ops.gradients.convolution_sizes import Convolution
from sambac.ops.gradients.formulations import AnyPoint, ChoicePoint, Formulation, parse_sizes
from sambac.ops.gradients.products import MatrixProduct
from sambac.ops.gradients.recurrent_layer import Recurrence
from sambac.tuning.host import block_of_channels, empty_model
from sambac.tuning.measuring import candidate_model

CONVOLUTIONS = [
    "image 2x3x6x5, signal 2x4x6x5, kernel 3x3, pads 1x1",
    "image 5x2x4x7, signal 5x3x3x7, kernel 2x3, strides 2x1, pads 1x1",
    "image 5x2x4x7, signal 5x3x5x7, kernel 2x3, pads 1x1",
    "image 1x16x2x2, signal 1x24x2x2, kernel 3x3, pads 1x1",
    "image 5x8x2x2, signal 5x16x2x2, kernel 3x3, pads 1x1",
    "image 3x5x9x8, signal 3x7x3x4, kernel 4x2, strides 2x3, pads 0x2",
    "image 2x4x9x11, signal 2x3x9x7, kernel 3x3, dilations 2x3, pads 2x1",
    "image 2x16x7x6, signal 2x16x3x2, kernel 3x3, dilations 2x2",
    "image 2x4x7x5, signal 2x6x4x3, kernel 3x3, strides 2x2, pads 1x1, group 2",
    "image 2x6x7x5, signal 2x6x7x5, kernel 3x3, pads 1x1, group 6",
    "image 2x8x7x6, signal 2x8x4x6, kernel 3x3, strides 2x1, pads 1x1, group 8",
    "image 2x8x5x5, signal 2x16x5x5, kernel 3x3, pads 1x1, group 8",
    "image 3x5x4x3, signal 3x2x4x3, kernel 1x1",
    "image 3x5x5x4, signal 3x2x3x2, kernel 1x1, strides 2x2",
    "image 4x3x5x5, signal 4x2x1x1, kernel 5x5",
    "image 2x16x5x5, signal 2x8x3x3, kernel 3x3",
    "image 3x4x9, signal 3x6x9, kernel 3, pads 1",
    "image 3x4x6x8, signal 3x5x3x4, kernel 2x2, strides 2x2",
    "image 3x4x6x9, signal 3x5x3x3, kernel 2x3, strides 2x3",
    "image 2x12x7x6, signal 2x14x7x6, kernel 3x3, pads 1x1",
    "image 2x32x7x6, signal 2x24x5x4, kernel 3x3",
    "image 2x3x7x6, signal 2x24x4x3, kernel 3x3, strides 2x2, pads 1x1",
]

STRIDED = [
    "image 2x16x8x7, signal 2x32x4x4, kernel 3x3, strides 2x2, pads 1x1",
    "image 2x32x4x6, signal 2x16x2x3, kernel 4x4, strides 2x2, pads 1x1",
    "image 2x16x8x8, signal 2x16x4x4, kernel 3x3, strides 2x2, pads 1x1, group 16",
    "image 2x16x9, signal 2x16x4, kernel 4, strides 2, pads 1",
]
VOLUMES = [
    "image 2x16x5x6x6, signal 2x16x3x6x6, kernel 3x3x3, strides 2x1x1, pads 1x1x1",
    "image 2x3x6x6x4, signal 2x16x4x3x2, kernel 2x3x3, strides 1x2x2, dilations 2x1x1, pads 0x1x1",
]

PRODUCTS = [
    "rows 70, terms 80, columns 90",
    "rows 16, terms 80, columns 256, turned 0x1",
    "rows 200, terms 150, columns 24, turned 1x0",
    "rows 64, terms 64, columns 128, turned 1x1",
    "rows 2, terms 3, columns 4",
]


def filter_gradient(of: Convolution, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.convolution_backward(
        dy, x, torch.zeros(of.filters).double(), None, *_geometry(of), [False, True, False]
    )[1]


def data_gradient(of: Convolution, dy: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.convolution_backward(
        dy, torch.zeros(of.image).double(), w, None, *_geometry(of), [True, False, False]
    )[0]


def _geometry(of: Convolution) -> tuple[object, ...]:
    window = of.window
    axes = len(window.kernel)
    plain = (False, [0] * axes)
    return (window.strides, window.begins, window.dilations, *plain, of.group)


def convolution(of: Convolution, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    strides, pads, dilations, *_ = _geometry(of)
    return torch.ops.aten.convolution(x, w, None, strides, pads, dilations, *_geometry(of)[3:])


def matrix_product(of: MatrixProduct, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    a, b = (x.T if turned else x for x, turned in zip((left, right), of.turned, strict=True))
    return a @ b


RECURRENCES = [
    "sequence 4x3x5, hidden 2",
    "sequence 1x2x3, hidden 4",
    "sequence 5x16x3, hidden 6, directions 2",
    "sequence 3x1x1, hidden 1, directions 2",
]
ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
"""PyTorch's gates, each as a number of ONNX's."""


def recurrent_layer(of: Recurrence, *operands: torch.Tensor) -> torch.Tensor:
    """Y of PyTorch's layer and its gradients, flat."""
    *given, dy = operands
    leaves = [each.clone().requires_grad_() for each in given]
    x, w, r, b, *states = leaves

    def gates(value: torch.Tensor) -> torch.Tensor:
        parts = value.chunk(len(ORDER[of.op_type]))
        return torch.cat([parts[number] for number in ORDER[of.op_type]])

    both = of.directions == 2
    layer = getattr(torch.nn, of.op_type)(of.inputs, of.hidden, bidirectional=both).double()
    weights = {}
    for d, end in enumerate(("", "_reverse")[: of.directions]):
        wb, rb = b[d].chunk(2)
        for name, value in (
            ("weight_ih", w[d]),
            ("weight_hh", r[d]),
            ("bias_ih", wb),
            ("bias_hh", rb),
        ):
            weights[f"{name}_l0{end}"] = gates(value)
    start = tuple(states) if of.op_type == "LSTM" else states[0]
    y, _ = torch.func.functional_call(layer, weights, (x, start))
    apart = y.unflatten(2, (of.directions, of.hidden)).transpose(1, 2)
    found = torch.autograd.grad((apart * dy).sum(), leaves)
    return torch.cat([each.detach().flatten() for each in (apart, *found)])


SIZES: Mapping[str, list[str]] = {
    "GRU layer": RECURRENCES,
    "LSTM layer": RECURRENCES,
    "filter gradient": CONVOLUTIONS,
    "data gradient": [*CONVOLUTIONS, *STRIDED, *VOLUMES],
    "convolution": [*CONVOLUTIONS, *VOLUMES],
    "matrix product": PRODUCTS,
}
EXACT: Mapping[str, Callable[..., torch.Tensor]] = {
    "GRU layer": recurrent_layer,
    "LSTM layer": recurrent_layer,
    "filter gradient": filter_gradient,
    "data gradient": data_gradient,
    "convolution": convolution,
    "matrix product": matrix_product,
}
MAY_BE_NOTHING: Mapping[str, tuple[str, ...]] = {
    "GRU layer": ("batch", "hidden"),
    "LSTM layer": ("batch", "hidden"),
    "filter gradient": ("batch", "channels"),
    "data gradient": ("batch", "channels"),
    "convolution": ("batch", "channels"),
    "matrix product": ("rows", "terms", "columns"),
}
FORMS = [(point, form) for point in CHOICE_POINTS.values() for form in point.forms]


def posed(point: AnyPoint, sizes: str) -> Any:
    return point.pose(parse_sizes(sizes), ir.DataType.FLOAT)


@cache
def modelled(point: str, form: str, sizes: str, block: int = 0) -> bytes:
    """Return the model with which a formulation is measured."""
    known = CHOICE_POINTS[point]
    return candidate_model(known, known.form(form), posed(known, sizes), block)


def computed(point: AnyPoint, model: bytes, problem: Any) -> np.ndarray:
    """Run a model on the operands of `operands`."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return session.run(None, dict(zip(names, operands(point, problem), strict=True)))[0]


def operands(point: AnyPoint, problem: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = point.operands(problem)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_every_choice_point_is_tested() -> None:
    assert CHOICE_POINTS.keys() == SIZES.keys() == EXACT.keys() == MAY_BE_NOTHING.keys()


@pytest.mark.parametrize(("point", "form"), FORMS, ids=lambda each: each.name)
def test_formulations_agree(point: AnyPoint, form: Formulation) -> None:
    """With what is exact, as portable programs have them and on blocks of this host's channels."""
    fitted, blocks = 0, {0, block_of_channels()}
    for sizes in SIZES[point.name]:
        problem = posed(point, sizes)
        if not form.fits(problem):
            continue
        fitted += 1
        given = [torch.from_numpy(array).double() for array in operands(point, problem)]
        expected = EXACT[point.name](problem, *given).numpy()
        limit = 1e-5 * np.abs(expected).max()
        for model in {modelled(point.name, form.name, sizes, block) for block in blocks}:
            made = computed(point, model, problem)
            assert made.shape == point.result(problem)
            np.testing.assert_allclose(made, expected, rtol=1e-4, atol=limit, err_msg=sizes)
    assert fitted, "sizes on which it is tried"


@pytest.mark.parametrize(
    ("point", "form"), [each for each in FORMS if each[1].takes_bias], ids=lambda each: each.name
)
def test_biases_are_added_to_each_channel(point: AnyPoint, form: Formulation) -> None:
    problem = next(
        of for of in (posed(point, s) for s in reversed(SIZES[point.name])) if form.fits(of)
    )
    result = point.result(problem)
    model = empty_model()
    b = Editor(model)
    shapes = [*point.operands(problem), result[1:2]]
    given = [b.input(f"x{i}", ir.DataType.FLOAT, shape) for i, shape in enumerate(shapes)]
    model.graph.outputs.append(point.write(b, form, problem, given))
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    bias = np.arange(result[1], dtype=np.float32)
    known = operands(point, problem)
    feeds = {f"x{i}": array for i, array in enumerate([*known, bias])}
    expected = EXACT[point.name](
        problem, *(torch.from_numpy(array).double() for array in known)
    ).numpy()
    expected += bias.reshape(-1, *(1 for _ in result[2:]))
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("point", "form"), FORMS, ids=lambda each: each.name)
def test_formulations_are_portable(point: AnyPoint, form: Formulation) -> None:
    """What a measurement chooses is in the program for every host."""
    for sizes in SIZES[point.name]:
        if form.fits(posed(point, sizes)):
            model = onnx.load_from_string(modelled(point.name, form.name, sizes))
            assert {node.domain for node in model.graph.node} <= {"", "com.microsoft"}


@pytest.mark.parametrize("point", CHOICE_POINTS.values(), ids=lambda each: each.name)
def test_the_last_formulation_is_right_for_all(point: AnyPoint) -> None:
    problems = [posed(point, sizes) for sizes in SIZES[point.name]]
    assert all(point.forms[-1].fits(problem) for problem in problems)
    assert all(point.guess(problem).fits(problem) for problem in problems)
    assert len({form.name for form in point.forms}) == len(point.forms)


@pytest.mark.parametrize("point", CHOICE_POINTS.values(), ids=lambda each: each.name)
def test_sizes_make_the_same_problem_again(point: AnyPoint) -> None:
    for sizes in SIZES[point.name]:
        question = point.question(posed(point, sizes))
        assert question == (point.name, "float32", sizes)
        assert set(parse_sizes(sizes)) <= set(point.fields)


@pytest.mark.parametrize("pieces", [1, 700])
def test_columns_in_pieces_are_the_same(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    point = CHOICE_POINTS["filter gradient"]
    form, problem = point.form("runs of channels"), posed(point, CONVOLUTIONS[0])
    whole = computed(point, candidate_model(point, form, problem), problem)
    monkeypatch.setattr(filters, "_PIECE", pieces)
    apart = computed(point, candidate_model(point, form, problem), problem)
    np.testing.assert_allclose(apart, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("point", "sizes", "name"),
    [
        (
            "filter gradient",
            "image 16x256x2x2, signal 16x256x2x2, kernel 3x3, pads 1x1",
            "runs of images, swapped",
        ),
        (
            "filter gradient",
            "image 16x64x8x8, signal 16x64x8x8, kernel 3x3, pads 1x1",
            "channels filtered by signals",
        ),
        (
            "filter gradient",
            "image 4x64x64x64, signal 4x32x64x64, kernel 3x3, pads 1x1",
            "signals filtered by channels",
        ),
        (
            "filter gradient",
            "image 4x3x64x64, signal 4x32x64x64, kernel 3x3, pads 1x1",
            "all taps of an image",
        ),
        (
            "data gradient",
            "image 32x64x8x8, signal 32x128x4x4, kernel 4x4, strides 2x2, pads 1x1",
            "phases",
        ),
        (
            "data gradient",
            "image 16x256x4x4, signal 16x512x2x2, kernel 3x3, strides 2x2, pads 1x1",
            "columns of all images",
        ),
        ("matrix product", "rows 16, terms 1024, columns 1024, turned 0x1", "transposed product"),
        ("matrix product", "rows 32, terms 784, columns 128, turned 0x1", "transposed product"),
        ("matrix product", "rows 32, terms 16384, columns 64, turned 0x1", "transposed product"),
        ("matrix product", "rows 48, terms 16384, columns 32, turned 0x1", "as it lies"),
        ("matrix product", "rows 4, terms 256, columns 256, turned 0x1", "as it lies"),
        ("matrix product", "rows 128, terms 512, columns 512, turned 0x1", "as it lies"),
        ("matrix product", "rows 16, terms 1024, columns 1024", "as it lies"),
        (
            "matrix product",
            "rows 128, terms 2048, columns 512, turned 1x0",
            "left operand turned first",
        ),
        (
            "matrix product",
            "rows 256, terms 1024, columns 64, turned 1x0",
            "transposed product, right operand turned first",
        ),
        ("LSTM layer", "sequence 128x8x64, hidden 64, directions 2", "both directions at once"),
        ("LSTM layer", "sequence 32x32x128, hidden 64", "rows"),
        ("LSTM layer", "sequence 32x16x256, hidden 256", "columns"),
    ],
)
def test_sizes_choose_what_was_measured_to_be_fast(point: str, sizes: str, name: str) -> None:
    asked = CHOICE_POINTS[point]
    assert asked.guess(posed(asked, sizes)).name == name


@pytest.mark.parametrize("name", CHOICE_POINTS)
def test_of_what_has_no_elements_nothing_is_chosen(name: str) -> None:
    point = CHOICE_POINTS[name]
    for size in MAY_BE_NOTHING[name]:
        problem = replace(posed(point, SIZES[name][0]), **{size: 0})
        assert point.guess(problem) is point.fitting(problem)[-1]


def test_what_was_measured_wins_over_the_guess_and_both_are_noted() -> None:
    point = CHOICE_POINTS["filter gradient"]
    problem = posed(point, CONVOLUTIONS[0])
    question = point.question(problem)
    guess = point.guess(problem).name
    other = next(form.name for form in point.fitting(problem) if form.name != guess)
    for measured, by in (({}, "guess"), ({question: other}, "measurement")):
        decisions = Decisions(measured)
        b = Editor(empty_model(), decisions=decisions)
        x, dy = (
            b.input(n, ir.DataType.FLOAT, s)
            for n, s in zip("xy", point.operands(problem), strict=True)
        )
        point.solve(b, problem, x, dy)
        (choice,) = decisions.choices()
        assert (choice.formulation, choice.by) == (measured.get(question, guess), by)
        assert (choice.operator, choice.dtype, choice.sizes) == question


def test_the_first_of_equals_is_taken_and_none_is_an_error() -> None:
    def form(name: str, fits: bool, cost: float) -> Formulation:
        return Formulation(name, lambda _: fits, lambda _: cost, lambda b, _: b.op("Identity", 0.0))

    forms = (form("wrong", False, 0), form("a", True, 2), form("b", True, 1), form("c", True, 1))
    known = CHOICE_POINTS["filter gradient"]
    problem = posed(known, CONVOLUTIONS[0])
    point = ChoicePoint("x", forms, (), known.pose, known.operands, known.result)
    assert point.guess(problem).name == "b"
    none = ChoicePoint("x", forms[:1], (), known.pose, known.operands, known.result)
    with pytest.raises(InternalError, match="no formulation of the x fits"):
        none.guess(problem)
    decided = Decisions({point.question(problem): "wrong"})
    with pytest.raises(InternalError, match="'wrong' is not right for"):
        point.solve(Editor(empty_model(), decisions=decided), problem)
