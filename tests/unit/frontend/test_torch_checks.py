"""Checks of values that end in an error, by which code guards itself, are no control flow.

They are read as they stand in the file: PYTEST_DONT_REWRITE keeps assert what it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

import sambarun
from sambac import CompileError, CompileOptions, compile

_X = torch.linspace(-1, 1, 6).reshape(2, 3)


def _asserted(x: torch.Tensor) -> torch.Tensor:
    assert (x < 5).all(), "too large"
    return x + 1


def _asserted_either(x: torch.Tensor) -> torch.Tensor:
    rises = x[:, 1:] > x[:, :-1]
    assert rises.all() or (~rises).all()
    return x + 1


def _raised(x: torch.Tensor) -> torch.Tensor:
    if x.max() > 5:
        message = "too large"
        raise ValueError(message)
    return x + 1


def _raised_if_not(x: torch.Tensor) -> torch.Tensor:
    starts = x.dim() == 2 and (x[:, 0] < 5).all()
    if not starts and not bool(x.sum() < 5):
        raise ValueError
    return x + 1


def _raised_otherwise(x: torch.Tensor) -> torch.Tensor:
    if (x < 5).all():
        y = x + 1
    elif (x < 6).all():
        raise ValueError("large")
    else:
        raise ValueError("too large")
    return y


def _asserted_by_torch(x: torch.Tensor) -> torch.Tensor:
    torch._assert((x < 5).all(), "too large")
    return x + 1


def _raised_for_a_number(x: torch.Tensor) -> torch.Tensor:
    if x.max().item() >= 5 or (x > 5).sum().item() == 6 or not (x < 5).all().item():
        raise ValueError(f"{x.max().item()} is too large")
    return x + 1


def _asserted_of_a_number(x: torch.Tensor) -> torch.Tensor:
    largest = x.max().item()
    assert x.sum().item() < 5, largest
    assert -5 < largest < 5
    return x + 1


class _Layer(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.function(x)).square().mean()


_CHECKS = (
    _asserted,
    _asserted_either,
    _raised,
    _raised_if_not,
    _raised_otherwise,
    _asserted_by_torch,
    _raised_for_a_number,
    _asserted_of_a_number,
)


@pytest.mark.parametrize(
    ("check", "train"),
    [
        *((check, False) for check in _CHECKS),
        *((check, True) for check in (_raised_if_not, _raised_for_a_number)),
    ],
)
def test_checks_are_taken_for_passed(
    check: Callable[[torch.Tensor], torch.Tensor], train: bool
) -> None:
    torch.manual_seed(0)
    module = _Layer(check)
    with pytest.warns(UserWarning, match=r"_Layer checks values at test_torch_checks.py:\d+; a"):
        program = compile(module, CompileOptions(train=train), inputs=(_X,))
    with sambarun.load(program) as executable:
        got = executable.run({"x": _X.numpy()}, section_types=["FWD"])
    np.testing.assert_allclose(got["output"], module(_X).detach().numpy(), rtol=1e-5)


def _raised_again(x: torch.Tensor) -> torch.Tensor:
    try:
        return _raised(x)
    except ValueError as error:
        raise RuntimeError("too large") from error


def test_checks_whose_errors_become_others_are_taken_for_passed() -> None:
    with pytest.warns(UserWarning, match="_Layer checks values"):
        compile(_Layer(_raised_again), inputs=(_X,))


@pytest.mark.parametrize("check", [*_CHECKS[1:5], _raised_for_a_number])
def test_examples_that_do_not_pass_are_refused(
    check: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    said = r"checks values at test_torch_checks.py:\d+, and raises \w+Error for .* that pass$"
    with pytest.raises(CompileError, match=said):
        compile(_Layer(check), inputs=(torch.tensor([[9.0, 1.0, 1.0], [1.0, 9.0, 1.0]]),))


class _Ignored:
    """A context that ends errors, which its name does not say."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_about: object) -> bool:
        return True


def _ignored(x: torch.Tensor) -> torch.Tensor:
    with _Ignored():
        if x.max().item() > 5:
            raise ValueError("too large")
        x = x + 1
    return x


def test_examples_whose_errors_are_caught_are_refused() -> None:
    with pytest.warns(UserWarning, match="_Layer checks values"):
        compile(_Layer(_ignored), inputs=(_X,))
    with pytest.raises(CompileError, match=r"raises ValueError for the example .*too large"):
        compile(_Layer(_ignored), inputs=(_X + 5,))


def _chosen(x: torch.Tensor) -> torch.Tensor:
    if x.max() > 5:
        x = x - 5
    return x + 1


def _chosen_by_a_number(x: torch.Tensor) -> torch.Tensor:
    if x.max().item() > 5:
        x = x - 5
    return x + 1


def _caught(x: torch.Tensor) -> torch.Tensor:
    try:
        assert x.max() < 5
    except AssertionError:
        x = x - 5
    return x + 1


def _part_of_a_condition(x: torch.Tensor) -> torch.Tensor:
    assert (x if x.max() > 5 else -x).sum() < 5
    return x + 1


def _caught_outside(x: torch.Tensor) -> torch.Tensor:
    try:
        return _raised(x)
    except ValueError:
        return x - 5


def _suppressed(x: torch.Tensor) -> torch.Tensor:
    y = x - 5
    with contextlib.suppress(ValueError):
        y = _raised(x)
    return y


def _left_at_last(x: torch.Tensor) -> torch.Tensor:
    def small(y: torch.Tensor) -> torch.Tensor:
        try:
            if x.max() > 5:
                raise ValueError
            y = x + 1
        finally:
            return y  # noqa: B012

    return small(x)


def _caught_whatever(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + 1 if x.max() < 5 else x - 5
    except Exception:
        return x


def _number_caught_whatever(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + 1 if x.max().item() < 5 else x - 5
    except Exception:
        return x


class _Counted:
    """Numbers below another one, as Python asks for them in three ways."""

    def __init__(self, count: object) -> None:
        self.count, self.next = count, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.next += 1
        if self.next > self.count or self.next > 9:
            raise StopIteration
        return self.next

    def __getitem__(self, at: int) -> int:
        if at >= self.count or at > 9:
            raise IndexError(at)
        return at

    @property
    def scale(self) -> float:
        if self.count < 3:
            raise AttributeError
        return 2.0


def _iterated(x: torch.Tensor) -> torch.Tensor:
    return x + sum(_Counted(x.abs().sum().long().item()))


def _indexed(x: torch.Tensor) -> torch.Tensor:
    counted = _Counted(x.abs().max())
    return x + sum(map(counted.__getitem__, range(1)))


def _asked_for(x: torch.Tensor) -> torch.Tensor:
    return x * getattr(_Counted(x.abs().max().item()), "scale", 1.0)


def _returned_or_raised(x: torch.Tensor, *, clips: bool = True) -> torch.Tensor:
    if x.max() > 5:
        if clips:
            return x.clamp(max=5)
        raise ValueError
    return x + 1


_CHOICES = (
    *(_chosen, _chosen_by_a_number, _caught, _part_of_a_condition),
    *(_caught_outside, _suppressed, _returned_or_raised),
    *(_left_at_last, _iterated, _indexed, _asked_for),
    *(_caught_whatever, _number_caught_whatever),
)


@pytest.mark.parametrize("choice", _CHOICES)
def test_what_chooses_is_refused(choice: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(CompileError, match="its control flow depends on the values of tensors"):
        compile(_Layer(choice), inputs=(_X,))
