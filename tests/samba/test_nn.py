"""The modules of `samba.nn` are torch's."""

from __future__ import annotations

import pytest
from torch import nn

import sambaflow.samba.nn as samba_nn


@pytest.mark.parametrize("name", ["Module", "Sequential", "ReLU", "Conv2d", "functional", "init"])
def test_torch_has_it(name: str) -> None:
    assert getattr(samba_nn, name) is getattr(nn, name)


def test_the_parameters_of_samba_stay() -> None:
    assert samba_nn.parameter.SambaParameter.__module__.startswith("sambaflow")


def test_what_neither_has_is_named() -> None:
    with pytest.raises(AttributeError, match=r"samba\.nn' has no attribute 'Nonsense'"):
        _ = samba_nn.Nonsense
