"""What other threads do with PyTorch while a module is recorded is as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from torch import func, nn
from torch.distributions import Distribution, Normal
from torch.fx import traceback
from torch.nn import functional

import sambac


@pytest.fixture(autouse=True)
def _validating(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile turns the checks of distributions off for the whole process; tests use it."""
    monkeypatch.setattr(Distribution, "_validate_args", True)


def _shares_an_array() -> bool:
    array = np.zeros(3, np.float32)
    tensor = torch.from_numpy(array)
    array[0] = 1
    return bool(tensor[0] == 1)


def _validates() -> bool:
    with pytest.raises(ValueError, match="scale"):
        Normal(0.0, -1.0)
    return True


def _differentiates() -> bool:
    x = torch.arange(12.0).reshape(3, 4)
    slopes = torch.vmap(func.grad(lambda row: (row * row).sum()), out_dims=1)(x)
    with torch.no_grad():
        _, pull = func.vjp(torch.sin, x)
    pushed = func.jvp(torch.sin, (x,), (x,))[1]
    y = x.clone().requires_grad_()
    (taken,) = torch.autograd.grad(y.sin().sum(), y)
    same = torch.equal(pull(torch.ones_like(x))[0], x.cos()) and torch.equal(taken, x.cos())
    return same and torch.equal(slopes, 2 * x.T) and torch.allclose(pushed, x.cos() * x)


def _looks() -> bool:
    with pytest.raises(ValueError, match="var has negative entry"):
        functional.gaussian_nll_loss(torch.ones(2), torch.ones(2), -torch.ones(2))
    return True


def _notes_nothing() -> bool:
    """What PyTorch notes of a call is in one dict of all threads, which a recording reads."""
    with traceback.annotate({"elsewhere": True}):
        return "elsewhere" not in traceback.get_current_meta().get("custom", {})


@pytest.mark.parametrize(
    "does", [_shares_an_array, _validates, _differentiates, _looks, _notes_nothing]
)
@pytest.mark.parametrize("train", [False, True])
def test_other_threads_have_what_is_pytorchs(
    does: Callable[[], bool], train: bool, tmp_path: Path
) -> None:
    said = tmp_path / "said"

    def run() -> None:
        answer = str(does())
        with said.open("a") as file:  # what calls leave in values is put back
            file.write(f"{answer}\n")

    class Starts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thread = Thread(target=run)
            thread.start()
            thread.join()
            return self.layer(x).sum()

    sambac.compile(Starts(), sambac.CompileOptions(train=train), inputs=(torch.ones(2, 3),))
    assert {*said.read_text().split()} == {"True"}


def test_afterwards_all_is_as_it_was() -> None:
    before = {name: vars(torch)[name] for name in ("cov", "corrcoef", "ctc_loss", "from_numpy")}
    sambac.compile(nn.Linear(3, 3), inputs=(torch.ones(2, 3),))
    assert {name: vars(torch)[name] for name in before} == before
    assert _shares_an_array()
    assert _validates()
