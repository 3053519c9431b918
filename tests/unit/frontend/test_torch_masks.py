"""What masks select, with sizes that depend on values: results and gradients beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.nn import functional
from torch_runs import Lambda

import sambac
import sambarun
from sambac.errors import CompileError

Function = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]

_A, _B = (torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))


class Net(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.tensor([0.5, -1.5, 2.0, 1.0]))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return self.function(a * self.w, b, self.w)


def _scaled(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y[y < 0] *= 0.1
    y[y > 0.5] = y[y > 0.5] * 0 + 1
    return y, (y[b > 0] > 0).to(y.dtype).sum()


def _from_another(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask, other = b > 0, torch.zeros_like(b)
    y[mask] = y[mask] * 2 + torch.log(b[mask])
    other[~mask] = -y[~mask] * y.sum()
    return y, other


def _summed(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask = b > 0
    chosen = y[mask]
    return chosen.sum() + (chosen - b[mask]).square().mean(), y[y > 0].log().mean()


def _losses(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask = b > 0
    binary = functional.binary_cross_entropy_with_logits
    return (
        functional.mse_loss(y[mask], b[mask]),
        functional.l1_loss(y[mask], b[mask], reduction="sum"),
        functional.smooth_l1_loss(y[mask], b[mask], beta=0.3),
        functional.huber_loss(y[mask], b[mask], delta=0.4),
        binary(y[mask], b[mask].sigmoid(), weight=b[mask]),
    )


def _rows(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask = b.sum(1) > 0
    y[mask] = y[mask].tanh() + w
    return y, (y[mask] * w - b[mask]).abs().mean()


def _said_twice(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    z = torch.zeros_like(y)
    z[b.sum(1) > 0] = (y[b.sum(1) > 0] * w).exp() * 2
    return (z,)


def _nothing(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask = b > 100
    y[mask] = y[mask].log()
    return y, (y - y)[mask].sqrt().sum() + y[mask].sum() + y.sum()


def _beside_nothing(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """What lies beside has no gradient from where nothing is, whatever its slope is there."""
    rows, z = b.sum(1) > 100, torch.zeros_like(b)
    y[b > 100] = w.sum() / (b[b > 100] - 1)
    z[rows] = torch.log(b[rows] - 1) * w + w / (b[rows] - b[rows])
    return y, z, (w[0] / (y - y)[b > 100]).sum() + y.sum()


def _selected(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask, chosen = b > 0, y.masked_select(b > 0) - torch.masked_select(b, b > 0)
    loss = functional.l1_loss(y.masked_select(mask), torch.masked_select(b, mask))
    return chosen.square().mean(), torch.masked_select(w, b > 0).sum() + y.sum(), loss


def _detached(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    mask = b > 0
    return (y[mask] * y[mask].detach()).sum(), torch.where(y[mask] > 0, y[mask], 0).sum()


def _classes(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Losses of the classes of rows, where rows that are not selected have none."""
    classes, rows, none = b.argmax(1), b.sum(1) > 0, b.sum(1) > 100
    z = y / torch.where(rows, 1, 0).unsqueeze(1)
    deep, pairs = torch.stack([y, b * w]), torch.stack([rows, ~rows])
    both = torch.stack([classes, classes])
    entropy = functional.cross_entropy
    return (
        entropy(z[rows], classes[rows], label_smoothing=0.1),
        entropy(y[classes > 0], classes[classes > 0], reduction="sum", ignore_index=1),
        entropy(deep[pairs], both[pairs], weight=b[0].abs()),
        functional.nll_loss(y.log_softmax(1)[rows], classes[rows]),
        entropy(y[none], classes[none], reduction="sum") + y.sum(),
    )


