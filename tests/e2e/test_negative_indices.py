"""Indices that PyTorch does not know, negative ones and those too large: an error of the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from onnx import parser
from torch import Tensor, nn

import sambac
import sambarun

_TRAIN = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.1),))


class _Reader(nn.Module):
    def __init__(self, smoothing: float = 0.0, ignored: int = -100) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer = nn.Embedding(5, 3, padding_idx=0), nn.Linear(3, 4)
        self.loss = nn.CrossEntropyLoss(label_smoothing=smoothing, ignore_index=ignored)

    def forward(self, words: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": self.loss(self.layer(self.table(words)).flatten(0, -2), labels.flatten())}


@pytest.mark.parametrize("options", [None, _TRAIN], ids=["inference", "training"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_negative_indices_are_refused(smoothing: float, options) -> None:
    """A label of -1 that was meant to be ignored would count as the last class."""
    module = _Reader(smoothing)
    good = {"words": np.asarray([[0, 4], [1, 2]]), "labels": np.asarray([[0, -100], [3, 1]])}
    wanted = module(**{name: torch.from_numpy(array) for name, array in good.items()})["loss"]
    example = {name: torch.from_numpy(array) for name, array in good.items()}
    program = sambac.compile(module, options, inputs=example)
    with sambarun.load(program) as executable:
        act = executable.step if options else executable.run
        for name in good:
            wrong = good[name].copy()
            wrong[0, 0] = -1
            with pytest.raises(sambarun.RunError, match=r"out of (range|data)|Out of range"):
                act({**good, name: wrong})
        assert act(good)["loss"] == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("ignored", [-1, 2])
def test_what_is_to_be_ignored_may_be_negative(ignored: int) -> None:
    module = _Reader(ignored=ignored)
    inputs = {"words": torch.tensor([[1, 2]]), "labels": torch.tensor([[3, ignored]])}
    program = sambac.compile(module, _TRAIN, inputs=inputs)
    wanted = module(**inputs)["loss"].item()
    with sambarun.load(program) as executable:
        found = executable.step({name: tensor.numpy() for name, tensor in inputs.items()})
    assert found["loss"] == pytest.approx(wanted, rel=1e-5)


class _Of(nn.Module):
    """A function of numbers and indices; it has a parameter, so that it trains."""

    def __init__(self, function: Callable[..., Tensor], numbers: Tensor) -> None:
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.ones(()))
        self.register_buffer("numbers", numbers)

    def forward(self, places: Tensor) -> dict[str, Tensor]:
        found = self.function(self.numbers * self.scale, places)
        return {"result": found, "loss": found.float().mean() * self.scale}


_TABLE = torch.arange(12.0).reshape(4, 3) / 4 - 1
_ROWS, _GRID = torch.tensor([0, 3]), torch.tensor([[0, 1, 3], [2, 2, 0]])
_PLANES = torch.arange(6.0).reshape(1, 2, 3) + 1
_UNPOOLED = torch.tensor([[[0, 2, 5], [1, 3, 4]]])
_IN_ROWS: dict[str, Callable[..., Tensor]] = {
    "bags": lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 1])),
    "copied": lambda x, i: x.index_copy(0, i, x[:2] + 1),
    "added": lambda x, i: x.index_add(0, i, x[:2], alpha=2),
    "added along the last axis": lambda x, i: x.T.index_add(-1, i, x.T[:, :2]),
    "embedding": lambda x, i: F.embedding(i, x),
    "margins": lambda x, i: F.multi_margin_loss(x.T[:2], i),
    "one hot": lambda x, i: F.one_hot(i, 4) * x.sum(),
    "selected": lambda x, i: x.index_select(0, i),
    "likelihood": lambda x, i: F.nll_loss(x.T[:2], i),
    "likelihood of one": lambda x, i: F.nll_loss(x[:, 0], i[0]) + i[1],
    "likelihood of images": lambda x, i: F.nll_loss(x.T[None, :2].mT, i[None, :]),
    "cross entropy": lambda x, i: F.cross_entropy(x.T[:2], i),
}
_IN_GRIDS: dict[str, Callable[..., Tensor]] = {
    "gathered": lambda x, i: x.gather(0, i),
    "scattered": lambda x, i: x.scatter(0, i, x[:2] + 1),
    "scattered number": lambda x, i: x.scatter(0, i, 7.0),
    "scattered sums": lambda x, i: x.scatter_add(0, i, x[:2]),
    **{
        f"scattered {name}": lambda x, i, name=name: x.scatter_reduce(0, i, x[:2], name)
        for name in ("amax", "mean", "sum")
    },
}
_CASES = (
    [(name, f, _TABLE, _ROWS) for name, f in _IN_ROWS.items()]
    + [(name, f, _TABLE, _GRID) for name, f in _IN_GRIDS.items()]
    + [("unpooled", lambda x, i: F.max_unpool1d(x, i, 2), _PLANES, _UNPOOLED)]
)
"""Names, functions, numbers, and indices of which the first one is made wrong."""


@pytest.mark.parametrize("case", _CASES, ids=[case[0] for case in _CASES])
@pytest.mark.parametrize("options", [None, _TRAIN], ids=["inference", "training"])
def test_indices_that_pytorch_refuses_are_refused(case: tuple, options) -> None:
    _, function, numbers, places = case
    module = _Of(function, numbers)
    wanted = module(places)
    with sambarun.load(sambac.compile(module, options, inputs=(places,))) as executable:
        act = executable.step if options else executable.run
        found = act({"places": places.numpy()})
        for name, array in found.items():
            np.testing.assert_allclose(array, wanted[name].detach(), rtol=1e-5, atol=1e-6)
        for index in (-1, 100, -7):
            wrong = places.clone()
            wrong.view(-1)[0] = index
            with pytest.raises((RuntimeError, IndexError)):
                module(wrong)
            with pytest.raises(sambarun.RunError, match=r"[oO]ut of (range|data)|[iI]nvalid ind"):
                act({"places": wrong.numpy()})


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    ("shape", "labels", "dtype"),
    [
        ("4,3", "4", "int64"),
        ("4,3", "4", "int32"),
        ("2,2,3", "2,2", "int64"),
        ("2,3,2,2", "2,2,2", "int64"),
        ("2,3,2,2", "2,2,2", "int32"),
    ],
)
def test_labels_of_losses_that_are_built_are_none_from_the_end(
    shape: str, labels: str, dtype: str, level: str
) -> None:
    """The labels are an input of the model's own."""
    text = f"""<ir_version: 9, opset_import: ["": 19]>
        g (float[{shape}] x, {dtype}[{labels}] t) => (float[{shape}] y, {dtype}[{labels}] u)
        <float[1] w = {{2.0}}> {{ y = Mul(x, w)  u = Identity(t) }}"""
    options = sambac.CompileOptions(
        level=level, train=True, loss=("cross_entropy:y,t",), optimizers=(sambac.SGD(),)
    )
    sizes = [int(size) for size in shape.split(",")]
    x = torch.linspace(-1, 1, int(np.prod(sizes))).sin().reshape(sizes)
    good = torch.arange(int(np.prod([int(size) for size in labels.split(",")]))) % 3
    good = good.reshape([int(size) for size in labels.split(",")])
    classes = x if len(sizes) == 4 else x.reshape(-1, sizes[-1])
    wanted = F.cross_entropy(2 * classes, good if len(sizes) == 4 else good.flatten())
    with sambarun.load(sambac.compile(parser.parse_model(text), options)) as executable:
        feeds = {"x": x.numpy(), "t": good.numpy().astype(dtype)}
        evaluated = executable.run(feeds, section_types="FWD")
        assert evaluated["loss"] == pytest.approx(wanted.item(), rel=1e-5)
        for wrong in (-1, -3, -100, 3):
            bad = feeds["t"].copy()
            bad.reshape(-1)[0] = wrong
            for act in (executable.step, lambda f: executable.run(f, section_types="FWD")):
                with pytest.raises(sambarun.RunError, match="An index is out of range: 't'"):
                    act({**feeds, "t": bad})


