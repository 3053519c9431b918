"""Training with the numbers of a device: formats and fidelities in both passes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import sambac
import sambarun
from sambac import CompileOptions, NumberRule
from sambac.numerics import FORMATS, SOURCE_A, SOURCE_B, rounded, truncated
from sambac.numerics.fidelity import FIDELITIES

BATCH, WIDTH, HIDDEN, CLASSES, STEPS = 6, 40, 24, 4, 6
FORM = FORMATS["Bfp8_b"]


def held(x: torch.Tensor, axis: int = -1) -> torch.Tensor:
    return torch.from_numpy(rounded(x.detach().numpy(), FORM, axis=axis))


def multiplied(left: torch.Tensor, right: torch.Tensor, fidelity: str) -> torch.Tensor:
    """Return a product of matrices as the device makes it of operands in the format."""
    left, right = held(left), held(right)
    if not fidelity:
        return left @ right
    each = FIDELITIES[fidelity]
    first = truncated(left.numpy(), each.digits(SOURCE_B))
    second = truncated(right.numpy(), each.digits(SOURCE_A))
    return torch.from_numpy(first) @ torch.from_numpy(second)


class DeviceProduct(torch.autograd.Function):
    """A product whose operands, in the backward pass too, are what the device multiplies."""

    @staticmethod
    def forward(ctx, left: torch.Tensor, right: torch.Tensor, fidelity: str) -> torch.Tensor:
        ctx.save_for_backward(left, right)
        ctx.fidelity = fidelity
        return multiplied(left, right, fidelity)

    @staticmethod
    def backward(ctx, dy: torch.Tensor):
        left, right = ctx.saved_tensors
        return (
            multiplied(dy, right.T.contiguous(), ctx.fidelity),
            multiplied(left.T.contiguous(), dy, ctx.fidelity),
            None,
        )


class Network(nn.Module):
    """Two layers; `fidelity` is None for plain products."""

    def __init__(self, fidelity: str | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fidelity = fidelity
        self.first = nn.Parameter(torch.randn(WIDTH, HIDDEN) / 6)
        self.second = nn.Parameter(torch.randn(HIDDEN, CLASSES) / 5)

    def product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if self.fidelity is None:
            return left @ right
        return DeviceProduct.apply(left, right, self.fidelity)

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.product(x, self.first))
        return nn.functional.cross_entropy(self.product(hidden, self.second), label)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(BATCH, WIDTH, generator=generator),
            torch.randint(CLASSES, (BATCH,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def losses_here(rules: tuple[NumberRule, ...], **options: object) -> list[float]:
    chosen = CompileOptions(
        train=True,
        optimizers=(sambac.SGD(lr=0.5),),
        number_rules=rules,
        **options,  # type: ignore[arg-type]
    )
    program = sambac.compile(Network(), chosen, inputs=batches()[0])
    with sambarun.load(program) as executable:
        return [
            float(*executable.step({"x": x.numpy(), "label": label.numpy()}).values())
            for x, label in batches()
        ]


def losses_in_torch(fidelity: str | None) -> list[float]:
    network = Network(fidelity)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    losses = []
    for x, label in batches():
        optimizer.zero_grad()
        loss = network(x, label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("fidelity", ["", "LoFi", "HiFi2"])
def test_both_passes_multiply_what_the_device_does(fidelity: str) -> None:
    types = ("MatMul", "Gemm")
    rule = NumberRule(op_type=types, factors="Bfp8_b", fidelity=fidelity)
    expected, plain = losses_in_torch(fidelity), losses_in_torch(None)
    found = losses_here((rule,))
    apart = np.abs(np.subtract(expected, plain)).max()
    assert apart > 5e-4
    assert np.abs(np.subtract(found, expected)).max() < apart / 10


@pytest.mark.parametrize("fidelity", ["HiFi3", "HiFi4"])
def test_more_passes_are_nearer_to_plain_training(fidelity: str) -> None:
    rule = NumberRule(fidelity=fidelity)
    lofi, more = losses_here((NumberRule(fidelity="LoFi"),)), losses_here((rule,))
    plain = losses_in_torch(None)
    np.testing.assert_allclose(more, plain, rtol=5e-3)
    assert np.abs(np.subtract(lofi, plain)).max() > 5 * np.abs(np.subtract(more, plain)).max()


def test_a_stage_may_have_numbers_of_its_own() -> None:
    """The first loss is that of the forward pass alone, which nothing rounds here."""
    plain = losses_in_torch(None)
    found = losses_here((NumberRule(stage="bwd", factors="Bfp2_b"),))
    assert found[0] == pytest.approx(plain[0], rel=1e-6)
    assert abs(found[-1] - plain[-1]) > 1e-3
    forward = losses_here((NumberRule(stage="fwd", factors="Bfp2_b"),))
    assert abs(forward[0] - plain[0]) > 1e-3


def test_a_parameter_lies_in_a_format() -> None:
    """Both passes read it so, and what is updated has all digits."""
    found = losses_here((NumberRule(name="first", output="Float16_b"),))
    network = Network()
    losses = []
    for x, label in batches():
        short = network.first.detach().bfloat16().float().requires_grad_()
        hidden = torch.tanh(x @ short)
        loss = nn.functional.cross_entropy(hidden @ network.second, label)
        loss.backward()
        with torch.no_grad():
            network.first -= 0.5 * short.grad
            network.second -= 0.5 * network.second.grad
        network.second.grad = None
        losses.append(loss.item())
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    assert np.abs(np.subtract(losses, losses_in_torch(None))).max() > 1e-4


def test_sums_in_a_short_accumulator_train() -> None:
    found = losses_here((NumberRule(op_type=("MatMul", "Gemm"), accumulate="Float16_b"),))
    plain = losses_in_torch(None)
    np.testing.assert_allclose(found, plain, rtol=3e-2)
    assert np.abs(np.subtract(found, plain)).max() > 1e-4


def test_everything_in_blocks_trains() -> None:
    found = losses_here((NumberRule(operands="Bfp8_b", output="Bfp8_b"),))
    np.testing.assert_allclose(found, losses_in_torch(None), rtol=5e-2)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, stride=2, groups=16, padding=1),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(16, 8, 2, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(8),
            nn.Linear(8, CLASSES),
        )

    def forward(self, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(x), label)


def image_losses(*rules: NumberRule) -> list[float]:
    x, label = (
        torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)),
        torch.arange(4),
    )
    options = CompileOptions(train=True, optimizers=(sambac.AdamW(lr=0.01),), number_rules=rules)
    program = sambac.compile(Images(), options, inputs=(x, label))
    feeds = {"x": x.numpy(), "label": label.numpy()}
    with sambarun.load(program) as executable:
        return [float(*executable.step(feeds).values()) for _ in range(4)]


# The short run has the rule that rounds in most places; passes and blocks it has of products.
@pytest.mark.parametrize(
    ("rule", "tolerance"),
    [
        (NumberRule(operands="Bfp8", output="Float16", accumulate="Float16"), 0.04),
        pytest.param(NumberRule(fidelity="HiFi3"), 0.01, marks=pytest.mark.long),
        pytest.param(NumberRule(operands="Bfp8_b", output="Bfp8_b"), 0.04, marks=pytest.mark.long),
    ],
    ids=["short floats", "passes", "blocks"],
)
def test_networks_of_convolutions_train(rule: NumberRule, tolerance: float) -> None:
    """The gradient of the pool has branches, in which sizes have to be known too."""
    plain, found = image_losses(), image_losses(rule)
    np.testing.assert_allclose(found, plain, rtol=0, atol=tolerance)
    assert found != plain


def test_the_numbers_do_not_depend_on_the_sections() -> None:
    rule = (NumberRule(factors="Bfp8_b", fidelity="HiFi2"),)
    np.testing.assert_allclose(losses_here(rule, level="O0"), losses_here(rule), rtol=1e-4)


def test_the_program_says_what_was_applied() -> None:
    rule = NumberRule(op_type=("MatMul", "Gemm"), factors="Bfp8_b", fidelity="HiFi2")
    options = CompileOptions(train=True, number_rules=(rule,))
    program = sambac.compile(Network(), options, inputs=batches()[0])
    applied = json.loads(program.producer.options)["applied"]
    counts = [int(line.partition(" ")[0]) for line in applied]
    assert sum(counts) == 5  # two products, three for their gradients
    assert all(line.endswith("factors Bfp8_b, fidelity HiFi2") for line in applied)
