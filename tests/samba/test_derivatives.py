"""Models that take derivatives inside forward: traced to infer, where parameters want none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.graph import FwdGraph


class Stepped(nn.Module):
    """What a layer gives after a step of its own, and how steep that is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.requires_grad_()
        loss = (x @ self.weight).square().sum()
        (slope,) = torch.autograd.grad(loss, self.weight, create_graph=True)
        found = x @ (self.weight - 0.1 * slope)
        return found, torch.autograd.grad(found.sum(), x)[0]


X = torch.randn(4, 2, generator=torch.Generator().manual_seed(2))


def _inputs() -> tuple[samba.SambaTensor, ...]:
    return (samba.from_torch_tensor(X.clone(), name="x"),)


def _require_torchs(found: list[samba.SambaTensor]) -> None:
    for mine, exact in zip(found, Stepped().double()(X.double()), strict=True):
        torch.testing.assert_close(mine.torch().double(), exact.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trains", [False, True])
def test_a_traced_model_infers_and_is_traced_again(trains, tmp_path):
    model = Stepped()
    samba.from_torch_model_(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1) if trains else None
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, _inputs(), optimizer, loss_indices=[0], config_dict=config)
    for _ in range(2):  # parameters want no gradients the second time
        outputs = utils.trace_graph(model, _inputs(), pef=pef)
        assert not any(output.requires_grad for output in outputs)
        assert not any(parameter.requires_grad for parameter in model.parameters())
        _require_torchs(samba.session.run(_inputs(), outputs, section_types=["fwd"]))


def test_a_graph_among_several_infers(tmp_path):
    model = Stepped()
    samba.from_torch_model_(model)
    inputs = _inputs()
    outputs = utils.trace_multigraph(model, inputs, trace_prefix="one")
    samba.session.add_graph(FwdGraph(inputs, outputs, name="one"))
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile_multigraph(name="one", config_dict=config, inference=True)
    samba.session.init_multigraph_runtime(pef)
    samba.session.run(inputs, graph_name="one")
    _require_torchs(samba.session.get_tensors(outputs))
