"""Arguments that PyTorch's exporter drops without a word: values beside PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch_runs import TRAIN, Lambda, operators, run, run_evaluation, run_training, training_source

import sambac
import sambarun
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions

Function = Callable[..., torch.Tensor]

_X2, _X3 = torch.linspace(-1, 2, 72).reshape(1, 2, 6, 6), torch.linspace(-1, 2, 54).reshape(2, 3, 9)
_INDEX = torch.tensor([[0, 1], [2, 2], [0, 2]])
_SOURCE = torch.tensor([[1.0, 2], [3, 4], [5, 6]])

_CASES: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "pool": (lambda x: functional.avg_pool2d(x, 2, divisor_override=3), (_X2,)),
    "padded pool": (
        lambda x: functional.avg_pool2d(
            x, (3, 2), 2, 1, count_include_pad=False, divisor_override=5
        ),
        (_X2,),
    ),
    "pool over the end": (
        lambda x: functional.avg_pool2d(x[0], (4, 3), (3, 4), 1, True, False, divisor_override=3),
        (_X2,),
    ),
    "pool of volumes over the end": (
        lambda x: functional.avg_pool3d(x[:, None], 2, ceil_mode=True, divisor_override=3),
        (torch.linspace(-1, 2, 270).reshape(2, 3, 9, 5),),
    ),
    "plain pool": (
        lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        (_X2,),
    ),
    "pool of volumes": (
        lambda x: functional.avg_pool3d(x[None, :, None], (1, 2, 3), divisor_override=4),
        (_X3,),
    ),
    "means": (
        lambda x, i, s: x.scatter_reduce(1, i, s, "mean"),
        (_SOURCE @ _SOURCE.T, _INDEX, _SOURCE),
    ),
    "means of others": (
        lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False),
        (torch.full((4, 3), 7.0), _INDEX, torch.arange(12.0).reshape(4, 3)),
    ),
    "masked": (
        lambda x, s: x.masked_scatter(x > 0.3, s)[None].masked_scatter(x[:, :1] < 0, s),
        (torch.linspace(-1, 2, 18).reshape(3, 6), torch.arange(24.0).reshape(4, 6)),
    ),
    "running products": (
        lambda x: x.cumprod(1) + x.cumprod(0, dtype=torch.float64).float(),
        (torch.linspace(-1, 1, 15).reshape(3, 5),),
    ),
    "largest": (
        lambda x, i, s: x.scatter_reduce(1, i, s, "amax"),
        (_SOURCE @ _SOURCE.T, _INDEX, _SOURCE),
    ),
}


def test_values() -> None:
    def forward(*given: tuple[torch.Tensor, ...]) -> dict[str, torch.Tensor]:
        return {
            name: function(*tensors)
            for (name, (function, _)), tensors in zip(_CASES.items(), given, strict=True)
        }

    inputs = [tensors for _, tensors in _CASES.values()]
    source = training_source(Lambda(forward), *inputs)
    assert not {"NonZero", "Compress"}.intersection(operators(source.model)), "open sizes"
    flat = [tensor for given in inputs for tensor in given]
    for made in (run_training, run_evaluation):
        found = made(source, *flat)
        for name, (function, given) in _CASES.items():
            want = function(*given).numpy()
            np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, i: x.scatter_reduce(1, i, i, "mean"), (_INDEX * 2, _INDEX)),
    ],
)
def test_what_has_no_faithful_form_is_refused(
    function: Function, inputs: tuple[torch.Tensor, ...]
) -> None:
    with pytest.raises(CompileError, match="has no ONNX form"):
        training_source(Lambda(function), *inputs)


def test_small_numbers_are_not_taken_for_none() -> None:
    def forward(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> object:
        return a + 1e-8, b - 1e-12, c * (1 + 1e-6), d / (1 - 1e-6)

    source = training_source(Lambda(forward), *torch.zeros(4, 3))
    assert operators(source.model) == ["Add", "Sub", "Mul", "Div"]


def test_bounds_that_cross_are_taken_in_order() -> None:
    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cut = functional.relu6(x - 5), x.clamp(max=-0.5), x.relu()
        return functional.relu(cut[1]), functional.hardtanh(cut[0], 7, 8), cut[2].clamp(-3, -1)

    x = torch.linspace(-4, 4, 9)
    found = run_evaluation(training_source(Lambda(forward), x), x)
    assert [*map(np.ndarray.tolist, found.values())] == [[0] * 9, [7] * 9, [-1] * 9]


def _normalized(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _rotated(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Rotate [B, H, L, 4] by positions, as models do that are fused into RotaryEmbedding."""
    angles = at[..., None] * torch.tensor([1.0, 0.1])
    both = torch.cat((angles, angles), -1)
    turned = torch.cat((-x[..., 2:], x[..., :2]), -1)
    return x * both.cos().unsqueeze(1) + turned * both.sin().unsqueeze(1)


