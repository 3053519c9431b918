"""What the page of SambaTensor has, used inside of a model: traced, compiled, run on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import sambaflow.samba as samba
from sambaflow.samba import utils

_WHOLE = samba.SambaTensor(torch.Tensor([0, 2]))  # an index of floats, as on the page
_PLAIN = torch.tensor([0, 2])


def _set(x: Tensor, index: object, value: object) -> Tensor:
    changed = x * 1
    changed[index] = value  # type: ignore[index, assignment]
    return changed


_USES: Mapping[str, Callable[[Tensor], object]] = {
    "a number as index": lambda x: x[1],
    "a slice": lambda x: x[:, 1:3],
    "None": lambda x: x[None],
    "a tensor as index": lambda x: x[:, _PLAIN],
    "a list as index": lambda x: x[:, [0, 2]],
    "an index of the page": lambda x: x[None, :, _WHOLE],
    "an index made inside": lambda x: x[samba.tensor([2, 0])],
    "setting a column": lambda x: _set(x, (slice(None), 2), samba.ones(3)),
    "setting a number": lambda x: _set(x, (0, 0), 7.0),
    "setting columns": lambda x: _set(x, (slice(None), _WHOLE), 2 * samba.ones(3, 2)),
    "bfloat16": lambda x: x.bfloat16().float(),
    "bool": lambda x: x.bool(),
    "int": lambda x: x.int(),
    "long": lambda x: x.long(),
    "facts": lambda x: x * x.dim() * x.ndim * x.numel() * x.element_size() * x.stride()[0],
    "new_empty": lambda x: x.new_empty((2, 3)).fill_(2.0) + x[0, 0],
    "new_full": lambda x: x.new_full((2, 3), 5.0) + x[0, 0],
    "new_ones": lambda x: x.new_ones((3, 4)) + x,
    "new_zeros": lambda x: x.new_zeros(3, 4, dtype=torch.int32),
    "permute": lambda x: x.permute(1, 0),
    "reshape": lambda x: x.reshape(-1, 2),
    "T": lambda x: x.T,
    "size": lambda x: x * x.size(0) * x.size(dim=1),
    "to a type": lambda x: x.to(torch.float64).to(x),
    "type": lambda x: x.type("torch.IntTensor"),
    "type_as": lambda x: x.type_as(samba.ones(1, dtype=torch.int32)),
    "view_as": lambda x: x.view_as(torch.ones(4, 3)),
    "detach": lambda x: x.detach() + 1,
    "to torch": lambda x: samba.to_torch(x) * 2,
    "from torch": lambda x: samba.from_torch_tensor(x * 2, name="inner") + 1,
    "a constant with a name": lambda x: x + samba.from_torch_tensor(torch.arange(4), name="c"),
    "the constructor": lambda x: samba.SambaTensor(torch.full((4,), 2.0)) * x,
    "zeros": lambda x: samba.zeros(3, 4, name="z") + x,
    "ones_like": lambda x: samba.ones_like(x) - x,
    "full": lambda x: samba.full((3, 4), 2.0) * x,
    "arange": lambda x: samba.arange(4) * x,
    "eye": lambda x: samba.matmul(x, samba.eye(4)),
    "where": lambda x: samba.where(x > 0, x, samba.zeros(())),
    "a draw": lambda x: samba.sn_multinomial(x.abs(), samba.full((3, 2), 0.5)),
}


class _Uses(nn.Module):
    def forward(self, x: Tensor) -> list[object]:
        return [use(x) for use in _USES.values()]


def test_tensors_may_be_used_and_made_inside_of_a_model(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x, model = samba.randn(3, 4, name="x", generator=generator) * 3, _Uses()
    x.sn_name = "x"
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, (x,), config_dict=config, inference=True)
    found = samba.session.run((x,), utils.trace_graph(model, (x,), pef=pef))
    for name, ours, expected in zip(_USES, found, model(x), strict=True):
        eager = samba.to_torch(expected)
        assert ours.dtype is eager.dtype, name
        torch.testing.assert_close(ours.torch(), eager, msg=lambda text, n=name: f"{n}: {text}")
