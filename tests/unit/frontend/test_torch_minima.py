"""Minima of open sizes are decided by what is known of the sizes."""

from __future__ import annotations

import pytest
import sympy
import torch
from near import assert_near
from torch import Tensor, nn
from torch.export import Dim
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

import sambac
import sambarun
from sambac.frontend.torch.recording.minima import decided_minima

_BATCH = Dim("batch", min=1, max=64)


class _Shared(nn.Module):
    """Attention whose heads share keys: as many as there are, and one more, for two heads each."""

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([past, x.view(-1, 2, 1, 4)], 2)
        batch, heads, rows, size = keys.shape
        shared = keys[:, :, None].expand(batch, heads, 2, rows, size)
        shared = shared.reshape(batch, 2 * heads, rows, size)
        query = torch.cat([x, 1 - x], 1).view(-1, 4, 1, 4)
        return functional.scaled_dot_product_attention(query, shared, shared), keys


def test_heads_that_share_keys_have_a_past_of_any_length() -> None:
    """torch.export asks whether 4 past + 4 is less than 8 past + 8."""
    past = Dim("past", max=30)
    shapes = {"x": {0: _BATCH}, "past": {0: _BATCH, 2: past}}
    inputs = {"x": torch.ones(2, 8), "past": torch.ones(2, 2, 3, 4)}
    program = sambac.compile(_Shared(), inputs=inputs, dynamic_shapes=shapes)
    generator = torch.Generator().manual_seed(0)
    with sambarun.load(program) as executable:
        for batch, length in ((1, 1), (3, 7), (2, 30)):
            x = torch.randn(batch, 8, generator=generator)
            before = torch.randn(batch, 2, length, 4, generator=generator)
            found = executable.run({"x": x.numpy(), "past": before.numpy()}).values()
            for made, want in zip(found, _Shared()(x.double(), before.double()), strict=True):
                assert_near(made, want.numpy())


@pytest.mark.parametrize(
    ("asked", "decided"),
    [
        ("Min(16*x + 16, 32*x + 32)", "16*x + 16"),
        ("Max(16*x + 16, 32*x + 32)", "32*x + 32"),
        ("Min(x, y + 10, 2*x)", "x"),
        ("Min(x, 9)", "x"),
        ("Min(x, 7)", "Min(7, x)"),
        ("Max(x, y)", "Max(x, y)"),
        ("Min(2*y, x)", "Min(x, 2*y)"),
        ("1 + Max(1, x)", "x + 1"),
    ],
)
def test_minima_are_decided_by_what_is_known_of_sizes(asked: str, decided: str) -> None:
    """x is from 1 to 8, y from 0 on."""
    x, y = sympy.symbols("x y", integer=True)
    sizes = ShapeEnv()
    sizes.var_to_range = {x: ValueRanges(1, 8), y: ValueRanges(0, int_oo)}
    words = {"Min": Min, "Max": Max, "x": x, "y": y}
    asking, wanted = (eval(text, {}, words) for text in (asked, decided))
    with decided_minima():
        assert sizes.simplify(asking) == wanted