class _Broadcast(nn.Module):
    """Positions of all rows, of each and of one for a row, and scales of more rows than `x`."""

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, own: torch.Tensor, row: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        plain = y[0, 0, 0]
        scales = (plain, x, plain[None, None], y, y[None])
        scaled = [_normalized(x + at) * scale for at, scale in enumerate(scales)]
        scaled += [y * _normalized(-x), plain * _normalized(x[..., :1])]
        return (*scaled, *(_rotated(y, at) for at in (own, row, own[:, :1], own[0, :3])))


@pytest.mark.parametrize("is_open", [False, True])
def test_what_broadcasts_is_not_fused_into_what_does_not(is_open: bool) -> None:
    x, y = torch.linspace(-1, 2, 24).reshape(2, 3, 1, 4), torch.linspace(3, -1, 120)
    own = torch.arange(10.0).reshape(2, 5)
    inputs = (x, y.reshape(2, 3, 5, 4), own, own[:1])
    shapes = (*({0: torch.export.Dim.AUTO},) * 3, None) if is_open else None
    source = load(_Broadcast(), CompileOptions(), inputs, shapes)
    fused = operators(source.model)
    assert fused.count("RMSNormalization") == 3
    assert fused.count("RotaryEmbedding") == 1
    feeds = dict(zip(source.signature.inputs, (item.numpy() for item in inputs), strict=True))
    for got, want in zip(run(source.model, feeds).values(), _Broadcast()(*inputs), strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-5)


