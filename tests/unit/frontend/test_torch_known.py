"""Buffers that stay as they are decide what is recorded; those that may change do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional
from two_steps import require_two_steps_of_torch

import sambac
import sambarun
from sambac import SGD, CompileOptions
from sambac.errors import CompileError
from sambac.frontend.torch.recording.known import recorded

Function = Callable[["_Model", torch.Tensor], torch.Tensor]

X = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0))
TRAIN = CompileOptions(train=True, optimizers=(SGD(lr=0.1),))


class _Model(nn.Module):
    """A convolution with numbers in buffers, by which `function` decides."""

    def __init__(self, function: Function, *, persistent: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Conv1d(3, 3, 3, stride=2)
        numbers = {"stride": 2, "size": 3, "sizes": [3, -1], "flag": True, "rate": 0.5, "count": 0}
        for name, number in numbers.items():
            self.register_buffer(name, torch.tensor(number), persistent=persistent)
        self.register_buffer("mean", torch.zeros(3), persistent=persistent)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x).square().mean()


def _padded(model: _Model, x: torch.Tensor) -> torch.Tensor:
    """As audio codecs pad to whole frames."""
    frames = (x.shape[-1] - model.size) / model.stride + 1
    more = torch.ceil(frames).to(torch.int64) * model.stride + model.size - x.shape[-1]
    return model.layer(functional.pad(x, (model.size - model.stride, more)))


def _counted(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.count += 1
    return model.layer(x) * model.count


def _warmed(model: _Model, x: torch.Tensor) -> torch.Tensor:
    model.count += 1
    return model.layer(x) * (2 if model.count > 2 else 1)


def _warmed_apart(model: _Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        model.count.view(1)[0].add_(1)
    return model.layer(x) * (2 if model.count > 2 else 1)


def _added_in_a_list(model: _Model, x: torch.Tensor) -> torch.Tensor:
    limit = model.rate * 1
    torch._foreach_add_([limit], [x.sum()])
    return model.layer(x) * (2 if limit > 1 else 1)


def _counted_at_last(model: _Model, x: torch.Tensor) -> torch.Tensor:
    y = model.layer(x) * (2 if model.count > 2 else 1)
    torch._foreach_add_([model.count], 1)
    return y


def _counted_by_another_name(model: _Model, x: torch.Tensor) -> torch.Tensor:
    y = model.layer(x) * (2 if model.count > 2 else 1)
    torch.atleast_1d(model.count).add_(1)
    return y


def _counted_in_a_part(model: _Model, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        model.count.add_(1)
    return model.layer(x) * (2 if model.count > 2 else 1)


def _counted_after_a_part(model: _Model, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        view = model.count.view(1)
    view.add_(1)
    return model.layer(x) * (2 if model.count > 2 else 1)


def _read_in_a_part(model: _Model, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        scaled = x * model.rate
    return model.layer(scaled) if model.rate < 1 else x


def _added_to(name: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    """What `name` gives of a buffer that decides afterwards is written."""

    def counted(model: _Model, x: torch.Tensor) -> torch.Tensor:
        name(model.rate).add_(1)
        return model.layer(x) * (2 if model.rate > 1 else 1)

    return counted


NAMES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: functional.dropout(x, 0.5, training=False),
    "dropout of nothing": lambda x: functional.dropout(x, 0.0),
    "dropout of channels": lambda x: functional.dropout1d(x.view(1, 1, 1), 0.5, training=False),
    "alpha dropout": lambda x: functional.alpha_dropout(x, 0.5, training=False),
    "sum of one term": lambda x: torch.einsum("i->i", x.view(1)),
    "sum to size": lambda x: x.sum_to_size(x.shape),
    "conjugate": torch.conj_physical,
    "product": lambda x: torch.cartesian_prod(x.view(1)),
    "grid": lambda x: torch.meshgrid(x.view(1), indexing="ij")[0],
    "broadcast": lambda x: torch.broadcast_tensors(x, torch.ones(2))[0][0],
    "part": lambda x: x.view(1).unsafe_chunk(1)[0],
    "all in one": lambda x: torch._C._nn.flatten_dense_tensors([x.view(1)]),
    "dropouts of views": lambda x: functional.dropout(
        functional.dropout(x.view(1), 0.5, training=False)[0].type_as(x), 0.5, training=False
    ),
}


def _averaged_at_last(model: _Model, x: torch.Tensor) -> torch.Tensor:
    y = model.layer(x) * (2 if model.mean[0] > 0.5 else 1)
    return functional.batch_norm(y, model.mean, torch.ones(3), training=True, momentum=0.5)


def _sharing(persistent: bool) -> _Model:
    """Return a model that decides by what a checkpoint has, or training changes."""
    model = _Model(DECIDE["fraction"])
    if persistent:
        model.layer.register_buffer("rate", model.rate)
    else:
        model.register_buffer("rate", model.layer.bias.detach()[0], persistent=False)
    return model


DECIDE: dict[str, Function] = {
    "padding": _padded,
    "choice": lambda m, x: m.layer(x) if m.flag else x,
    "comparison": lambda m, x: m.layer(x) if x.shape[-1] > m.size * m.stride else x,
    "fraction": lambda m, x: m.layer(x) if m.rate < 1 else x,
    "repetition": lambda m, x: sum(m.layer(x) * i for i in range(1, m.size)),
    "shape": lambda m, x: m.layer(x).reshape(m.sizes.tolist()),
    "slice": lambda m, x: m.layer(x)[:, : m.stride],
    "part": _read_in_a_part,
    "number": lambda m, x: m.layer(x) * float(m.rate) + int(m.size),
}


@pytest.mark.parametrize("name", DECIDE)
def test_what_stays_decides(name: str) -> None:
    require_two_steps_of_torch(_Model(DECIDE[name]), X, lr=0.1)


def test_what_is_counted_is_counted() -> None:
    model = _Model(_counted)
    exact = exactly(model)
    with sambarun.load(sambac.compile(model, TRAIN, inputs=(X,))) as executable, torch.no_grad():
        first = exact(exactly(X))
        assert_near(executable.step({"x": X.numpy()}, {"lr": 0.0})["output"], first)
        second = exact(exactly(X))
        assert_near(executable.step({"x": X.numpy()}, {"lr": 0.0})["output"], second)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(_Model(_warmed), id="written"),
        pytest.param(_Model(_warmed_apart), id="written without gradients"),
        pytest.param(_Model(_counted_in_a_part), id="written in a part"),
        pytest.param(_Model(_counted_after_a_part), id="written as the result of a part"),
        pytest.param(_Model(_added_in_a_list), id="computed and written in a list"),
        pytest.param(_Model(_counted_at_last), id="written in a list"),
        pytest.param(_Model(_counted_by_another_name), id="written by another name"),
        pytest.param(_Model(_averaged_at_last), id="written as statistics"),
        *(
            pytest.param(_Model(_added_to(name)), id=f"written by {key}")
            for key, name in NAMES.items()
        ),
        pytest.param(_sharing(persistent=True), id="in checkpoints by another name"),
        pytest.param(_Model(DECIDE["comparison"], persistent=True), id="in checkpoints"),
        pytest.param(_Model(lambda m, x: m.layer(x) if m.layer.bias[0] < 2 else x), id="trained"),
    ],
)
def test_what_may_change_does_not_decide(model: nn.Module) -> None:
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        sambac.compile(model, TRAIN, inputs=(X,))


def test_what_is_part_of_a_parameter_does_not_decide() -> None:
    with pytest.raises(CompileError, match="control flow depends on the values of tensors"):
        sambac.compile(_sharing(persistent=False), inputs=(X,))


class _Apart(nn.Module):
    """What a part without automatic casts does, as transformers computes angles of positions."""

    def __init__(self, function: Function, *, writes: bool) -> None:
        super().__init__()
        self.register_buffer("rates", torch.tensor([1.0, 0.1]), persistent=False)
        self.function, self.writes = function, writes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            part = self.function(self, x)
        return part.cos_() if self.writes else part.cos()


@pytest.mark.parametrize(
    ("function", "writes", "times"),
    [
        pytest.param(lambda m, x: x * m.rates, False, 1, id="read"),
        pytest.param(lambda m, x: x * m.rates.add_(1), False, 2, id="written"),
        pytest.param(lambda m, _: m.rates.view(2), True, 2, id="given back and written"),
    ],
)
def test_what_parts_only_read_is_recorded_once(
    function: Function, writes: bool, times: int
) -> None:
    calls = []

    def record() -> torch.export.ExportedProgram:
        calls.append(1)
        return torch.export.export(module, (X[..., :2],))

    module = _Apart(function, writes=writes)
    recorded(module, record)
    assert len(calls) == times
