"""Every formulation of a gradient gives what torch gives, wherever it says that it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from sambac.errors import InternalError
from sambac.graph.editor import Editor
from sambac.ops.gradients import filters
from sambac.ops.gradients.filters import FilterGradient
from sambac.ops.gradients.formulations import Formulation, cheapest
from sambac.ops.gradients.rules import reshape
from sambac.ops.gradients.windows import Window

FILTERS = {form.name: form for form in filters.FORMS}


@dataclass(frozen=True)
class Shape:
    """A convolution of [batch, channels, *image] into `maps` channels."""

    batch: int
    channels: int
    image: tuple[int, int]
    maps: int
    kernel: tuple[int, int] = (3, 3)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (1, 1)
    group: int = 1

    @property
    def positions(self) -> tuple[int, int]:
        axes = zip(self.image, self.pads, self.kernel, self.dilations, self.strides, strict=True)
        rows, columns = ((i + 2 * p - (k - 1) * d - 1) // s + 1 for i, p, k, d, s in axes)
        return rows, columns

    @property
    def window(self) -> Window:
        return Window(
            self.kernel, self.strides, self.dilations, self.pads, self.image, self.positions
        )


SHAPES = [
    Shape(2, 3, (6, 5), 4),
    Shape(5, 2, (4, 7), 3, strides=(2, 1), kernel=(2, 3)),
    Shape(1, 16, (2, 2), 24),
    Shape(3, 5, (9, 8), 7, strides=(2, 3), pads=(0, 2), kernel=(4, 2)),
    Shape(2, 4, (9, 11), 3, dilations=(2, 3), pads=(2, 1)),
    Shape(2, 4, (7, 5), 6, group=2, strides=(2, 2)),
    Shape(2, 6, (7, 5), 6, group=6),
    Shape(2, 8, (7, 6), 8, group=8, strides=(2, 1)),
    Shape(2, 8, (5, 5), 16, group=8),
    Shape(3, 5, (4, 3), 2, kernel=(1, 1), pads=(0, 0)),
    Shape(3, 5, (5, 4), 2, kernel=(1, 1), pads=(0, 0), strides=(2, 2)),
    Shape(4, 3, (5, 5), 2, kernel=(5, 5), pads=(0, 0)),
]


def computed(
    build: Callable[[Editor, ir.Value, ir.Value], ir.Value], x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """Run what `build` puts between two inputs and an output."""
    imports = {"": 23, "com.microsoft": 1}
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports=imports), ir_version=10)
    b = Editor(model)
    first, second = (b.input(n, ir.DataType.FLOAT, a.shape) for n, a in (("x", x), ("y", y)))
    model.graph.outputs.append(build(b, first, second))
    session = ort.InferenceSession(
        ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x, "y": y})[0]


def filters_by(form: Formulation[FilterGradient], shape: Shape) -> np.ndarray | None:
    """Return the gradient of filters by one formulation; None where it does not fit."""
    x, dy = operands(shape)
    fits = []

    def build(b: Editor, image: ir.Value, signal: ir.Value) -> ir.Value:
        asked = FilterGradient(image, signal, shape.window, shape.group)
        fits.append(form.fits(asked))
        whole = (shape.maps, shape.channels // shape.group, *shape.kernel)
        return reshape(b, form.build(b, asked), whole) if fits[0] else b.op("Identity", image)

    made = computed(build, x, dy)
    return made if fits[0] else None


def operands(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((shape.batch, shape.channels, *shape.image), dtype=np.float32)
    dy = rng.standard_normal((shape.batch, shape.maps, *shape.positions), dtype=np.float32)
    return x, dy


@pytest.mark.parametrize("name", FILTERS)
def test_formulations_of_filter_gradients_agree_with_torch(name: str) -> None:
    fitted = 0
    for shape in SHAPES:
        made = filters_by(FILTERS[name], shape)
        if made is None:
            continue
        fitted += 1
        x, dy = (torch.from_numpy(item).double() for item in operands(shape))
        expected = torch.nn.grad.conv2d_weight(
            x,
            made.shape,
            dy,
            shape.strides,
            shape.pads,
            shape.dilations,
            shape.group,
        ).numpy()
        limit = 1e-5 * np.abs(expected).max()
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=limit, err_msg=str(shape))
    assert fitted, "a shape on which it is tried"


@pytest.mark.parametrize("pieces", [1, 700])
def test_columns_in_pieces_are_the_same(pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    form, shape = FILTERS["runs of channels"], SHAPES[0]
    whole = filters_by(form, shape)
    monkeypatch.setattr(filters, "_PIECE", pieces)
    apart = filters_by(form, shape)
    assert whole is not None
    assert apart is not None
    np.testing.assert_allclose(apart, whole, rtol=1e-4, atol=1e-5)


def asked(*, batch: int, channels: int, side: int, maps: int, stride: int = 1) -> FilterGradient:
    shape = Shape(batch, channels, (side, side), maps, strides=(stride, stride))
    float32 = ir.DataType.FLOAT
    image = ir.val("x", float32, (batch, channels, side, side))
    signal = ir.val("dy", float32, (batch, maps, *shape.positions))
    return FilterGradient(image, signal, shape.window)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"batch": 16, "channels": 256, "side": 2, "maps": 256}, "runs of images, swapped"),
        ({"batch": 16, "channels": 64, "side": 8, "maps": 64}, "runs of channels"),
        ({"batch": 4, "channels": 64, "side": 64, "maps": 32}, "tap by tap"),
        ({"batch": 4, "channels": 3, "side": 64, "maps": 32}, "all taps of an image"),
    ],
)
def test_sizes_choose_what_was_measured_to_be_fast(sizes: dict[str, int], name: str) -> None:
    assert cheapest(filters.FORMS, asked(**sizes)).name == name


def test_the_first_of_equals_is_taken_and_none_is_an_error() -> None:
    def form(name: str, fits: bool, cost: float) -> Formulation[int]:
        return Formulation(name, lambda _: fits, lambda _: cost, lambda b, _: b.op("Identity", 0.0))

    table = [form("wrong", False, 0), form("a", True, 2), form("b", True, 1), form("c", True, 1)]
    assert cheapest(table, 7).name == "b"
    with pytest.raises(InternalError, match="no formulation fits 7"):
        cheapest(table[:1], 7)
