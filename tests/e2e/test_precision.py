"""Training and inference in bfloat16, beside torch with every rounding written out."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import sambac
import sambarun
from sambac.errors import CompileError
from sambac.opt import run_alone

BATCH, CLASSES, STEPS = 6, 4, 5


class _Round(torch.autograd.Function):
    """Rounds forward and leaves gradients as they are."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx: object, dy: torch.Tensor) -> torch.Tensor:
        return dy


class _RoundGradient(torch.autograd.Function):
    """Leaves values as they are and rounds gradients."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, dy: torch.Tensor) -> torch.Tensor:
        return dy.bfloat16().float()


class Network(nn.Module):
    """A convolution, an attention of one head, a layer and a loss; `mixed` rounds by hand."""

    def __init__(self, mixed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed = mixed
        self.filters = nn.Parameter(torch.randn(5, 2, 3, 3) / 4)
        self.query = nn.Parameter(torch.randn(5, 5) / 2)
        self.key = nn.Parameter(torch.randn(5, 5) / 2)
        self.out = nn.Parameter(torch.randn(80, CLASSES) / 9)
        self.shift = nn.Parameter(torch.randn(CLASSES))

    def product(self, function: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not self.mixed:
            return function(x, y)
        return _RoundGradient.apply(function(_Round.apply(x), _Round.apply(y)))

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.product(torch.nn.functional.conv2d, x, self.filters))
        x = x.flatten(2).transpose(1, 2)
        query, key = (self.product(torch.matmul, x, w) for w in (self.query, self.key))
        weights = torch.softmax(self.product(torch.matmul, query, key.transpose(1, 2)), -1)
        x = self.product(torch.matmul, weights, x).flatten(1)
        return nn.functional.cross_entropy(
            self.product(torch.matmul, x, self.out) + self.shift, label
        )


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(BATCH, 2, 6, 6, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def losses_here(precision: str, level: str = "O3") -> tuple[list[float], dict[str, np.ndarray]]:
    options = sambac.CompileOptions(
        train=True, optimizers=(sambac.SGD(lr=0.3),), precision=precision, level=level
    )
    program = sambac.compile(Network(), options, inputs=batches()[0])
    assert json.loads(program.producer.options)["precision"] == precision
    with sambarun.load(program) as executable:
        losses = [
            float(*executable.step({"x": x.numpy(), "label": label.numpy()}).values())
            for x, label in batches()
        ]
        return losses, dict(executable.state())


def losses_in_torch(mixed: bool) -> tuple[list[float], dict[str, np.ndarray]]:
    network = Network(mixed)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3)
    losses = []
    for x, label in batches():
        optimizer.zero_grad()
        loss = network(x, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in network.named_parameters()}


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """Return how far the parameters are apart, relative to their norm."""
    names = ("filters", "query", "key", "out", "shift")
    difference = sum(float(np.sum((one[name] - other[name]) ** 2)) for name in names)
    return (difference / sum(float(np.sum(other[name] ** 2)) for name in names)) ** 0.5


def test_mixed_training_rounds_what_products_multiply_and_nothing_else() -> None:
    losses, state = losses_here("mixed")
    expected, parameters = losses_in_torch(mixed=True)
    _, unrounded = losses_in_torch(mixed=False)
    apart = distance(unrounded, parameters)
    assert distance(state, parameters) < apart / 5
    np.testing.assert_allclose(losses, expected, rtol=2e-4)


def test_bfloat16_training_goes_the_same_way_with_other_digits() -> None:
    losses, state = losses_here("bfloat16")
    expected, parameters = losses_in_torch(mixed=False)
    assert all(loss == float(torch.tensor(loss).bfloat16()) for loss in losses)
    np.testing.assert_allclose(losses, expected, rtol=2e-2)
    assert 1e-5 < distance(state, parameters) < 2e-2
    assert any((a != torch.tensor(a).bfloat16().float().numpy()).any() for a in state.values())


@pytest.mark.parametrize("precision", ["mixed", "bfloat16"])
def test_the_numbers_do_not_depend_on_the_sections(precision: str) -> None:
    found = [losses_here(precision, level)[0] for level in ("O0", "O3")]
    np.testing.assert_allclose(*found, rtol=2e-3)


_OLD_AND_NEW = {  # by opset, operators that others say otherwise, and how opset 13 says them
    7: (
        "h = MatMul(x, w) d = Dropout(h) y = Softmax(d)",
        "h = MatMul(x, w) f = Flatten(h) s = Softmax(f) k = Shape(h) y = Reshape(s, k)",
    ),
    11: (
        "h = MatMul(x, w) u = Unsqueeze <axes = [0]> (h) y = ReduceSum <axes = [1]> (u)",
        """h = MatMul(x, w)
        a = Constant <value_ints = [0]> () u = Unsqueeze (h, a)
        b = Constant <value_ints = [1]> () y = ReduceSum (u, b)""",
    ),
}


def _one_product(opset: int, body: str, options: sambac.CompileOptions) -> np.ndarray:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3,4] x) => (float[a,b,c] y)'
        f" <float[4,2] w = {{1.01, 2.02, 3.03, 4.04, 5.05, 6.06, 7.07, 8.08}}> {{ {body} }}"
    )
    program = sambac.compile(model, options)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32) / 9
    (found,) = sambarun.load(program).run({"x": x}).values()
    return np.array(found)


@pytest.mark.parametrize("opset", _OLD_AND_NEW)
@pytest.mark.parametrize(
    "options",
    [
        sambac.CompileOptions(precision="bfloat16"),
        sambac.CompileOptions(
            number_rules=(sambac.NumberRule(op_type=("MatMul",), factors="Bfp8"),)
        ),
    ],
)
def test_an_opset_without_bfloat16_is_raised(opset: int, options: sambac.CompileOptions) -> None:
    old, new = _OLD_AND_NEW[opset]
    found = _one_product(opset, old, options)
    assert np.array_equal(found, _one_product(13, new, options))
    assert not np.array_equal(found, _one_product(opset, old, sambac.CompileOptions()))


@pytest.mark.parametrize("opset", [8, 10])
def test_numbers_that_were_attributes_keep_the_type_of_what_they_are_for(opset: int) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        g (float16[4] x) => (float16[4] y, float16[6] z) {{
            y = Clip <min = -1.0, max = 0.5> (x)
            z = Pad <pads = [1, 1], value = 2.0> (x)
        }}
    """)
    x = np.array([-2, -0.5, 0.25, 3], np.float16)
    program = sambac.compile(model, sambac.CompileOptions(precision="mixed"))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x})
    assert found["y"].dtype == found["z"].dtype == np.float16
    np.testing.assert_array_equal(found["y"], np.clip(x, -1, 0.5))
    np.testing.assert_array_equal(found["z"], np.pad(x, 1, constant_values=2))


def test_an_operator_that_no_raising_keeps_is_told() -> None:
    says = r"Hardmax of opset 11.*numbers are rounded.*opset 13"
    mixed = sambac.CompileOptions(precision="mixed")
    with pytest.raises(CompileError, match=says):
        _one_product(11, "y = Hardmax (x)", mixed)
    old = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 11]> g (float[2] x) => (float[2] y) { y = Hardmax (x) }'
    )
    with pytest.raises(CompileError, match=says):
        run_alone(old, mixed, ("round_numbers",))
    with pytest.raises(CompileError, match="There is no precision 'half'"):
        sambac.CompileOptions(precision="half")  # type: ignore[arg-type]