@pytest.mark.filterwarnings("ignore:.isinstance.treespec:FutureWarning")
@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("offsets", [[0, -2, 3], [1, 2, 3], [0, 2, 9]])
def test_bags_that_begin_nowhere_are_refused(offsets: list[int], decomposed: bool) -> None:
    inputs = torch.tensor([0, 1, 3, 3, 2]), torch.tensor([0, 2, 3])
    exported = torch.export.export(nn.EmbeddingBag(4, 3), inputs)
    program = sambac.compile(exported.run_decompositions() if decomposed else exported)
    with sambarun.load(program) as executable:
        names = [port.name for port in program.graphs[0].inputs]
        good = dict(zip(names, (tensor.numpy() for tensor in inputs), strict=True))
        executable.run(good)
        with pytest.raises(sambarun.RunError, match=r"[oO]ut of (range|data)|invalid ind"):
            executable.run({**good, names[1]: np.asarray(offsets)})


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i - 1],
        lambda x, i: x.take(i),
        lambda x, i: x.index_fill(0, i, 9.0),
        lambda x, i: x.T.index_fill(-1, i, torch.tensor(9.0)),
        lambda x, i: x.index_put((i,), x[:2]),
    ],
    ids=["rows", "columns", "taken", "filled", "filled columns", "put"],
)
def test_where_pytorch_counts_from_the_end_so_do_runs(function) -> None:
    module, places = _Of(function, _TABLE), torch.tensor([0, 2])
    negative = torch.tensor([-1, 0])
    with sambarun.load(sambac.compile(module, inputs=(places,))) as executable:
        found = executable.run({"places": negative.numpy()})["result"]
    np.testing.assert_allclose(found, module(negative)["result"].detach(), rtol=1e-6)
