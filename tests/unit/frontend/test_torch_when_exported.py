"""Modules that ask whether they are exported are told of if they compute something else then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.compiler import is_exporting as by_another_name
from torch.nn import functional

import sambac
import sambarun

X = torch.linspace(-1, 2, 12).reshape(3, 4)


class _Asking(nn.Module):
    """`way` computes the result, and is told whether it is exported."""

    count: Tensor

    def __init__(
        self,
        way: Callable[[_Asking, Tensor, bool], object],
        ask: Callable[[], bool] = torch.compiler.is_exporting,
    ) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.weight = nn.Parameter(torch.ones(4))
        self.way, self.ask = way, ask.__name__

    def forward(self, x: Tensor) -> object:
        return self.way(self, x * self.weight, getattr(torch.compiler, self.ask)())


def _shifted(_: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    return x + 0.1 if is_exported else x


def _numbered(_: _Asking, x: Tensor, is_exported: bool) -> tuple[Tensor, float]:
    return x, 2.0 if is_exported else 1.0


def _cut(_: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    return x[:2] if is_exported else x


def _as_dynamo_says(_: _Asking, x: Tensor, __: bool) -> dict[str, Tensor]:
    return {"y": x + 0.1 if torch._dynamo.is_compiling() else x}


def _whole(_: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    return (x > 0.5) if is_exported else (x > 0.7)


@pytest.mark.parametrize(
    ("module", "apart"),
    [
        (_Asking(_shifted), r"is_exporting what .* up to 5\.0 % of the largest number apart"),
        (_Asking(_shifted, torch.compiler.is_compiling), r"is_compiling what .* 5\.0 %"),
        (_Asking(_as_dynamo_says), r"is_compiling and is_exporting .* 5\.0 %"),
        (_Asking(_numbered), r"is_exporting what .* up to 100\.0 %"),
        (_Asking(_cut), "results of other shapes or types"),
        (_Asking(_whole), "up to"),
    ],
)
def test_what_is_something_else_is_told(module: nn.Module, apart: str) -> None:
    with pytest.warns(UserWarning, match=f"_Asking asks torch.compiler.*{apart}"):
        sambac.compile(module.eval(), inputs=(X,))


class _Importing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 if by_another_name() else x


def test_questions_by_names_of_their_own_are_seen() -> None:
    with pytest.warns(UserWarning, match=r"_Importing asks torch.compiler.is_exporting .* 5\.0 %"):
        sambac.compile(_Importing(), inputs=(X,))
    assert by_another_name is torch.compiler.is_exporting


def test_what_is_recorded_is_what_is_exported() -> None:
    with pytest.warns(UserWarning, match="which is recorded"):
        program = sambac.compile(_Asking(_shifted).eval(), inputs=(X,))
    with sambarun.load(program) as executable:
        found = executable.run({"x": X.numpy()})["output"]
    np.testing.assert_allclose(found, X.numpy() + 0.1, rtol=1e-6)


def _counted(self: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    """In another order, with what is drawn and what is kept."""
    if self.training:
        self.count += 1
    noisy = functional.dropout(x, 0.5, self.training)
    return (noisy / 3 if is_exported else noisy * (1 / 3)) + self.count


def _in_another_order(_: _Asking, x: Tensor, is_exported: bool) -> dict[str, Tensor]:
    results = {"more": x + 1, "output": x}
    return results if is_exported else dict(reversed(results.items()))


def _nothing(_: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    nan = x.new_tensor([torch.nan, torch.inf, 1.0, 0.0])
    return torch.where(x > 0, nan, x) if is_exported else torch.where(x <= 0, x, nan)


@pytest.mark.parametrize("way", [_counted, _nothing, _in_another_order])
def test_what_is_the_same_is_not(way: Callable[[_Asking, Tensor, bool], object]) -> None:
    """Warnings are errors here."""
    module = _Asking(way)
    drawn = torch.random.get_rng_state()
    sambac.compile(module.eval(), inputs=(X,))
    options = sambac.CompileOptions(train=True, backward_from=("output",))
    sambac.compile(module.train(), options, inputs=(X,))
    assert torch.equal(module.count, torch.zeros(()))
    assert torch.equal(torch.random.get_rng_state(), drawn)


def _only_exported(_: _Asking, x: Tensor, is_exported: bool) -> Tensor:
    if not is_exported:
        raise ValueError
    return x


def test_a_module_that_only_exports_is_told() -> None:
    with pytest.warns(UserWarning, match=r"is open, as a call of it raises ValueError"):
        sambac.compile(_Asking(_only_exported).eval(), inputs=(X,))


def test_what_cannot_be_copied_or_compared_is_told() -> None:
    module = _Asking(_shifted).eval()
    module.numbers = (number for number in range(3))  # type: ignore[assignment]  # nothing that can be copied
    with pytest.warns(UserWarning, match=r"is open, as it cannot be copied, which raises TypeE"):
        sambac.compile(module, inputs=(X,))
    sparse = _Asking(lambda _, x, is_exported: x if is_exported else x.to_sparse())
    with pytest.warns(UserWarning, match=r"is open, as a call of it raises NotImpl"):
        sambac.compile(sparse.eval(), inputs=(X,))


def test_what_calls_write_is_put_back() -> None:
    seen: list[int] = []

    def writing(self: _Asking, x: Tensor, is_exported: bool) -> Tensor:
        if not is_exported:
            self.weight.data.mul_(2)
            seen.append(1)
        return x * self.weight.detach()

    module = _Asking(writing).eval()
    with pytest.warns(UserWarning, match="which is recorded, is something else"):
        sambac.compile(module, inputs=(X,))
    assert torch.equal(module.weight, torch.ones(4))
    assert not seen


def test_nothing_is_compiled_to_see_it() -> None:
    def compiled(_: torch.fx.GraphModule, __: object) -> Callable[..., object]:
        raise AssertionError

    inner = torch.compile(nn.Linear(4, 4), backend=compiled)
    module = _Asking(lambda _, x, is_exported: inner(x) + 0.1 * is_exported)
    with pytest.warns(UserWarning, match="which is recorded, is something else: results are"):
        sambac.compile(module.eval(), inputs=(X,))


def test_without_numbers_nothing_is_compared() -> None:
    with torch.device("meta"):
        module, x = _Asking(_shifted), torch.zeros(3, 4)
    sambac.compile(module.eval(), inputs=(x,))