def _class_forms(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Losses of classes of rows that are computed, selected from several axes, or left as rows."""
    entropy, classes = functional.cross_entropy, b.argmax(1)
    rows, deep = b.sum(1) > 0, torch.stack([y, b * w])
    pairs, both = torch.stack([rows, ~rows]), torch.stack([classes, classes])
    chosen = y[rows]
    each = entropy(chosen / 2, b[rows].argmax(1), reduction="none")
    return (
        entropy(deep[pairs].view(-1, 4), both[pairs].view(-1)),
        entropy(deep.view(-1, 4)[pairs.view(-1)], both.view(-1)[pairs.view(-1)]),
        each.mean() + each.max() + entropy(chosen @ b.T @ b, classes[rows]),
        -chosen.log_softmax(-1).gather(1, classes[rows].unsqueeze(1)).mean(),
        functional.nll_loss(chosen.log_softmax(1), classes[rows], b[0].abs(), ignore_index=2),
    )


def _weighed(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Losses that weigh what is selected by what is not."""
    loss, (mask, rows) = functional.binary_cross_entropy_with_logits, (b > 0, b.sum(1) > 0)
    weights = b[0].abs()
    return (
        loss(y[mask], b[mask].sigmoid(), pos_weight=weights.sum()),
        loss(y[rows], b[rows].sigmoid(), weights, pos_weight=weights * 2, reduction="sum"),
        functional.poisson_nll_loss(y[mask], w.sum()) + y.sum(),
    )


def _row_by_row(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """What is computed of each row, and then of all."""
    rows, columns = b.sum(1) > 0, b[0] > 0
    chosen, other = y[rows], b[rows]
    near, log = functional.cosine_similarity(chosen, other, dim=-1), chosen.log_softmax(-1)
    square = functional.mse_loss(chosen, other, reduction="none")
    return (
        square.mean() + square.sum(1).amax() + square.mean(0).prod() + square.mean((0, 1)),
        square.sum() / chosen.shape[0] + square.sum() / chosen.numel() + near.mean(),
        functional.kl_div(log, other.softmax(-1), reduction="batchmean"),
        (chosen - other).norm() + (chosen - other).norm(dim=1).mean() + chosen.min(),
        functional.layer_norm(chosen, (4,), w).square().mean() + (chosen @ b.T).relu().mean(),
        y[:, columns].softmax(0).square().mean() + functional.normalize(chosen, dim=1).sum(),
        functional.binary_cross_entropy(chosen.sigmoid(), other.sigmoid()),
    )


def _places(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Places that a mask is made into select what the mask does, all of them."""
    rows = b.sum(1) > 0
    at, (i, j) = rows.nonzero(), (b > 0).nonzero(as_tuple=True)
    return (
        y[i, j].square().mean() + y[torch.where(b > 0)].exp().sum(),
        y[at.squeeze(1)].softmax(1).square().mean()
        + y.index_select(0, at[:, 0]).sum(1).exp().sum(),
        torch.index_put(y, (at.view(-1),), y[rows].softmax(1)),
        torch.zeros_like(y).index_copy(0, at.view(-1), y.index_select(0, at.view(-1)) @ b.T @ b),
    )


def _back_by_rows(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    rows, pairs = b.sum(1) > 0, (b[:, :2] > 0)
    deep = torch.stack([y, b * w], 1)
    y[rows] = y[rows].softmax(1) * w
    deep[pairs] = deep[pairs].log_softmax(1)
    return y, deep


def _steep(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """What lies beside has its gradient from all places: at those not selected, too."""
    mask = b.sum(1) > 0
    y[mask] = w / b[mask] + w / (b[mask] - 1)
    return (y,)


def _written(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """A mask has no gradients, though it comes of what has: it may be written once detached."""
    mask = (y < 0).detach()
    mask[torch.where(mask.sum(1) == 2)] = False
    return (y.masked_fill(mask, 0.0) * w,)


@pytest.mark.parametrize(
    "function",
    [
        *(_scaled, _from_another, _summed, _losses, _rows, _said_twice, _nothing),
        *(_beside_nothing, _selected, _detached, _classes, _steep, _written),
        *(_class_forms, _weighed, _row_by_row, _places, _back_by_rows),
    ],
    ids=lambda function: function.__name__.strip("_"),
)
def test_what_a_mask_selects_goes_back_or_is_summed_up(function: Function) -> None:
    exact, inputs = exactly(Net(function)), exactly((_A, _B))
    wanted = exact(*inputs)
    torch.autograd.backward(
        [x for x in wanted if x.requires_grad],
        [torch.ones_like(x) for x in wanted if x.requires_grad],
    )
    names = [f"output_{place}" for place in range(len(wanted))]
    started = tuple(n for n, x in zip(names, wanted, strict=True) if x.requires_grad)
    options = sambac.CompileOptions(train=True, backward_from=started)
    feeds = {"a": _A.numpy(), "b": _B.numpy()}
    with sambarun.load(sambac.compile(Net(function), options, inputs=(_A, _B))) as executable:
        found = executable.run(feeds) | executable.read("w__grad")
    with sambarun.load(sambac.compile(Net(function), inputs=(_A, _B))) as executable:
        evaluated = executable.run(feeds)
    for name, want in zip(names, wanted, strict=True):
        assert_near(found[name], want, what=name)
        assert_near(evaluated[name], want, what=name)
    assert exact.w.grad is not None
    assert_near(found["w__grad"], exact.w.grad, what="gradient")


def test_a_mean_of_nothing_is_none() -> None:
    module = Net(lambda y, b, w: (y[b > 100].mean(), y[b > 100].sum()))
    with sambarun.load(sambac.compile(module, inputs=(_A, _B))) as executable:
        mean, total = executable.run({"a": _A.numpy(), "b": _B.numpy()}).values()
    assert np.isnan(mean)
    assert total == 0


def test_as_many_rows_as_come_have_masks() -> None:
    def chosen(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y[y > 0] = y[y > 0].sqrt()
        return y, (y[b > 0] - b[b > 0]).abs().mean(), y[b < 0].sum(dtype=torch.float64)

    module, rows = Net(chosen), torch.export.Dim("rows")
    shapes = {"a": {0: rows}, "b": {0: rows}}
    program = sambac.compile(module, inputs=(_A, _B), dynamic_shapes=shapes)
    with sambarun.load(program) as executable:
        for a, b in ((torch.cat([_A, _B]), torch.cat([_B, _B])), (_A[:0], _B[:0])):
            found = executable.run({"a": a.numpy(), "b": b.numpy()})
            for name, want in zip(found, exactly(module)(*exactly((a, b))), strict=True):
                assert_near(found[name], want, what=name)


@pytest.mark.parametrize(("shape", "mask"), [((0, 3), (0, 3)), ((0, 3), (0,)), ((4, 0), (4,))])
def test_of_nothing_nothing_is_selected(shape: tuple[int, ...], mask: tuple[int, ...]) -> None:
    module = Lambda(lambda x, m: torch.index_put(x, (m,), x[m].exp() + x[m].sum()).sum() + 2)
    given = torch.zeros(shape), torch.ones(mask, dtype=torch.bool)
    with sambarun.load(sambac.compile(module, inputs=given)) as executable:
        ports = [port.name for port in executable.program.graphs[0].inputs]
        feeds = {port: one.numpy() for port, one in zip(("args_0", "args_1"), given, strict=True)}
        (found,) = executable.run({port: feeds[port] for port in ports}).values()
    assert found == 2


_OF_OTHERS = (
    lambda y, b, w: torch.index_put(y, (b > 0,), y[b > 0].cumsum(0)),
    lambda y, b, w: torch.index_put(y, (b > 0,), y[b > 0] * y[b > 0].shape[0]),
)
"""Functions that put back what they compute of other elements, or of their number."""


@pytest.mark.parametrize(
    "function",
    [
        lambda y, b, w: y[b > 0][y[b > 0] > 0].sum(),
        lambda y, b, w: functional.kl_div(y[b > 0], b[b > 0], reduction="sum"),
        *_OF_OTHERS,
        lambda y, b, w: torch.index_put(y, (b > 100,), y[b > 100].cumsum(0)),
        lambda y, b, w: torch.index_put(y, (b[:, 0] < 0,), y[b[:, 0] < 0].cumsum(0)[:, :1]),
        lambda y, b, w: y.masked_scatter(b > 0, y[b > 0].sort().values),
        lambda y, b, w: torch.index_put(y, (b > 0,), y[b > 0].flip(0), accumulate=False) * w,
    ],
    ids=[
        "twice",
        "another loss",
        "along it",
        "its size",
        "of nothing",
        "of rows",
        "in order",
        "back",
    ],
)
def test_what_is_read_otherwise_runs_where_nothing_trains(function: Function) -> None:
    module = Net(function)
    with sambarun.load(sambac.compile(module, inputs=(_A, _B))) as executable:
        (found,) = executable.run({"a": _A.numpy(), "b": _B.numpy()}).values()
    assert_near(found, exactly(module)(*exactly((_A, _B))))


@pytest.mark.parametrize(
    "function",
    [
        lambda y, b, w: functional.mse_loss(y[b > 0], b[y > 0]),
    ],
    ids=["two sizes"],
)
def test_what_reads_other_elements_or_their_number_is_refused(function: Function) -> None:
    with pytest.raises(CompileError, match=r"cannot be exported.*: a size in it depends on values"):
        sambac.compile(Net(function), inputs=(_A, _B))


def test_classes_of_other_rows_fail_in_a_run_of_another_number() -> None:
    def loss(y: Tensor, b: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return (functional.cross_entropy(y[y[:, 0] > 0], b[b[:, 0] > 0].argmax(1)),)

    module, given = Net(loss), (_A.abs(), _B.abs())
    with sambarun.load(sambac.compile(module, inputs=given)) as executable:
        (found,) = executable.run({"a": given[0].numpy(), "b": given[1].numpy()}).values()
        assert_near(found, exactly(module)(*exactly(given))[0])
        fewer = given[1] * torch.tensor([[1], [-1], [1]])
        with pytest.raises(sambarun.RunError):
            executable.run({"a": given[0].numpy(), "b": fewer.numpy()})


@pytest.mark.parametrize("function", _OF_OTHERS, ids=["along it", "its size"])
def test_what_is_put_back_so_is_refused_where_it_trains(function: Function) -> None:
    options = sambac.CompileOptions(train=True)
    with pytest.raises(CompileError, match="depends on"):
        sambac.compile(Net(lambda y, b, w: function(y, b, w).sum()), options, inputs=(_A, _B))
