"""Derivatives that forward takes (autograd.grad) are those of PyTorch, and train as they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from derivative_steps import (
    Function,
    Taking,
    X,
    require_steps_of_torch,
    require_values_of_torch,
    slope,
)
from torch import Tensor, nn
from torch.autograd import functional as derived
from torch.nn import functional

import sambac
import sambarun
from sambac.errors import CompileError

grad = torch.autograd.grad


def _once(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    return slope((x @ w).tanh(), x).square().sum()


def _twice(w: Tensor, x: Tensor) -> Tensor:
    """The Laplacian, as a network that solves an equation of physics has it."""
    x = x.requires_grad_()
    first = slope((x @ w).tanh(), x)
    return sum((slope(first[:, at], x)[:, at] for at in range(2)), torch.zeros(())).square().mean()


def _by_weights(w: Tensor, x: Tensor) -> Tensor:
    """Steps inside of a step (MAML)."""
    fast = w
    for _ in range(2):
        fast = fast - 0.1 * slope(functional.mse_loss((x @ fast).tanh(), x), fast)
    return functional.mse_loss((x @ fast).tanh(), x)


def _without_graph(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    y = (x @ w).sin()
    (found,) = grad(y.sum(), x, retain_graph=True)
    return (found * y).sum()


def _of_two(w: Tensor, x: Tensor) -> Tensor:
    """One of what is differentiated by depends on the other."""
    x = x.requires_grad_()
    h = (x @ w).tanh()
    of_x, of_h = grad((h.sin() * x).sum(), [x, h], create_graph=True)
    return (of_x * of_h).sum()


def _unused(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    other = x.sum(1)
    found = grad((x @ w).sin().sum(), [x, other], create_graph=True, allow_unused=True)
    assert found[1] is None
    zeros = grad((x @ w).sum(), [x, other], create_graph=True, materialize_grads=True)[1]
    return found[0].square().sum() + zeros.sum()


def _detached(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    h = (x @ w).sin()
    with torch.no_grad():
        k = h * 2
    return slope(h * h.detach() + h * k, x).square().sum()


def _written(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    h = (x @ w).sin()
    h[:, 0] = 0
    h.add_(x)
    return slope(h**3, x).sin().square().sum()


def _copied_into(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    h = (x @ w).clone()
    h[0] = w[0]
    h[1:].copy_(x[:1])
    return slope(h**2, x).sin().sum()


def _under_no_grad(w: Tensor, x: Tensor) -> Tensor:
    """What has a graph has one there too."""
    x = x.requires_grad_()
    y = (x @ w).sin().sum()
    with torch.no_grad():
        (found,) = grad(y, x, create_graph=True)
    return found.square().sum()


def _returned_as_it_is(w: Tensor, x: Tensor) -> Tensor:
    """What is differentiated by has other names, and is read by the first of them too."""
    x = x.requires_grad_()
    early = x @ w
    other = torch.broadcast_tensors(x, early)[0]
    late = x.float() if x.dtype == torch.float32 else x
    return slope(early.sin() * other * late.contiguous(), x).square().sum()


def _copied(w: Tensor, x: Tensor) -> Tensor:
    """Copies and views are apart from what they are of."""
    h = x @ w
    clone, view = h.clone(), h.view_as(h)
    of_clone, of_view = grad((clone.sin() * view.cos() * h).sum(), [clone, view], create_graph=True)
    return (of_clone * of_view).sum()


def _by_places(w: Tensor, x: Tensor) -> Tensor:
    """Several gradients that come at once."""
    x = x.requires_grad_()
    y = (x @ w).tanh()
    came = torch.eye(12, dtype=x.dtype).reshape(12, 3, 4)
    (found,) = grad(y, x, came, is_grads_batched=True, create_graph=True)
    return found.square().sum()


def _of_functions(w: Tensor, x: Tensor) -> Tensor:
    """What torch.autograd.functional has."""
    jacobian = derived.jacobian(lambda v: (v @ w).tanh(), x[0], create_graph=True)
    pushed = derived.jvp(lambda v: (v @ w).tanh(), x[0], x[1], create_graph=True)[1]
    return jacobian.square().sum() + pushed.square().sum()


FORMS: dict[str, Function] = {
    "once": _once,
    "twice": _twice,
    "by weights": _by_weights,
    "without graph": _without_graph,
    "of two": _of_two,
    "unused": _unused,
    "detached": _detached,
    "written": _written,
    "copied into": _copied_into,
    "under no_grad": _under_no_grad,
    "returned as it is": _returned_as_it_is,
    "copied": _copied,
    "by places": _by_places,
    "of functions": _of_functions,
}


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_are_those_of_pytorch(form: str, tmp_path: Path) -> None:
    module = Taking(FORMS[form])
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


class _Twice(torch.autograd.Function):
    """A sine with twice its slope, and the product of what it keeps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        product = x * y
        ctx.save_for_backward(x, y, product)
        return product, x.sin()

    @staticmethod
    def backward(ctx: Any, *came: Tensor) -> tuple[Tensor, Tensor]:
        x, y, product = ctx.saved_tensors
        return came[0] * y + 2 * came[1] * x.cos() + product, came[0] * x.sin()


