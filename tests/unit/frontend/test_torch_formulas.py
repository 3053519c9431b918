"""Formulas of operators, and of their gradients, are what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sambac.frontend.torch.programs.derivatives.formulas import BACKWARD, FORWARD

aten = torch.ops.aten


def _made(*shape: int) -> Tensor:
    seed = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=seed)


IMAGE, ROWS, WIDE = _made(2, 4, 7, 6), _made(3, 5), _made(2, 4, 9)
OF_FOUR, OF_SIX, OF_FIVE = _made(4), _made(6), _made(5)
ONES = OF_FOUR.abs() + 0.5
HEADS = _made(2, 4, 5, 3)


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "layer norm": (aten.layer_norm.default, (ROWS, [5], OF_FIVE, OF_FIVE, 1e-3), {}),
    "layer norm of two axes": (aten.layer_norm.default, (IMAGE, [7, 6]), {}),
    "rms norm": (aten.rms_norm.default, (ROWS, [5], OF_FIVE, 1e-3), {}),
    "rms norm of its own": (aten.rms_norm.default, (ROWS, [5]), {}),
    "group norm": (aten.group_norm.default, (IMAGE, 2, OF_FOUR, OF_FOUR, 1e-3), {}),
    "batch norm": (
        aten.batch_norm.default,
        (IMAGE, OF_FOUR, OF_FOUR, None, None, True, 0.1, 1e-3, False),
        {},
    ),
    "batch norm that evaluates": (
        aten.batch_norm.default,
        (IMAGE, None, OF_FOUR, OF_FOUR, ONES, False, 0.1, 1e-3, False),
        {},
    ),
    "batch norm with next statistics": (
        aten._native_batch_norm_legit_functional.default,
        (IMAGE, OF_FOUR, None, OF_FOUR, ONES, True, 0.1, 1e-3),
        {},
    ),
    "batch norm without training": (
        aten._native_batch_norm_legit_no_training.default,
        (IMAGE, OF_FOUR, OF_FOUR, OF_FOUR, ONES, 0.1, 1e-3),
        {},
    ),
    "layer norm with its mean": (
        aten.native_layer_norm.default,
        (ROWS, [5], OF_FIVE, None, 1e-3),
        {},
    ),
    "group norm with its mean": (
        aten.native_group_norm.default,
        (IMAGE, OF_FOUR, OF_FOUR, 2, 4, 42, 2, 1e-3),
        {},
    ),
    "batch norm with its mean": (
        aten.native_batch_norm.default,
        (IMAGE, OF_FOUR, None, None, None, True, 0.1, 1e-3),
        {},
    ),
    "batch norm of no statistics": (
        aten._native_batch_norm_legit.no_stats,
        (IMAGE, OF_FOUR, None, True, 0.1, 1e-3),
        {},
    ),
    "rms norm with its mean": (aten._fused_rms_norm.default, (ROWS, [5], OF_FIVE, 1e-3), {}),
    "weight norm": (aten._weight_norm.default, (ROWS, _made(3, 1), 0), {}),
    "weight norm of columns": (aten._weight_norm.default, (ROWS, _made(1, 5), 1), {}),
    "attention": (
        aten.scaled_dot_product_attention.default,
        (HEADS, HEADS, HEADS, None, 0.0, True),
        {"scale": 0.3},
    ),
    "distances": (aten.cdist.default, (ROWS, ROWS[:2] + 1), {}),
    "distances of p": (aten.cdist.default, (ROWS, ROWS[:2] + 1, 3.0), {}),
    "bilinear": (aten.bilinear.default, (ROWS, ROWS, _made(2, 5, 5), _made(2)), {}),
    "average pool": (aten.avg_pool2d.default, (IMAGE, [3, 2], [2, 1], [1, 1]), {}),
    "average pool without padding": (
        aten.avg_pool2d.default,
        (IMAGE, [3, 3], [2, 2], [1, 0], False, False),
        {},
    ),
    "average pool by a divisor": (
        aten.avg_pool2d.default,
        (IMAGE, [2, 2], [], [0, 0], False, True, 3),
        {},
    ),
    "average pool of one axis": (aten.avg_pool1d.default, (WIDE, [4]), {}),
    "adaptive pool": (aten.adaptive_avg_pool2d.default, (IMAGE, [3, 4]), {}),
    "adaptive pool of one axis": (aten.adaptive_avg_pool1d.default, (WIDE, [2]), {}),
    "replication": (aten.replication_pad2d.default, (IMAGE, [1, 2, 3, 0]), {}),
    "replication by pad": (aten.pad.default, (IMAGE, [1, 2, 3, 0], "replicate"), {}),
    "pad": (aten.pad.default, (IMAGE, [1, 2, 3, 0], "constant", 2.0), {}),
    "upsample": (aten.upsample_bilinear2d.vec, (IMAGE, None, False, [2.0, 1.5]), {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_operators_are_their_formulas(call: str) -> None:
    target, args, kwargs = CALLS[call]
    x = args[0].clone().requires_grad_()
    given = [run(x, *args[1:], **kwargs) for run in (FORWARD[target], target)]
    for found, expected in zip(*map(_others, given), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    results = [_first(one) for one in given]
    came = torch.cos(torch.arange(results[1].numel(), dtype=torch.float64))
    slopes = [torch.autograd.grad((one.flatten() * came).sum(), x)[0] for one in results]
    for found, expected in (results, slopes):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def _first(result: Any) -> Tensor:
    first: Tensor = result if isinstance(result, Tensor) else result[0]
    return first


def _others(result: Any) -> tuple[Tensor, ...]:
    return () if isinstance(result, Tensor) else result[1:]


CONVOLUTIONS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any]]] = {
    "plain": (nn.Conv2d, {"kernel_size": 3}),
    "stride": (nn.Conv2d, {"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 2)}),
    "dilation": (nn.Conv2d, {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 2}),
    "groups": (nn.Conv2d, {"kernel_size": 3, "groups": 2, "stride": 2}),
    "depthwise": (nn.Conv2d, {"kernel_size": 2, "groups": 4}),
    "transposed": (nn.ConvTranspose2d, {"kernel_size": 3, "stride": 2, "padding": 1}),
    "transposed groups": (
        nn.ConvTranspose2d,
        {"kernel_size": 3, "stride": 3, "groups": 2, "output_padding": (1, 2)},
    ),
    "transposed dilation": (nn.ConvTranspose2d, {"kernel_size": 2, "dilation": 2}),
}


@pytest.mark.parametrize("form", CONVOLUTIONS)
def test_gradients_of_convolutions_are_convolutions(form: str) -> None:
    kind, settings = CONVOLUTIONS[form]
    layer = kind(4, 8, **settings).double()
    given = layer(IMAGE)
    transposed = isinstance(layer, nn.ConvTranspose2d)
    more = layer.output_padding if transposed else (0, 0)
    where = (layer.stride, layer.padding, layer.dilation, transposed, more, layer.groups)
    operands = (_made(*given.shape), IMAGE, layer.weight.detach(), [8], *where, [True] * 3)
    backward = aten.convolution_backward.default
    for found, expected in zip(BACKWARD[backward](*operands), backward(*operands), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_gradients_of_the_largest_are_added_up() -> None:
    settings = ([3, 2], [1, 1], [1, 0], [1, 1], True)
    pooled, places = functional.max_pool2d(IMAGE, *settings, return_indices=True)
    backward = aten.max_pool2d_with_indices_backward.default
    operands = (_made(*pooled.shape), IMAGE, *settings, places)
    torch.testing.assert_close(BACKWARD[backward](*operands), backward(*operands))


EDGES = torch.tensor([-1e4, -200.0, -1.0, 0.0, 1.0, 200.0, 1e4], dtype=torch.float32)


@pytest.mark.parametrize(
    ("backward", "settings"),
    [
        (aten.softplus_backward.default, (EDGES, 100, 20)),
        (aten.softplus_backward.default, (EDGES, 1, 20)),
        (aten.elu_backward.default, (1.5, 1.0, 1.0, False, EDGES)),
        (aten.elu_backward.default, (1.67, 1.05, 0.7, False, EDGES)),
        (aten.elu_backward.default, (1.67, 1.05, 0.7, True, EDGES.clamp(min=-1))),
        (aten.log_sigmoid_backward.default, (EDGES, EDGES.abs().neg().exp())),
        (aten.huber_loss_backward.default, (EDGES, 0 * EDGES, 1, 1.0)),
        (aten.huber_loss_backward.default, (EDGES, 0 * EDGES, 2, 0.5)),
        (aten.logit_backward.default, (EDGES.sigmoid(), 1e-3)),
    ],
)
def test_gradients_far_from_zero_have_gradients(backward: Any, settings: tuple[Any, ...]) -> None:
    came = torch.cos(torch.arange(len(EDGES), dtype=torch.float32))
    operands = [one.double() if isinstance(one, Tensor) else one for one in settings]
    torch.testing.assert_close(
        BACKWARD[backward](came, *settings),
        backward(came.double(), *operands).float(),
        rtol=1e-5,
        atol=1e-30,
    )
    given = [one.clone().requires_grad_() if isinstance(one, Tensor) else one for one in settings]
    BACKWARD[backward](came, *given).sum().backward()
    slopes = [one.grad for one in given if isinstance(one, Tensor) and one.grad is not None]
    assert slopes
    assert all(slope.isfinite().all() for slope in slopes)
