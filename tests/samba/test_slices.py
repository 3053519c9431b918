"""Slices that are gathered and scattered, and draws: beside loops, with gradients, compiled."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.sn_private import sn_gather, sn_multinomial, sn_scatter

B, H, S, D = 2, 3, 8, 4
_CACHE = torch.arange(float(B * H * S * D)).view(B, H, S, D)
_NEW = -torch.rand(B, 2, H, 1, D, generator=torch.Generator().manual_seed(0)) - 1


def _indices(*values: int, shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32).view(shape)


def _windows(tensor: Tensor, starts: Tensor, dims: list[int], batched: int):
    """Yield each place of `starts`, and the slices that begin there, for sizes of a slice."""
    sizes = tensor.shape[batched:]
    for place in itertools.product(*map(range, starts.shape[:-1])):
        batch = [p if tensor.shape[d] > 1 else 0 for d, p in enumerate(place[:batched])]
        begin = dict(zip(dims, starts[place].tolist(), strict=True))

        def cut(lengths, batch=batch, begin=begin):
            ends = [begin.get(d, 0) + lengths.get(d, size) for d, size in enumerate(sizes)]
            inside = all(begin.get(d, 0) >= 0 and end <= sizes[d] for d, end in enumerate(ends))
            return inside, (*batch, *(slice(begin.get(d, 0), e) for d, e in enumerate(ends)))

        yield place, cut


def gathered(tensor: Tensor, starts: Tensor, dims, lengths, batched: int = 0) -> Tensor:
    """What sn_gather gives, slice by slice."""
    found = {}
    for place, cut in _windows(tensor, starts, dims, batched):
        inside, where = cut(dict(zip(dims, lengths, strict=True)))
        assert inside
        found[place] = tensor[where]
    return torch.stack([*found.values()]).view(*starts.shape[:-1], *found[place].shape)


def scattered(operand, update, starts, dims, add: bool, batched: int = 0) -> Tensor:
    """What sn_scatter gives, slice by slice."""
    result = operand.clone()
    for place, cut in _windows(operand, starts, dims, batched):
        inside, where = cut({d: update.shape[starts.dim() - 1 + d] for d in dims})
        if inside:
            value = update[place].to(operand.dtype)
            result[where] = result[where] + value if add else value
    return result


_GATHERS = {
    "rows": (torch.rand(4, 3), _indices(3, 0, shape=(1, 2, 1)), [0], [1], 0),
    "columns": (torch.rand(3, 4), _indices(3, 0, shape=(1, 2, 1)), [1], [1], 0),
    "blocks": (torch.rand(5, 5), _indices(0, 0, 1, 1, 3, 2, shape=(3, 2)), [0, 1], [2, 3], 0),
    "in another order": (torch.rand(4, 6), _indices(3, 2, shape=(1, 2)), [1, 0], [2, 2], 0),
    "of each batch": (torch.rand(2, 9), _indices(1, 6, 0, 2, shape=(2, 2, 1)), [0], [3], 1),
    "heads": (_CACHE, _indices(1, 2, 3, 4, 5, 6, shape=(2, 3, 1)), [0], [2], 2),
    "behind heads": (_CACHE, _indices(1, 7, shape=(2, 1, 1)), [1], [1], 1),
}


@pytest.mark.parametrize("case", _GATHERS)
def test_gathering_is_that_of_a_loop(case: str) -> None:
    tensor, starts, dims, lengths, batched = _GATHERS[case]
    found = sn_gather(tensor, starts, dims, lengths, batched)
    assert torch.equal(found, gathered(tensor, starts, dims, lengths, batched))
    assert samba.functional.sn_gather is sn_gather


def test_one_row_of_indices_is_that_of_all_batches() -> None:
    rows, once = torch.arange(20).view(2, 10), _indices(3, 8, shape=(1, 2, 1))
    assert sn_gather(rows, once, [0], [2], 1).tolist() == [[[3, 4], [8, 9]], [[13, 14], [18, 19]]]


_SCATTERS = {
    # An update of T keys for each head, at positions of its own in each batch.
    "cache": (_CACHE, _NEW, _indices(1, 6, 0, 7, shape=(2, 2, 1)), [1], 1),
    "partly outside": (_CACHE, _NEW, _indices(8, 6, 0, -1, shape=(2, 2, 1)), [1], 1),
    "counts": (
        torch.zeros(2, 5),
        torch.ones(2, 3, 1),
        _indices(4, 4, 0, 5, 1, 1, shape=(2, 3, 1)),
        [0],
        1,
    ),
    "largest": (
        torch.rand(2, 4),
        torch.full((2, 1, 1), -9.0),
        _indices(0, 3, 1, 0, shape=(2, 2)),
        [0, 1],
        0,
    ),
    "blocks": (
        torch.rand(4, 6),
        torch.rand(2, 2, 3),
        _indices(0, 0, 2, 3, shape=(2, 2)),
        [0, 1],
        0,
    ),
    "blocks outside": (
        torch.rand(4, 6),
        torch.rand(2, 2, 3),
        _indices(3, 0, 2, 4, shape=(2, 2)),
        [0, 1],
        0,
    ),
    "masks": (
        torch.ones(2, 1, 3, 6),
        torch.zeros(2, 1, 3, 2, 1),
        _indices(*range(6), *range(6), shape=(2, 1, 3, 2, 1)),
        [0],
        3,
    ),
}


@pytest.mark.parametrize("operation", ["kUpdate", "kAdd"])
@pytest.mark.parametrize("case", _SCATTERS)
def test_scattering_is_that_of_a_loop(case: str, operation: str) -> None:
    operand, update, starts, dims, batched = _SCATTERS[case]
    before = operand.clone()
    found = sn_scatter(operand, update, starts, dims, operation, False, batched)
    expected = scattered(operand, update, starts, dims, operation == "kAdd", batched)
    torch.testing.assert_close(found, expected)
    assert torch.equal(operand, before)
    assert samba.functional.sn_scatter is sn_scatter


def test_an_update_is_converted_to_the_type_of_what_it_changes() -> None:
    counts = torch.zeros(1, 3, dtype=torch.int32)
    found = sn_scatter(
        counts,
        torch.ones(1, 1, 1, dtype=torch.int64),
        _indices(1, shape=(1, 1, 1)),
        [0],
        "kAdd",
        batched_dims=1,
    )
    assert found.dtype is torch.int32
    assert found.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("operation", ["kUpdate", "kAdd"])
def test_slices_have_gradients(operation: str) -> None:
    starts = _indices(1, 9, shape=(2, 1, 1))
    operand = torch.rand(2, 4, 2, dtype=torch.float64, requires_grad=True)
    update = torch.rand(2, 1, 2, 2, dtype=torch.float64, requires_grad=True)

    def scatter(operand: Tensor, update: Tensor) -> Tensor:
        return sn_scatter(operand, update, starts, [0], operation, batched_dims=1)

    assert torch.autograd.gradcheck(scatter, (operand, update))
    inside = _indices(1, 2, shape=(2, 1, 1))
    assert torch.autograd.gradcheck(lambda x: sn_gather(x, inside, [0], [2], 1), (operand,))


_PROBS = torch.tensor([[0.0, 0.2, 0.3, 0.5, 0.0], [1.0, 1.0, 1.0, 1.0, 6.0]])
_RANDOMS = torch.tensor([[0.0, 0.19, 0.21, 0.51, 0.999, 1.0], [0.0, 0.15, 0.25, 0.35, 0.39, 1.0]])
_DRAWN = [[1, 1, 2, 3, 3, 3], [0, 1, 2, 3, 3, 4]]


def test_draws_come_from_the_randoms_that_are_given() -> None:
    found = sn_multinomial(_PROBS, _RANDOMS)
    assert found.dtype is torch.int64
    assert found.tolist() == _DRAWN
    assert sn_multinomial(_PROBS[0], _RANDOMS[0]).tolist() == _DRAWN[0]
    many = torch.rand(1, 20000, generator=torch.Generator().manual_seed(0))
    counted = torch.bincount(sn_multinomial(_PROBS[1:], many)[0], minlength=5) / 20000
    torch.testing.assert_close(counted, _PROBS[1] / 10, atol=0.02, rtol=0)
    with pytest.raises(ValueError, match=r"probs is \[2, 5\] and pre_generated_randoms \[3, 1\]"):
        sn_multinomial(_PROBS, torch.rand(3, 1))


class _Decoder(torch.nn.Module):
    """A step of a decoder: keys into a cache, an entry of a table, a token that is drawn."""

    def forward(self, cache, new, position, probs, randoms):
        cache = samba.sn_scatter(cache, new, position, scatter_dims=[1], batched_dims=1)
        seen = samba.sn_gather(cache, position, [1], [1], batched_dims=1)
        counts = samba.sn_scatter(
            torch.zeros(2, 5, dtype=torch.int32),
            torch.ones(2, 6, 1, dtype=torch.int32),
            samba.sn_multinomial(probs, randoms).unsqueeze(-1),
            [0],
            rmw_op="kAdd",
            batched_dims=1,
        )
        return cache, seen, counts


def test_slices_and_draws_are_compiled(tmp_path) -> None:
    plain = {
        "cache": _CACHE,
        "new": _NEW,
        "position": _indices(1, 6, 0, 7, shape=(2, 2, 1)),
        "probs": _PROBS,
        "randoms": _RANDOMS,
    }
    inputs = tuple(samba.from_torch_tensor(t, name=name) for name, t in plain.items())
    model, config = _Decoder(), {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, inputs, config_dict=config, inference=True)
    found = samba.session.run(inputs, utils.trace_graph(model, inputs, pef=pef))
    for ours, expected in zip(found, model(*plain.values()), strict=True):
        assert torch.equal(ours.torch(), expected)
    assert found[2].tolist() == [[0, 2, 1, 3, 0], [1, 1, 1, 2, 1]]


class _Memory(torch.nn.Module):
    """A table that is written and read by position, and trained through both."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.linspace(-1, 1, 12).view(4, 3))
        self.new = torch.nn.Parameter(torch.ones(2, 1, 3))

    def forward(self, position: Tensor) -> Tensor:
        written = sn_scatter(self.table, self.new, position, [0])
        added = sn_scatter(written, self.new, position, [0], rmw_op="kAdd")
        return (sn_gather(added, position.flip(0), [0], [1]) ** 2).mean() + (added**3).mean()


