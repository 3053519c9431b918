"""Negative indices where PyTorch knows none: an error of the run, not those from the end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
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
