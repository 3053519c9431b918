"""Large layers read few of their weights where only differences between calls are asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import sambac
from sambac.frontend.torch.modules.thinning import Thinned


@pytest.mark.parametrize(("ins", "outs"), [(256, 256), (250, 600), (600, 250), (1024, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_all_that_is_read_reaches_all_that_is_made(ins: int, outs: int, bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(ins, outs, bias=bias)
    x = torch.randn(3, 2, ins, requires_grad=True)
    with Thinned():
        found = layer(x)
        same = functional.linear(input=x, weight=layer.weight, bias=layer.bias)
    whole = layer(x)
    assert found.shape == whole.shape
    assert torch.equal(found, same)
    assert not torch.allclose(found, whole)
    assert 0.2 < found.std() / whole.std() < 5
    found.sum().backward()
    assert x.grad is not None
    assert (x.grad != 0).all()
    assert (found != (layer.bias if bias else 0)).all()


def test_addmm_is_the_layer_with_its_weights_turned() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(300, 400), torch.randn(5, 300)
    turned = nn.Parameter(layer.weight.detach().t().clone())
    with Thinned():
        torch.testing.assert_close(torch.addmm(layer.bias, x, turned), layer(x))


def test_small_and_computed_weights_are_whole() -> None:
    torch.manual_seed(0)
    small, large, x = nn.Linear(8, 8), nn.Linear(300, 300), torch.randn(5, 300)
    with Thinned():
        assert torch.equal(small(x[:, :8]), functional.linear(x[:, :8], small.weight, small.bias))
        computed = functional.linear(x, large.weight * 1)
        added = torch.addmm(large.bias, x, large.weight * 1)
        half = torch.addmm(large.bias, x, large.weight, beta=0.5)
    torch.testing.assert_close(computed, x @ large.weight.t())
    torch.testing.assert_close(added, large.bias + x @ large.weight)
    torch.testing.assert_close(half, large.bias / 2 + x @ large.weight)


class _Asking(nn.Module):
    """Layers between which it computes `other` where it is exported; their calls are counted."""

    def __init__(self, other: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 300), nn.Linear(300, 300)
        self.last, self.other = nn.Linear(300, 4), other

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        factor = self.other if torch.compiler.is_exporting() else 1.0
        return self.last(self.second(x) * factor)


@pytest.mark.parametrize("other", [1.0, 1.1])
def test_layers_are_whole_where_thinned_ones_make_a_difference(
    other: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    module, x = _Asking(other).eval(), torch.randn(3, 4)
    for layer in (module.last, module.first):
        nn.init.zeros_(layer.bias)
    nn.init.zeros_(module.second.bias)
    thin: list[bool] = []
    enter = Thinned.__enter__

    def entered(mode: Thinned) -> object:
        thin.append(True)
        return enter(mode)

    monkeypatch.setattr(Thinned, "__enter__", entered)
    if other == 1.0:
        sambac.compile(module, inputs=(x,))  # a warning is an error here
    else:
        with pytest.warns(UserWarning, match=r"up to 10\.0 % of the largest number apart"):
            sambac.compile(module, inputs=(x,))
    assert len(thin) == 2
