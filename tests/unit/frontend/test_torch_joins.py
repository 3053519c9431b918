"""Operators of several tensors whose ranks or types differ, which ONNX takes alike alone."""

from __future__ import annotations

import pytest
import torch
from near import assert_near, exactly
from torch_runs import Lambda

import sambac
import sambarun

EQUATIONS = (
    ("...i,...i->...", (2, 3, 4), (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("... i, ... j", (2, 3, 4), (3, 5)),
    ("i...,...i->...i", (4, 3), (2, 3, 4)),
    ("...i,i->", (2, 3, 4), (4,)),
    ("...i,...i->...", (1, 3, 4), (2, 1, 4)),
    ("...ii,...i->i", (5, 1, 2, 4, 4), (3, 1, 4)),
    ("a...A,...aB->...B", (3, 2, 4), (2, 3, 5)),
    ("Bbj,", (3, 2, 4), ()),
    ("bx,xAB", (3, 2), (2, 4, 5)),
)


def run(function: object, *inputs: torch.Tensor) -> list[object]:
    """Return the results of `function`, compiled."""
    program = sambac.compile(Lambda(function), inputs=inputs)
    names = [port.name for port in program.graphs[0].inputs]
    with sambarun.load(program) as executable:
        found = executable.run({n: x.numpy() for n, x in zip(names, inputs, strict=True)})
    return [found[port.name] for port in program.graphs[0].outputs]


def test_sums_of_products_with_ellipses() -> None:
    """In PyTorch an ellipsis may have fewer axes than another one, and the result none."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for _, *shapes in EQUATIONS for shape in shapes]

    def forward(*given: torch.Tensor) -> list[torch.Tensor]:
        pairs = zip(given[::2], given[1::2], strict=True)
        return [
            torch.einsum(equation, x, y)
            for (equation, *_), (x, y) in zip(EQUATIONS, pairs, strict=True)
        ]

    wanted = forward(*exactly(inputs))
    for (equation, *_), found, want in zip(EQUATIONS, run(forward, *inputs), wanted, strict=True):
        assert_near(found, want, what=equation)


@pytest.mark.parametrize(
    "join",
    [torch.stack, torch.hstack, torch.vstack, torch.dstack, torch.column_stack],
    ids=lambda join: join.__name__,
)
def test_tensors_of_several_types_are_joined_in_their_common_one(join) -> None:
    whole, short = torch.tensor([1, -2, 3]), torch.tensor([4, 5, 6], dtype=torch.int32)
    real, half = torch.tensor([0.5, 1.5, 2.5]), torch.tensor([1.0, 2, 3], dtype=torch.float16)

    def forward(*given: torch.Tensor) -> list[torch.Tensor]:
        whole, short, real, half = given
        return [join([a, b]) for a, b in ((whole, short), (short, whole > 0), (half, whole))] + [
            join([whole.sum(), real.sum()]),
            join([real, half]),
        ]

    given = (whole, short, real, half)
    for found, want in zip(run(forward, *given), forward(*given), strict=True):
        assert str(want.dtype).removeprefix("torch.") == found.dtype.name
        assert found.tolist() == want.tolist()


def test_checks_of_all_elements_have_an_operator() -> None:
    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        torch._check_tensor_all(x == x)
        return [x * 2, torch._is_any_true(x > 2), torch._is_all_true(x > 2)]

    x = torch.tensor([1.0, 3.0])
    found = run(forward, x)
    assert [array.tolist() for array in found] == [[2.0, 6.0], True, False]


def test_what_has_one_axis_and_no_elements_is_left_out_of_a_join() -> None:
    """As the caches of quantised keys have it, between what is kept and what is new."""
    x, none, whole = torch.randn(1, 2, 3), torch.zeros(0), torch.zeros(0, dtype=torch.float64)

    def forward(x: torch.Tensor, none: torch.Tensor, whole: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.cat([x, none, x * 2], -2),
            torch.cat([none, x, torch.tensor([]), x, whole], 2),
            torch.cat([none, x], 1),
            torch.cat([none, whole]),
        ]

    given = (x, none, whole)
    for found, want in zip(run(forward, *given), forward(*given), strict=True):
        assert str(want.dtype).removeprefix("torch.") == found.dtype.name
        assert found.tolist() == want.tolist()
