"""Rows that masks select, added up by indices, as layers of graphs have them: beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from derivative_steps import Taking, require_steps_of_torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.nn import functional

import sambac
import sambarun
from sambac.errors import CompileError

Function = Callable[[Tensor, Tensor, Tensor], Tensor]

_NODES = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
_EDGES = torch.tensor([[0, 1, 1, 2, 3, 3], [1, 1, 2, 3, 3, 0]])
_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.25, 3.0, 1.5])


class Net(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([0.5, -1.5, 2.0]))

    def forward(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        return self.function(x * self.w, edges, weights).square().mean()


def _with_loops(edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    mask = edges[0] != edges[1]
    loops = torch.arange(nodes).repeat(2, 1)
    return torch.cat([edges[:, mask], loops], 1), mask


def _convolved(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """Messages weighted by the degrees of their nodes."""
    (source, goal), mask = _with_loops(edges, len(x))
    weights = torch.cat([weights[mask], x.new_ones(len(x))])
    degrees = x.new_zeros(len(x)).scatter_add(0, goal, weights).pow(-0.5)
    messages = (degrees[source] * weights * degrees[goal]).view(-1, 1) * x[source]
    return torch.zeros_like(x).index_add(0, goal, messages)


def _attended(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """A softmax over the edges of each node, of two heads."""
    (source, goal), _ = _with_loops(edges, len(x))
    heads = x.unsqueeze(1) * x.new_tensor([[1.0], [0.5]])
    scores = functional.leaky_relu((heads[source] + heads[goal]).sum(-1), 0.2)
    places = goal.view(-1, 1).expand_as(scores)
    zeros = scores.new_zeros(len(x), 2)
    most = zeros.scatter_reduce(0, places, scores.detach(), "amax", include_self=False)
    shares = (scores - most[goal]).exp()
    shares = shares / zeros.scatter_add(0, places, shares)[goal]
    messages = shares.unsqueeze(-1) * heads[source]
    return zeros.unsqueeze(-1).expand(-1, -1, x.shape[1]).index_add(0, goal, messages)


def _among_others(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """Rows that are all the same, and products of rows and a matrix; none, if all are loops."""
    mask = edges[0] != edges[1]
    source, goal = edges[:, mask]
    ones = torch.ones(source.shape[0], dtype=x.dtype)
    count = torch.zeros(len(x), dtype=x.dtype).index_add(0, goal, ones)
    matrix = torch.linspace(-1, 1, 6, dtype=x.dtype).reshape(2, 3)
    messages = functional.linear(x[source], matrix).softmax(1) / weights[mask].unsqueeze(1)
    sums = x.new_zeros(len(x), 2).index_add(0, goal, messages, alpha=2)
    best = x.new_zeros(len(x)).scatter_reduce(0, goal, x[source].amax(1), "mean")
    return torch.cat([sums / (count + 1).unsqueeze(1), best.unsqueeze(1)], 1)


def _in_heads(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """Messages of two heads, whose number of rows is said in the sizes of views."""
    (source, goal), _ = _with_loops(edges, len(x))
    matrix = torch.linspace(-1, 1, 18, dtype=x.dtype).reshape(6, 3)
    shares = functional.linear(x[source] - x[goal], matrix[:2]).softmax(1)
    messages = functional.linear(x[source], matrix)
    messages = messages.view(messages.size(0), 2, -1) * shares.view(-1, 2, 1)
    return torch.zeros_like(x).index_add(0, goal, messages.sum(1))


_CASES = {
    "some": (_EDGES, _WEIGHTS),
    "all": (torch.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 1]]), _WEIGHTS),
    "none": (torch.tensor([[0, 1, 2, 3, 3, 2]] * 2), _WEIGHTS * 0),
}


@pytest.mark.parametrize(
    "function",
    [_convolved, _attended, _among_others, _in_heads],
    ids=lambda function: function.__name__.strip("_"),
)
def test_rows_that_a_mask_selects_are_added_up(function: Function) -> None:
    options = sambac.CompileOptions(train=True)
    given = (_NODES, _EDGES, _WEIGHTS)
    with sambarun.load(sambac.compile(Net(function), options, inputs=given)) as executable:
        for edges, weights in _CASES.values():
            exact = exactly(Net(function))
            loss = exact(*exactly((_NODES, edges, weights)))
            loss.backward()
            feeds = {"x": _NODES.numpy(), "edges": edges.numpy(), "weights": weights.numpy()}
            ports = {port.name for port in executable.program.graphs[0].inputs}
            (found,) = executable.run({k: v for k, v in feeds.items() if k in ports}).values()
            assert_near(found, loss)
            assert_near(executable.read("w__grad")["w__grad"], exact.w.grad, what="gradient")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, e, w: x[e[0, e[0] != e[1]]].cumsum(0),
        lambda x, e, w: x[e[0, e[0] > 1]] * e[0, e[0] > 1].shape[0],
        lambda x, e, w: torch.zeros(4, 3).index_add(0, e[0, e[0] > 1].flip(0), x[e[1, e[0] > 1]]),
    ],
    ids=["along them", "their number", "in another order"],
)
def test_rows_that_are_read_otherwise_are_refused(function: Function) -> None:
    with pytest.raises(CompileError, match="depends on"):
        sambac.compile(
            Net(function), sambac.CompileOptions(train=True), inputs=(_NODES, _EDGES, _WEIGHTS)
        )


class Experts(nn.Module):
    """Each expert takes the rows that choose it, among their first two choices."""

    def __init__(self, places: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.places, self.gate = places, nn.Linear(3, 3)
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            row, choice = self.places(chosen == number)
            rows = expert(x[row]).tanh() * weights[row, choice, None]
            y.index_add_(0, row, rows)
        return y.square().sum()


def _turned(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and choices as Mixtral has them, of a mask of numbers [choices, rows]."""
    choice, row = torch.where(mask.long().t())
    return row, choice


def _in_columns(mask: Tensor) -> tuple[Tensor, Tensor]:
    places = mask.nonzero()
    return places[:, 0], places[:, -1]


@pytest.mark.parametrize(
    "places", [torch.where, _turned, _in_columns], ids=["where", "turned", "columns"]
)
def test_rows_of_experts_are_added_up(
    places: Callable[[Tensor], tuple[Tensor, Tensor]], tmp_path: Path
) -> None:
    """Also of experts that no row chooses."""
    torch.manual_seed(0)
    module = Experts(places)
    with torch.no_grad():
        module.gate.bias[2] = -9.0
    require_steps_of_torch(module, tmp_path / "m.pef", torch.randn(4, 3))


def test_rows_of_a_mask_with_one_axis_are_added_up(tmp_path: Path) -> None:
    def summed(weight: Tensor, x: Tensor) -> Tensor:
        row = (x[:, 0] > 0).nonzero().squeeze(-1)
        rows = functional.linear(x[row], weight)
        return x.new_zeros(3, 4).index_add(0, row, rows).square().sum()

    torch.manual_seed(0)
    require_steps_of_torch(Taking(summed), tmp_path / "m.pef", torch.randn(3, 4))
