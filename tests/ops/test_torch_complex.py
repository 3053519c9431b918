"""Complex numbers inside of models, beside PyTorch: results, gradients, and states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch_points import COMPARED, Comparison, Point

import sambac
import sambarun
from sambac.frontend.torch.programs import pairs

X = torch.tensor([
    [[0.5, 1.25, -0.75, 2.0], [1.5, -0.5, 0.25, -1.0], [-2.0, 0.75, 1.0, 0.5]],
    [[-0.25, 0.5, 1.75, -1.5], [0.125, 2.5, -1.25, 0.25], [1.0, 1.0, -0.5, -0.25]],
])  # fmt: skip
TURN = torch.polar(torch.ones(3, 2), torch.arange(6.0).reshape(3, 2))
ROWS = torch.tensor([2, 0, 2])


def _written(z: Tensor) -> Tensor:
    made = torch.zeros_like(z)
    made[:, :2] = z[:, 1:] * 2
    made[:, 2, 0] = z[:, 0, 1]
    made[0, 1] = 3 - 1j
    made[1, 0, 0] = 2
    return made


# Each is of z, complex, [2, 3, 2], and its real part.
FUNCTIONS = {
    "a buffer's turn": lambda z, r: z[:, :, None] * TURN[:, None, :],
    "angles": lambda z, r: torch.complex(
        z.angle() + (0j - r.abs()).angle(), (z.detach() * float("nan")).angle().nan_to_num(7.0)
    ),
    "chosen": lambda z, r: torch.where(r > 0, z, z * 2),
    "chosen beside real ones": lambda z, r: torch.where(r > 0, z, r.detach()),
    "conjugates": lambda z, r: torch.einsum("bli,blj->bij", z.conj(), z),
    "cosh": lambda z, r: z.cosh(),
    "cos": lambda z, r: z.cos(),
    "exp": lambda z, r: z.exp(),
    "far out": lambda z, r: (z * 1e-25).log() + (z * 1e25).log() + (z * 1e30).sqrt() / 1e15,
    "filled": lambda z, r: z.masked_fill(r > 0, 2 - 3j),
    "filled with a tensor": lambda z, r: z.detach().masked_fill(r > 0, torch.tensor(1 + 1j)) * z,
    "filled with a real one": lambda z, r: z.masked_fill(r > 0, 2.0),
    "five factors": lambda z, r: z**5,
    "full": lambda z, r: torch.full((2, 3, 2), 1 - 2j) * z,
    "gathered": lambda z, r: z.gather(1, ROWS.expand(2, 2, 3).mT),
    "linear": lambda z, r: F.linear(z, TURN.to(z.dtype), TURN[:, 0].to(z.dtype)),
    "linear of real ones": lambda z, r: F.linear(r + 0j, TURN.to(z.dtype)),
    "log": lambda z, r: z.log(),
    "less a multiple": lambda z, r: (
        torch.sub(z, z.conj(), alpha=2j) - torch.add(r, z, alpha=1j) + torch.rsub(z, r, alpha=3j)
    ),
    "minus i": lambda z, r: r - 2j,
    "ones": lambda z, r: torch.ones(3, 2, dtype=torch.complex64) * z,
    "padded": lambda z, r: F.pad(z, (0, 2, 1, 0)),
    "padded with ones": lambda z, r: F.pad(z, (0, 2), value=1.0),
    "picked": lambda z, r: z[:, ROWS],
    "plus i": lambda z, r: r + 1j,
    "power": lambda z, r: z**-1.5,
    "powers of whole numbers": lambda z, r: z ** (2 + 0j) + (z * 0) ** 0,
    "products": lambda z, r: torch.bmm(z, z.mT),
    "real ones like them": lambda z, r: (
        z * torch.full_like(z, 2.0, dtype=torch.float32)
        + torch.zeros_like(z, dtype=torch.float32)
        + z.new_zeros(2, dtype=torch.float32)
        + torch.full_like(z, 1j)
    ),
    "repeated": lambda z, r: z.repeat(1, 2, 1),
    "rows": lambda z, r: torch.stack(z.unbind(1)) + z[:, 1],
    "running sums": lambda z, r: z.cumsum(1),
    "sin": lambda z, r: z.sin(),
    "sinh": lambda z, r: z.sinh(),
    "sqrt": lambda z, r: z.sqrt(),
    "times i": lambda z, r: r * 1j,
    "triangle": lambda z, r: z.tril(),
    "wide": lambda z, r: z.unsqueeze(1).expand(2, 4, 3, 2),
    "written": lambda z, r: _written(z),
    "zeros": lambda z, r: torch.zeros(2, 3, 2, dtype=torch.complex64) + z,
}  # fmt: skip


def _on_pairs(function: object) -> object:
    def of(x: Tensor) -> Tensor:
        z = torch.view_as_complex(x.reshape(2, 3, 2, 2))
        return torch.view_as_real(torch.resolve_conj(function(z, z.real)))  # type: ignore[operator]

    return of


_QUICK = (
    "a buffer's turn", "angles", "chosen beside real ones", "conjugates", "far out", "filled",
    "filled with a tensor", "less a multiple", "linear", "padded", "power",
    "powers of whole numbers", "real ones like them", "times i", "written",
)  # fmt: skip


@pytest.mark.parametrize("names", [_QUICK, pytest.param((*FUNCTIONS,), marks=pytest.mark.long)])
@COMPARED
def test_functions_of_complex_numbers(names: tuple[str, ...], compared: Comparison) -> None:
    points = [Point(name, _on_pairs(FUNCTIONS[name]), (X,)) for name in names]
    assert compared(points) == []


def test_forms_of_the_exporter_stay() -> None:
    """What it has a form for is no operator on parts, but where a number alone is complex.

    And but angles, of which it has others on the negative axis, and one of NaN.
    """
    registry = ONNXRegistry.from_torchlib(opset_version=23)
    own = {
        operator
        for operator in pairs._FORMS
        if any(form.is_complex for form in registry.get_decomps(operator))
    }
    assert own == pairs._ON_NUMBERS | {torch.ops.aten.angle.default}


class _Filter(nn.Module):
    """A product in frequencies, by weights that are complex, with a turn that is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.polar(torch.full((3, 3), 0.5), torch.arange(9.0).view(3, 3))
        )
        self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        turned = torch.fft.rfft(x) @ self.weight * self.turn[None]
        return {"loss": torch.fft.irfft(turned, n=4).square().mean()}


@pytest.mark.parametrize(
    "optimizer", [sambac.SGD(lr=0.1, momentum=0.9), sambac.AdamW(lr=0.1, eps=0.01)]
)
def test_complex_states_train(optimizer: sambac.Optimizer) -> None:
    """They are pairs in a program, which PyTorch's optimizers take them for, too."""
    module = _Filter()
    options = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(optimizer,))
    program = sambac.compile(module, options, inputs=(X,))
    if isinstance(optimizer, sambac.SGD):
        steps: torch.optim.Optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    else:
        steps = torch.optim.AdamW(module.parameters(), 0.1, eps=0.01)
    with sambarun.load(program) as executable:
        for _ in range(2):
            steps.zero_grad()
            loss = module(X)["loss"]
            loss.backward()
            steps.step()
            found = executable.step({"x": X.numpy()})["loss"]
            np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
        state = executable.state()
    want = torch.view_as_real(module.weight.detach())
    np.testing.assert_allclose(state["weight"], want, atol=1e-5)
    np.testing.assert_array_equal(state["turn"], torch.view_as_real(module.turn))