def _limits(low: float, high: float, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(low, dtype=x.dtype), torch.tensor(high, dtype=x.dtype)


def _between(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    least, most = _limits(low, high, x)
    return torch.minimum(torch.maximum(x, least), most)


def _not_beyond(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    least, most = _limits(low, high, x)
    return torch.maximum(torch.minimum(x, most), least)


# Ways to clamp, each of which a rule of the exporter's optimizer makes one operator of.
_CLAMPS: dict[str, Function] = {
    "numbers": torch.clamp,
    "tensors": lambda x, low, high: x.clamp(*_limits(low, high, x)),
    "min of max": _between,
    "max of min": _not_beyond,
    "min of min": lambda x, _, high: torch.minimum(_not_beyond(x, -9, high), _limits(0, 9, x)[1]),
    "clamp of relu": lambda x, low, high: functional.relu(x).clamp(low, high),
    "relu of clamp": lambda x, low, high: functional.relu(x.clamp(low, high)),
    "clamp of clamp": lambda x, low, high: x.clamp(-50, 50).clamp(low, high),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_each_clamp_of_one_tensor_has_limits_of_its_own(dtype: torch.dtype) -> None:
    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            f"{kind} {number}": clamp(x, -number, number + 1)
            for kind, clamp in _CLAMPS.items()
            for number in range(3)
        }

    x = torch.arange(-10, 11).to(dtype)
    source = load(Lambda(forward).eval(), CompileOptions(), (x,))
    found = run_evaluation(source, x)
    for name, want in forward(x).items():
        np.testing.assert_array_equal(found[name], want.numpy(), err_msg=name)


@pytest.mark.parametrize("ways", [[torch.clamp], [torch.clip], [torch.clamp, torch.clip]])
def test_limits_may_be_of_two_kinds(ways) -> None:
    kinds = [torch.float16, torch.float32, torch.int32]
    inputs = [torch.arange(-4, 5).to(dtype) for dtype in kinds for _ in ways]
    module = Lambda(
        lambda *given: [
            clamp(x, 0, 1.5) + clamp(x, -1.5, 1)
            for x, clamp in zip(given, ways * len(kinds), strict=True)
        ]
    )
    source = load(module.eval(), CompileOptions(), tuple(inputs))
    found = run_evaluation(source, *inputs)
    for number, want in enumerate(module(*inputs)):
        np.testing.assert_array_equal(found[f"output_{number}"], want.numpy())


_NUMBERS: dict[str, Function] = {
    "less": lambda x: 1.5 - x,
    "less twice": lambda x: torch.rsub(x, 1.5, alpha=2),
    "more": lambda x: x + 1.5,
    "more of it": lambda x: torch.add(1.5, x, alpha=2),
    "less of it": lambda x: torch.sub(1.5, x, alpha=2.0) if x.is_floating_point() else x,
    "more of yes": lambda x: torch.add(1.5, x > 1, alpha=0.5),
    "parts": lambda x: 1.5 / x,
    "power": lambda x: x**2,
    "powers": lambda x: 1.5**x,
    "quotient": lambda x: x // 2,
    "quotient of fractions": lambda x: torch.floor_divide(x, 1.5),
    "remainder": lambda x: x % 1.5,
    "root": lambda x: x**0.5,
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64, torch.float16])
def test_numbers_beside_tensors_of_narrower_types(dtype: torch.dtype) -> None:
    """A mask is made of `1.0 - attention_mask` where that is whole."""
    x = torch.arange(1, 5).to(dtype)
    refused = {"less", "less twice"} if dtype is torch.bool else set()  # by PyTorch
    functions = {name: item for name, item in _NUMBERS.items() if name not in refused}
    module = Lambda(lambda x: {name: function(x) for name, function in functions.items()})
    source = load(module.eval(), CompileOptions(), (x,))
    found = run_evaluation(source, x)
    for name, want in module(x).items():
        got = found[name]
        assert got.dtype == want.numpy().dtype, name
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-3, err_msg=name)


def test_what_is_nearly_a_hard_swish_is_none() -> None:
    """Rules for it exist beside those that the exporter applies, with tolerances of their own."""
    functions: list[Function] = [
        lambda x: x * (x + 3.0001).clamp(0.0, 6.0) / 6,
        lambda x: (x + 3).clamp(0.0, 6.0001) / 6 * x,
        lambda x: (x + 3).clamp(1e-5, 6.0) / 6,
        lambda x: x * functional.relu6(x + 3) / 6.0001,
    ]
    module = Lambda(lambda *given: [f(x) for f, x in zip(functions, given, strict=True)])
    found = operators(load(module.eval(), CompileOptions(), tuple(torch.ones(4, 3))).model)
    assert not {"HardSwish", "HardSigmoid"}.intersection(found)


def test_statistics_of_each_type() -> None:
    statistics = [torch.std_mean, torch.var_mean, torch.std, torch.var]
    kinds = [torch.float16, torch.bfloat16, torch.float32]

    def forward(given: torch.Tensor) -> dict[str, torch.Tensor]:
        found = {}
        for dtype in kinds:
            x = given.to(dtype)
            for of in statistics:
                each = of(x), of(x, 1), of(x, (0, 1), correction=0), of(x, 0, keepdim=True)
                for number, item in enumerate(pytree.tree_leaves(each)):
                    found[f"{of.__name__} {dtype} {number}"] = item.float()
        return found

    x = torch.arange(12.0).reshape(3, 4)
    program = sambac.compile(Lambda(forward).eval(), inputs=(x,))
    with sambarun.load(program) as executable:
        found = executable.run({"args_0": x.numpy()})
    for name, want in forward(x).items():
        (dtype,) = (dtype for dtype in kinds if str(dtype) == name.split()[1])
        rtol = 2 * torch.finfo(dtype).eps
        np.testing.assert_allclose(found[name], want.numpy(), rtol=rtol, err_msg=name)


_GRIDS = [(0, 15), (-8, 7), (-1, 1), (0, 127), (-127, 127), (0, 65535)]


@pytest.mark.parametrize("training", [False, True])
def test_fake_quantisation_has_any_range(training: bool) -> None:
    """In PyTorch a grid has any two ends; quantised operators of ONNX have those of their types."""
    scales, zeros = torch.tensor([0.25, 0.5, 1.0]), torch.zeros(3, dtype=torch.int32)

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        result = {}
        for ends in _GRIDS:
            by_number = torch.fake_quantize_per_tensor_affine(x, 0.25, ends[0] + 1, *ends)
            result[f"number {ends}"] = by_number
            by_tensor = torch.fake_quantize_per_tensor_affine(x, scales[0], zeros[0], *ends)
            result[f"tensor {ends}"] = by_tensor
            by_channel = torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, *ends)
            result[f"channel {ends}"] = by_channel
        return result

    x = torch.linspace(-5, 30, 48).reshape(3, 16)
    options = TRAIN if training else CompileOptions()
    source = load(Lambda(forward).train(training), options, (x,))
    found = (run_training if training else run_evaluation)(source, x)
    for name, want in forward(x).items():
        np.testing.assert_allclose(found[name], want.numpy(), rtol=1e-6, err_msg=name)


def test_an_example_may_give_one_tensor_twice() -> None:
    x, y = torch.ones(3), torch.full((3,), 5.0)
    source = training_source(Lambda(lambda a, b: a - 2 * b), x, x)
    np.testing.assert_array_equal(run_training(source, x, y)["output"], (x - 2 * y).numpy())


def test_points_far_from_two_pixels_find_nothing() -> None:
    """Between corners they are a whole width apart, and cubic windows reach over two."""
    axis = torch.tensor([-9.0, -4.6, -3.5, 3.7, 5.5, 8.5])
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)[None]

    def forward(x: torch.Tensor) -> torch.Tensor:
        return functional.grid_sample(x, grid, "bicubic", "zeros", align_corners=True)

    x = torch.arange(1.0, 5).reshape(1, 1, 2, 2)
    found = run_evaluation(load(Lambda(forward).eval(), CompileOptions(), (x,)), x)["output"]
    np.testing.assert_allclose(found, forward(x).numpy(), atol=1e-5)
