"""Parameters that are frozen after a model was traced for training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import optim, utils


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).square().mean()


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
