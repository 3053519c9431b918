"""A model with lazy parameters is compiled; what has values beside them is kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

import sambac
import sambarun
from pef import SymbolKind
from sambaflow.samba import lazy_param as lazy
from sambaflow.samba.materialize import materialize


class _Net(nn.Module):
    """Lazy parameters beside a buffer, a constant and a parameter that has values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.Tensor([1.0, 2.0, 3.0, 4.0]))
        self.constant = torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.outer(self.norm(self.inner(x))) * self.shift + self.constant).square().mean()


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    lazy.disable_lazy_param()


@pytest.mark.parametrize("train", [True, False])
def test_a_lazy_model_compiles_and_computes_once_it_has_values(train: bool) -> None:
    lazy.enable_lazy_param(seed=1)
    model, x = _Net(), torch.randn(5, 6)
    if not train:
        model.eval()
    optimizers = (sambac.SGD(lr=0.1),) if train else ()
    with lazy.paused():
        assert not lazy.use_lazy_param()
        options = sambac.CompileOptions(train=train, optimizers=optimizers)
        program = sambac.compile(model, options, inputs=(x,))
    assert lazy.use_lazy_param()
    assert model.inner.weight.is_meta
    held = {s.name for s in program.symbols if s.kind is SymbolKind.WEIGHT and s.data is not None}
    absent = {s.name for s in program.symbols if s.kind is SymbolKind.WEIGHT and s.data is None}
    assert "shift" in held
    assert {"inner.weight", "outer.bias"} <= absent
    if train:
        with materialize(model):
            executable = sambarun.load(program)
            executable.write({n: p.detach().numpy() for n, p in model.named_parameters()})
            (found,) = executable.run({"x": x.numpy()}, section_types="FWD", train=True).values()
            assert found == pytest.approx(model(x).item(), rel=1e-5)