def test_gradients_on_the_device_are_those_of_the_host(tmp_path) -> None:
    position = samba.from_torch_tensor(_indices(1, 3, shape=(2, 1)), name="position")
    model, host = samba.from_torch_model(_Memory()), _Memory()
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (position,), optimizer, config_dict=config)
    outputs = utils.trace_graph(model, (position,), optimizer, pef=pef)
    samba.session.run((position,), outputs)
    host(position.torch()).backward()
    torch.testing.assert_close(model.table.sn_grad, host.table.grad)
    torch.testing.assert_close(model.new.sn_grad, host.new.grad)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: sn_gather(x, _indices(0, 0, shape=(1, 2)), [0], [2]), "2 indices a slice for"),
        (lambda x: sn_gather(x, _indices(0, shape=(1, 1)), [-1], [2]), r"\[-1\] are not different"),
        (lambda x: sn_gather(x, _indices(0, shape=(1, 1)), [0], [5]), r"slice of \[5, 6\] is no"),
        (lambda x: sn_gather(x, _indices(0, shape=(1, 1)), [0], []), "0 gather_lengths for 1"),
        (lambda x: sn_gather(x, _indices(0, shape=(1,)), [0], [1], 1), "batched_dims is 1, more"),
        (
            lambda x: sn_gather(x, _indices(0, 0, shape=(2, 1)), [0], [1], 1),
            r"expected the batched sizes \[4\]",
        ),
        (
            lambda x: sn_scatter(x, torch.ones(1, 1, 5), _indices(0, shape=(1, 1)), [0], "kMax"),
            r"slice of \[1, 5\] is no part of \[4, 6\].*rmw_op is 'kMax', expected kUpdate or kAdd",
        ),
        (
            lambda x: sn_scatter(x, torch.ones(2, 1, 6), _indices(0, shape=(1, 1)), [0]),
            r"update is \[2, 1, 6\] and start_indices \[1, 1\]",
        ),
        (
            lambda x: sn_scatter(x.int(), torch.ones(1, 1, 6), _indices(0, shape=(1, 1)), [0]),
            r"update is torch\.float32, which torch\.int32 cannot hold",
        ),
        (lambda x: sn_scatter(x, x, _indices(shape=(4, 0)), []), r"dimensions \[\] are not"),
    ],
)
def test_what_does_not_fit_together_is_told_at_once(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call(torch.rand(4, 6))


def test_rows_that_are_not_there_are_an_error() -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        sn_gather(torch.rand(4, 6), _indices(4, shape=(1, 1)), [0], [1])
