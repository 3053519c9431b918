"""Modules that replace all attributes of something in forward, or its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import sambac
import sambarun
from sambac.errors import CompileError


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class _Triple(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * x


class _Settings:
    def __init__(self) -> None:
        self.rate = 1.5


class _Replacing(nn.Module):
    def __init__(self, step: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.settings, self.step = _Double(), _Settings(), step
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x) * self.w


def _own_dict(module: Any, x: Tensor) -> Tensor:
    module.__dict__ = {**module.__dict__, "note": "text"}
    return x


def _dict_of_part(module: Any, x: Tensor) -> Tensor:
    module.layer.__dict__ = {**module.layer.__dict__, "note": x}
    return x


def _dict_of_object(module: Any, x: Tensor) -> Tensor:
    module.settings.__dict__ = {"rate": 1.5, "last": 2 * x}
    return module.settings.last  # type: ignore[no-any-return]


def _class_of_part(module: Any, x: Tensor) -> Tensor:
    module.layer.__class__ = _Triple
    return module.layer(x)  # type: ignore[no-any-return]


def _parameters(module: Any, x: Tensor) -> Tensor:
    module._parameters = dict(module._parameters)
    return x


def _buffers(module: Any, x: Tensor) -> Tensor:
    module._buffers = {"b": torch.full((4,), 3.0)}
    return x * module.b


def _modules(module: Any, x: Tensor) -> Tensor:
    module._modules = {"layer": _Triple()}
    return module.layer(x)  # type: ignore[no-any-return]


def _facts(module: _Replacing) -> list[object]:
    parts = (module, module.layer, module.settings)
    return [(type(part), id(vars(part)), dict(vars(part))) for part in parts]


@pytest.mark.parametrize(
    "step",
    [
        _own_dict,
        _dict_of_part,
        _dict_of_object,
        _class_of_part,
        _parameters,
        _buffers,
        _modules,
    ],
)
def test_they_have_afterwards_what_they_had(step: Callable[[Any, Tensor], Tensor]) -> None:
    module, x = _Replacing(step), torch.linspace(-1, 1, 4)
    before = _facts(module)
    program = sambac.compile(module, inputs=(x,))
    assert _facts(module) == before
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-6)


def test_numbers_that_calls_change_so_are_told(recwarn: pytest.WarningsRecorder) -> None:
    def count(module: Any, x: Tensor) -> Tensor:
        module.settings.__dict__ = {"rate": module.settings.rate + 1}
        return x

    sambac.compile(_Replacing(count), inputs=(torch.ones(4),))
    (told,) = recwarn
    assert "settings.rate = 1.5" in str(told.message)


def test_tables_of_refused_modules_are_put_back() -> None:
    def replace(module: Any, x: Tensor) -> Tensor:
        module._parameters = {"w": nn.Parameter(torch.full((4,), 3.0))}
        return x

    module = _Replacing(replace)
    before = _facts(module)
    with pytest.raises(CompileError, match="assigns to its parameters w"):
        sambac.compile(module, inputs=(torch.ones(4),))
    assert _facts(module) == before


class _Marked(nn.Parameter):
    pass


def test_tensors_that_become_others_are_refused() -> None:
    def mark(module: Any, x: Tensor) -> Tensor:
        module.w.__class__ = _Marked
        return x

    module = _Replacing(mark)
    with pytest.raises(CompileError, match="assigns to __class__ of a tensor, which cannot be"):
        sambac.compile(module, inputs=(torch.ones(4),))
    assert type(module.w) is nn.Parameter
    assert "__setattr__" not in vars(FakeTensor)