def _of_its_own(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    h = x @ w
    first, second = _Twice.apply(h, x.sin())
    return (slope(first * second, x) * slope(first, h)).sum()


def test_backward_methods_are_differentiated(tmp_path: Path) -> None:
    module = Taking(_of_its_own)
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


class _Alike(torch.autograd.Function):
    """A sine whose backward method takes a derivative of something that it makes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.detach().sin()

    @staticmethod
    def backward(ctx: Any, *came: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            made = x.detach().requires_grad_()
            return grad(made.sin(), made, came[0])[0]


def _of_one_that_differentiates(w: Tensor, x: Tensor) -> Tensor:
    x = x.requires_grad_()
    y = _Alike.apply(x @ w)
    (found,) = grad(y.sum(), x, retain_graph=True)
    return (found * y).sum()


def test_backward_methods_that_differentiate_are_differentiated(tmp_path: Path) -> None:
    module = Taking(_of_one_that_differentiates)
    require_values_of_torch(module)
    require_steps_of_torch(module, tmp_path / "m.pef")


class _Tied(nn.Module):
    """Two layers of one matrix, which has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).tanh()).sin().sum()
        of_first, of_second = grad(y, [self.first.weight, self.second.bias], create_graph=True)
        return of_first.square().sum() + of_second.sin().sum()


def test_derivatives_by_parameters_of_two_names(tmp_path: Path) -> None:
    require_values_of_torch(_Tied())
    require_steps_of_torch(_Tied(), tmp_path / "m.pef")


class _Twofold(nn.Module):
    """A normalisation that is called twice, and reads what it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 5), nn.BatchNorm1d(5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        first = self.norm(self.linear(x))
        return slope(self.norm(self.linear(2 * first[:, :4])).sin(), x).square().mean()


def test_statistics_are_written_between_derivatives(tmp_path: Path) -> None:
    require_steps_of_torch(_Twofold(), tmp_path / "m.pef")


class _Dropping(nn.Module):
    """Gives 1 where the derivative of a layer that draws has the mask of its result."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.linear, self.layer = nn.Linear(4, 5), layer

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_()
        h = self.linear(x)
        y = self.layer(h)
        mask = (y / h).detach()
        return (slope(y, x) - mask @ self.linear.weight).abs().max() + 0 * y.sum() + 1


class _Noise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rand_like(x)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU(), _Noise()])
def test_masks_are_the_same_forward_and_backward(layer: nn.Module) -> None:
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.0),))
    program = sambac.compile(_Dropping(layer).train(), options, inputs=(X.clone(),))
    with sambarun.load(program) as executable:
        losses = [float(*executable.step({"x": X.numpy()}).values()) for _ in range(3)]
    assert losses == pytest.approx([1, 1, 1], abs=1e-5)


class _Forces(nn.Module):
    """The energy of an image, and what pulls at it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.requires_grad_()
        energy = self.layers(x)
        return energy, -grad(energy.sum(), x)[0]


def test_sizes_stay_open() -> None:
    layers = (nn.Conv2d(1, 3, 3, 2, 1), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 1))
    module = _Forces(*layers).eval()
    open_sizes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    program = sambac.compile(module, inputs=(torch.randn(3, 1, 8, 8),), dynamic_shapes=open_sizes)
    with sambarun.load(program) as executable:
        for batch in (1, 5):
            x = torch.randn(batch, 1, 8, 8)
            found = executable.run({"x": x.numpy()}).values()
            for one, expected in zip(found, module(x.clone()), strict=True):
                torch.testing.assert_close(torch.from_numpy(one), expected.detach())


def test_sizes_of_pooled_images_stay_open() -> None:
    module = _Forces(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 1), nn.Tanh()).eval()
    open_sizes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    program = sambac.compile(module, inputs=(torch.randn(3, 1, 4, 4),), dynamic_shapes=open_sizes)
    x = torch.randn(5, 1, 4, 4)
    with sambarun.load(program) as executable:
        for one, expected in zip(executable.run({"x": x.numpy()}).values(), module(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(one), expected.detach())


def test_strides_along_open_sizes_are_refused() -> None:
    module = _Forces(nn.Conv2d(1, 3, 3, 2, 1)).eval()
    open_sizes = {"x": {2: torch.export.Dim("height", min=4, max=64)}}
    with pytest.raises(CompileError, match="strides along axes of open sizes"):
        sambac.compile(module, inputs=(torch.randn(3, 1, 8, 8),), dynamic_shapes=open_sizes)


def test_what_other_threads_differentiate_is_theirs(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor  # as where one trains beside a compilation

    def other() -> Sequence[Tensor]:
        x = torch.ones(2, requires_grad=True)
        return *grad((x * x).sum(), x), torch.func.grad(torch.sum)(x)

    def both(w: Tensor, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            found, ones = pool.submit(other).result()
        assert found.tolist() == [2, 2]
        assert ones.tolist() == [1, 1]
        return _once(w, x)

    require_values_of_torch(Taking(both))
