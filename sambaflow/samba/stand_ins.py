"""Parameters without values, in the form in which torch computes with shapes alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from .lazy_param import paused


def fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """Return a fake tensor like `tensor`: one without values too seems to lie on the CPU.

    So it gets along with tensors that have values, which one on the meta device does not.
    """
    with mode:
        made = torch.empty(tensor.shape, dtype=tensor.dtype)
    return made.requires_grad_(tensor.requires_grad)


@contextmanager
def stand_ins(model: nn.Module) -> Iterator[None]:
    """Let fake tensors stand for the parameters of `model` without values within the block.

    Such a model can be exported and compiled; the program then holds no values of them. Tied
    parameters stay tied. No parameter becomes lazy meanwhile.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, nn.Parameter] = {}
    replaced: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
    for module in model.modules():
        table = module._parameters
        for name, parameter in table.items():
            if parameter is None or not parameter.is_meta or isinstance(parameter, FakeTensor):
                continue
            if id(parameter) not in made:
                made[id(parameter)] = nn.Parameter(fake(parameter, mode), parameter.requires_grad)
            replaced.append((table, name, parameter))
    with paused():
        for table, name, parameter in replaced:
            table[name] = made[id(parameter)]
        try:
            yield
        finally:
            for table, name, parameter in replaced:
                table[name] = parameter
