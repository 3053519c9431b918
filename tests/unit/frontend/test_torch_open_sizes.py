"""Sizes that stay open until a program runs, said in PyTorch's own way."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

import sambac
import sambarun

_BATCH = Dim("batch", min=1, max=64)


class _Decoder(nn.Module):
    """Causal attention with a mask of padding, as wide as the keys and of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(40, 16)
        self.layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.mixed = nn.Linear(16, 48)
        self.head = nn.Linear(16, 40)

    def forward(self, ids: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        batch, length, width = x.shape
        causal = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.layer(x, memory, tgt_mask=causal)
        q, k, v = (
            part.view(batch, length, 2, 8).transpose(1, 2) for part in self.mixed(x).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, mask[:, None, None] > 0)
        return self.head(seen.transpose(1, 2).reshape(batch, length, width))


def _inputs(batch: int, length: int) -> dict[str, Tensor]:
    mask = torch.ones(batch, length)
    mask[0, -1] = 0
    ids = torch.randint(0, 40, (batch, length))
    return {"ids": ids, "memory": torch.randn(batch, 5, 16), "mask": mask}


def _check(program: object, module: nn.Module, sizes: list[tuple[int, int]]) -> None:
    with sambarun.load(program) as executable:
        for batch, length in sizes:
            inputs = _inputs(batch, length)
            feeds = {name: value.numpy() for name, value in inputs.items()}
            got = executable.run(feeds)["output"]
            np.testing.assert_allclose(got, module(**inputs).detach().numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def decoder() -> _Decoder:
    torch.manual_seed(0)
    return _Decoder().eval()


_OPEN_BATCH = {"ids": {0: _BATCH}, "memory": {0: _BATCH}, "mask": {0: _BATCH}}


def test_a_decoder_with_an_open_batch(decoder: _Decoder) -> None:
    program = sambac.compile(decoder, inputs=_inputs(2, 6), dynamic_shapes=_OPEN_BATCH)
    _check(program, decoder, [(1, 6), (2, 6), (7, 6)])


def test_an_open_length_too(decoder: _Decoder) -> None:
    length = Dim("length", min=2, max=32)
    shapes = {"ids": {0: _BATCH, 1: length}, "memory": {0: _BATCH}, "mask": {0: _BATCH, 1: length}}
    options = sambac.CompileOptions(level="O0")
    program = sambac.compile(decoder, options, inputs=_inputs(2, 6), dynamic_shapes=shapes)
    _check(program, decoder, [(1, 3), (3, 9)])


def test_programs_and_files_have_them_already(decoder: _Decoder, tmp_path: Path) -> None:
    made = torch.export.export(decoder, (), _inputs(2, 6), dynamic_shapes=_OPEN_BATCH)
    torch.export.save(made, tmp_path / "decoder.pt2")
    for model in (made, tmp_path / "decoder.pt2"):
        _check(sambac.compile(model), decoder, [(3, 6)])


class _Means(nn.Module):
    """Means over a batch, and what has none of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (
            x.mean(0),
            x.mean(),
            x.mean((0, 1), keepdim=True),
            x.mean(0, dtype=torch.float64),
            x.var(0),
            x.var(0, unbiased=False),
            x.std(0),
            functional.mse_loss(x, x + 1),
            functional.l1_loss(x, x + 1),
            functional.binary_cross_entropy_with_logits(x, x.sigmoid()),
            functional.cross_entropy(x, x.softmax(1)),
            functional.cross_entropy(x, x.argmax(1), label_smoothing=0.1),
            x.std(1),
            x.logcumsumexp(1),
        )


# PyTorch says so itself of variances of too few elements.
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
def test_means_of_a_batch_that_may_be_empty() -> None:
    module = _Means()
    inputs = (torch.randn(4, 5),)
    program = sambac.compile(module, inputs=inputs, dynamic_shapes=({0: Dim("rows")},))
    with sambarun.load(program) as executable:
        for rows in (0, 1, 3):
            x = torch.randn(rows, 5)
            found = executable.run({"x": x.numpy()})
            for at, want in enumerate(module(x)):
                made = found[f"output_{at}"]
                assert made.dtype == want.numpy().dtype
                np.testing.assert_allclose(made, want.numpy(), atol=1e-5, err_msg=f"{at}, {rows}")


class _Scattered(nn.Module):
    """Scattering over an open axis, as gates of experts and graphs do, also of larger sources."""

    def forward(self, x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        best, choice = x.topk(2)
        none, rows = torch.zeros_like(x), at[:, None].expand_as(x)
        return (
            none.scatter(1, choice, best),
            none.scatter_add(1, choice, x),
            x.scatter_reduce(0, rows, x * 2, "mean"),
            *(x.scatter_reduce(0, rows, x * 2, kind, include_self=False) for kind in _KINDS),
            x.scatter_reduce(1, choice, -x, "amax"),
        )


_KINDS = ("mean", "sum", "prod", "amax", "amin")


def test_scattering_over_an_open_axis() -> None:
    shapes = ({0: _BATCH}, {0: _BATCH})
    inputs = (torch.randn(4, 3), torch.tensor([1, 0, 1, 2]))
    program = sambac.compile(_Scattered(), inputs=inputs, dynamic_shapes=shapes)
    with sambarun.load(program) as executable:
        for rows in (1, 5):
            x, at = torch.randn(rows, 3), torch.randint(0, rows, (rows,))
            found = executable.run({"x": x.numpy(), "at": at.numpy()})
            for number, want in enumerate(_Scattered()(x, at)):
                made = found[f"output_{number}"]
                np.testing.assert_allclose(made, want.numpy(), atol=1e-6, err_msg=f"{number}")


class _Unrelated(nn.Module):
    """Operators that need some sizes, none of them that of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.rnn = nn.RNN(4, 3, batch_first=True, nonlinearity="relu")

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        rows, flat = x[:, 0], torch.zeros(x.shape[0], 5)
        some, all_of = rows.clone(), rows.clone()
        some[some > 0] = 7.0
        all_of[all_of[:, 0] > 0] = torch.arange(4.0)
        return (
            self.lstm(x)[0],
            *self.lstm(x)[1],
            *self.rnn(x),
            torch.hstack((rows, rows)),
            torch.hstack((rows[:, 0], rows[:, 1])),
            torch.vstack((rows, rows[0])),
            torch.dstack((rows, rows)),
            torch.column_stack((rows[:, 0], rows)),
            x.diagonal(dim1=2, dim2=1),
            x.diagonal(1, dim1=1, dim2=2),
            flat.scatter(1, index, rows),
            flat.scatter_add(1, index, rows),
            flat.scatter_reduce(1, index, rows, "amax"),
            some,
            all_of,
            functional.adaptive_max_pool1d(x, 1),
            functional.adaptive_max_pool2d(x[:, None], 1),
        )


def test_operators_that_need_other_sizes() -> None:
    torch.manual_seed(0)
    module = _Unrelated().eval()

    def inputs(batch: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 5, 4), torch.randint(0, 5, (batch, 2))

    batch = {0: _BATCH}
    program = sambac.compile(module, inputs=inputs(2), dynamic_shapes=(batch, batch))
    with sambarun.load(program) as executable:
        for rows in (1, 2, 6):
            x, index = inputs(rows)
            found = executable.run({"x": x.numpy(), "index": index.numpy()})
            for made, want in zip(found.values(), module(x, index), strict=True):
                assert made.shape == want.shape
                np.testing.assert_allclose(made, want.detach().numpy(), atol=1e-5)


class _Ranked(nn.Module):
    """Medians over an open axis, what is put back where it was, and bags, also of closed lists."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(7, 3, mode=mode) for mode in _MODES)
        self.closed = nn.EmbeddingBag(7, 3, mode="max", padding_idx=2, include_last_offset=True)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        line, plane = x[:, :1], x.reshape(-1, 1, 2, 4)
        ends = torch.arange(ids.shape[0] + 1) * ids.shape[1]
        pooled = (
            functional.max_unpool1d(*functional.max_pool1d(line, 2, return_indices=True), 2),
            functional.max_unpool2d(*functional.max_pool2d(plane, 2, return_indices=True), 2),
        )
        ranks = (x.median(), x.median(0)[0], x.median(1)[1], x.nanmedian(), x.kthvalue(1, 0)[0])
        bags = (self.closed(ids.reshape(-1), ends), *(bag(ids) for bag in self.bags))
        return (*ranks, *pooled, *bags, x.masked_scatter(x > 0, x - 1))


_MODES = ("sum", "mean", "max")


def test_ranks_pools_and_bags_over_an_open_axis() -> None:
    torch.manual_seed(0)
    module = _Ranked().eval()

    def inputs(rows: int) -> tuple[Tensor, Tensor]:
        return torch.randn(rows, 2, 4), torch.randint(0, 7, (rows, 3))

    program = sambac.compile(module, inputs=inputs(4), dynamic_shapes=({0: _BATCH}, {0: _BATCH}))
    with sambarun.load(program) as executable:
        for rows in (1, 3, 6):
            x, ids = inputs(rows)
            found = executable.run({"x": x.numpy(), "ids": ids.numpy()})
            for made, want in zip(found.values(), module(x, ids), strict=True):
                np.testing.assert_allclose(made, want.detach().numpy(), atol=1e-6)


def test_an_operator_that_needs_sizes() -> None:
    class Filled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.logcumsumexp(0)

    message = r"needs sizes that dynamic_shapes leaves open \(the shape \[.*\] is open; fix axes 0"
    with pytest.raises(sambac.CompileError, match=message):
        sambac.compile(Filled(), inputs=(torch.ones(2, 3),), dynamic_shapes=({0: _BATCH},))


def test_sizes_that_depend_on_values_are_told_as_that() -> None:
    """Nothing here leaves a size open, so nothing is said of `dynamic_shapes`."""

    class Picked(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x = x.clone()
            x[y > 0] = y[y > 0].logcumsumexp(0)
            return x

    inputs = torch.ones(2, 3), torch.ones(2, 3)
    with pytest.raises(sambac.CompileError, match="a size in it depends on values") as raised:
        sambac.compile(Picked(), inputs=inputs)
    assert "dynamic_shapes" not in str(raised.value)


@pytest.mark.parametrize(
    ("most", "suggested"), [(None, "seq = Dim('seq', max=16)"), (16, None), (512, "seq = Dim(")]
)
def test_the_most_that_a_size_may_be_is_told(most: int | None, suggested: str | None) -> None:
    """A module with 16 positions takes no 17: what to write instead stands in the message."""

    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(16, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.table.weight[: x.shape[1]]

    shapes, x = ({0: _BATCH, 1: Dim("seq", max=most)},), torch.ones(3, 5, 4)
    if suggested is None:
        sambac.compile(Positions(), inputs=(x,), dynamic_shapes=shapes)
        return
    with pytest.raises(sambac.CompileError, match=re.escape(f"PyTorch suggests {suggested}")):
        sambac.compile(Positions(), inputs=(x,), dynamic_shapes=shapes)


def test_misuse(tmp_path: Path) -> None:
    layer, x, shapes = nn.Linear(3, 2), torch.ones(2, 3), ({0: _BATCH},)
    train = sambac.CompileOptions(train=True)
    (tmp_path / "code.py").write_text("def make():\n    return None\n")
    program = torch.export.export(layer, (x,))
    for model, options, inputs, given, message in (
        ("net.onnx", None, None, shapes, "dynamic_shapes belong to a torch.nn.Module; an ONNX"),
        (program, None, None, shapes, "dynamic_shapes belong to a torch.nn.Module with"),
        (f"{tmp_path / 'code.py'}:make", None, None, shapes, "dynamic_shapes belong to a torch"),
        (layer, train, (x,), shapes, "training needs the sizes of all inputs"),
        (layer, None, None, shapes, "needs example inputs"),
        (layer, None, (torch.ones(1, 3),), shapes, "open sizes are 2 or more"),
        (layer, None, (x,), ({1: Dim("wide")},), "fixes sizes that dynamic_shapes leaves open"),
        (layer, None, (x,), {"y": {0: _BATCH}}, "for the inputs input, and y came"),
        (layer, None, (x,), 3, "dynamic_shapes is of type int"),
    ):
        with pytest.raises(sambac.CompileError, match=message):
            sambac.compile(model, options, inputs=inputs, dynamic_shapes=given)


class _Grown(nn.Module):
    """Rows behind rows that came before, by name or in a list."""

    def forward(self, x: Tensor, past: list[Tensor], half: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([past[0], x], 1), (half @ torch.ones(3, 3)).flatten()


_PAST, _AUTO = Dim("past", max=9), Dim.AUTO


@pytest.mark.parametrize(
    "shapes",
    [
        ({0: _BATCH}, [{0: _BATCH, 1: _PAST}], {0: _AUTO}),
        {"half": {0: _AUTO}, "x": (_BATCH, None, None), "past": [(_BATCH, _PAST, None)]},
    ],
)
def test_open_sizes_are_called_what_the_user_calls_them(shapes: object) -> None:
    x, past, half = torch.ones(2, 1, 3), torch.ones(2, 4, 3), torch.ones(5, 3)
    by_name = {"half": half, "x": x, "past": [past]}
    inputs = by_name if isinstance(shapes, dict) else (x, [past], half)
    program = sambac.compile(_Grown(), inputs=inputs, dynamic_shapes=shapes)
    (graph,) = program.graphs
    found = {port.name: program.symbols[port.symbol].shape for port in graph.inputs}
    auto = found.pop("half")
    assert found == {"x": ("batch", 1, 3), "past_0": ("batch", "past", 3)}
    assert auto is not None
    assert str(auto[0]).startswith("s")
    results = [program.symbols[port.symbol].shape for port in graph.outputs]
    assert results == [("batch", "past + 1", 3), (f"3*{auto[0]}",)]


def _joined(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return torch.cat([x, y]), x + 1, y + 1


_FIRST, _SECOND = "s77", "s17"
"""What torch.export calls open sizes of a first and of a second input itself."""


@pytest.mark.parametrize(
    ("shapes", "named"),
    [
        (({0: Dim("a")}, {0: Dim("b")}), ("a", "b")),
        (({0: Dim("N")}, {0: Dim("Max")}), ("N", "Max")),
        (({0: _AUTO}, {0: Dim(_FIRST)}), (f"{_FIRST}_1", _FIRST)),
        (({0: Dim(_SECOND)}, {0: _AUTO}), (_SECOND, f"{_SECOND}_1")),
        (({0: Dim(_SECOND)}, {0: Dim(_FIRST)}), (_SECOND, _FIRST)),
    ],
)
@pytest.mark.parametrize("same", [False, True])
def test_sizes_that_differ_have_names_that_differ(
    shapes: tuple[dict[int, Dim], ...], named: tuple[str, str], same: bool
) -> None:
    """Also where names are those of other symbols, and where one tensor is given for both."""

    class Joined(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            return _joined(x, y)

    x = torch.ones(3, 2)
    inputs = (x, x if same else torch.ones(5, 2))
    program = sambac.compile(Joined(), inputs=inputs, dynamic_shapes=shapes)
    (graph,) = program.graphs
    ports = (*graph.inputs, *graph.outputs)
    first, second, joined, *others = (program.symbols[port.symbol].shape for port in ports)
    assert [(first or ())[0], (second or ())[0]] == [*named]
    assert others == [first, second]
    assert joined is not None
    assert {*str(joined[0]).split(" + ")} == {*named}
    with sambarun.load(program) as executable:
        x, y = torch.randn(7, 2), torch.randn(4, 2)
        found = executable.run({"x": x.numpy(), "y": y.numpy()})
        for made, want in zip(found.values(), _joined(x, y), strict=True):
            np.testing.assert_array_equal(made, want.numpy())
