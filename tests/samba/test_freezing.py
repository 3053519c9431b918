"""Parameters that are frozen, and settings of modules that change, after a model was compiled."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import optim, utils
from sambaflow.samba.trace.dropout_rates import own_rates


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.norm, self.act = nn.LayerNorm(4, elementwise_affine=False), nn.ReLU6()
        self.scales: dict[str, object] = {"by": 2.0}
        self.batch, self.unread = 0, 0
        self.seen: list[int] = []

    @property
    def rows(self) -> int:
        return self.batch if self.found else 0

    def forward(self, x: Tensor) -> Tensor:
        self.batch, self.found = x.shape[0], True
        self.seen[:] = [self.batch]
        scaled = self.norm(self.first(x)) * self.scales["by"] * self.rows
        return self.second(self.act(scaled)).square().mean()


def _inputs() -> tuple[samba.SambaTensor]:
    return (samba.from_torch_tensor(torch.arange(12.0).reshape(4, 3) / 6 - 1, name="x"),)


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[nn.Module, object]]:
    torch.manual_seed(0)
    model = samba.from_torch_model(_Net())
    ours = optim.SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(
        *(model, _inputs(), ours), name="net", config_dict={"output_folder": str(tmp_path)}
    )
    outputs = utils.trace_graph(model, _inputs(), ours, pef=pef)
    yield model, outputs
    samba.session.reset()


def test_freezing_after_tracing_is_told_once_and_has_no_effect(traced) -> None:
    model, outputs = traced
    samba.session.run(_inputs(), outputs)
    before = model.first.weight.detach().clone()
    model.first.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # neither runs that update nothing, nor evaluation
        samba.session.run(_inputs(), outputs, section_types=["FWD"])
    with pytest.warns(UserWarning, match=r"goes on training first\.weight, first\.bias, frozen"):
        samba.session.run(_inputs(), outputs)
    samba.session.to_cpu(model)
    assert not torch.equal(model.first.weight, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samba.session.run(_inputs(), outputs)
    model.second.bias.requires_grad_(False)
    with pytest.warns(UserWarning, match=r"goes on training second\.bias, frozen"):
        samba.session.run(_inputs(), outputs)


def test_what_is_traced_for_inference_is_not_told_of(traced) -> None:
    model, _ = traced
    outputs = utils.trace_graph(model, _inputs(), None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samba.session.run(_inputs(), outputs, section_types=["FWD"])


_CHANGES: dict[str, Callable[[_Net], object]] = {
    "norm.eps": lambda model: setattr(model.norm, "eps", 0.5),
    "act.max_val": lambda model: setattr(model.act, "max_val", 3.0),
    "scales": lambda model: model.scales.update(by=3.0),
    "act": lambda model: model.register_module("act", nn.GELU()),
}
"""What changes what forward computes, beside tensors."""


def _forget_what_is_idle(model: _Net) -> None:
    model.unread, model.batch = 7, 9  # nobody reads it, and forward itself writes it
    model.seen.append(9)
    model.norm.eps = float(str(model.norm.eps))
    model.eval().train()


def test_settings_that_change_after_tracing_are_told_once(traced) -> None:
    model, outputs = traced
    for name, change in _CHANGES.items():
        change(model)
        words = rf"goes on computing with what was compiled; .*: {re.escape(name)}\b"
        with pytest.warns(UserWarning, match=words):
            samba.session.run(_inputs(), outputs)
        _forget_what_is_idle(model)
        model.norm.eps += 0.1  # as what counts steps does
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            samba.session.run(_inputs(), outputs)


def test_settings_that_a_pef_has_otherwise_are_told(traced) -> None:
    pef = samba.session.device.path
    for name, change in _CHANGES.items():
        model = samba.from_torch_model(_Net())
        _forget_what_is_idle(model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            utils.trace_graph(model, _inputs(), None, pef=pef)
        change(model)
        words = rf"compiled with other settings of modules: {re.escape(name)} is "
        with pytest.warns(UserWarning, match=words):
            utils.trace_graph(model, _inputs(), None, pef=pef)


def test_a_model_traced_with_inference_is_not_trained(traced) -> None:
    model, _ = traced
    model.requires_grad_(True)
    before = model.first.weight.detach().clone()
    ours = optim.SGD(model.parameters(), lr=0.1)
    outputs = utils.trace_graph(model, _inputs(), ours, config_dict={"inference": True})
    samba.session.run(_inputs(), outputs)
    samba.session.to_cpu(model)
    assert torch.equal(model.first.weight, before)


class _Dropping(nn.Module):
    """Drops at a rate of its own; what it scales by is no rate."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.dropout = rate
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, p=self.dropout, training=self.training) * self.scale


class _Always(_Dropping):
    """Drops in inference, too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout)


class _Switched(_Dropping):
    """Drops where somebody wants it to, also in inference."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, training=self.scale > 1)


class _Scaled(_Dropping):
    """Reads its rate for something else, elsewhere."""

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(nn.functional.dropout(x, self.dropout, self.training))

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.dropout


class _Given(_Dropping):
    """Gives itself to somebody who may read anything."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.dropout, self.training) * _scale_of(self)


class _Own(_Dropping):
    """Calls something that is no dropout, but is called so."""

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


def _scale_of(module: _Given) -> float:
    return module.scale


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    return x * rate if training else x / rate


def test_only_what_goes_to_dropouts_alone_is_a_rate() -> None:
    assert own_rates(_Dropping) == {"dropout"}
    for kind in (nn.Linear, _Always, _Switched, _Scaled, _Given, _Own):
        assert own_rates(kind) == set(), kind


@pytest.mark.parametrize("kind", [lambda rate: nn.GRU(3, 3, 2, dropout=rate), _Dropping])
def test_rates_that_drop_nothing_in_inference_are_not_told_of(
    tmp_path: Path, kind: Callable[[float], nn.Module]
) -> None:
    def model(rate: float) -> nn.Module:
        return samba.from_torch_model(kind(rate))

    settings = {"output_folder": str(tmp_path), "inference": True}
    first = model(0.1)
    pef = samba.session.compile(first, _inputs(), name="net", config_dict=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = utils.trace_graph(second := model(0.2), _inputs(), None, pef=pef)
        second.dropout = 0.3
        samba.session.run(_inputs(), outputs)
        samba.session.reset()
