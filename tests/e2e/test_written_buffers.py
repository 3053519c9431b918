"""Buffers that a module writes while it trains, beside PyTorch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from torch import nn

import sambac
import sambarun

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class _Writing(nn.Module):
    """Writes buffers in ways that read them other than element by element, and assigns to some."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, 4))
        for name in ("rows", "product", "sorted", "mixed", "early", "swapped", "other", "assigned"):
            self.register_buffer(name, torch.arange(12.0).reshape(3, 4) / 12)
        for name in ("left", "right"):
            self.register_buffer(name, torch.arange(4.0) + len(name))
        self.register_buffer("branch", torch.ones(4))
        self.register_buffer("square", torch.eye(4) / 2)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("flags", torch.eye(3, 4).bool())
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, was = x * self.w, self.left
        chosen = torch.cond(
            x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (x[0] * 1, self.branch.clone())
        )
        read = (self.early.clone() * self.w).sum() + self.rows.clone().sum(1) @ y.sum(1)
        with torch.no_grad():
            self.rows.index_copy_(0, self.place, y[:1])
            self.place.add_(1).remainder_(3)
            self.branch.copy_(x.mean(0))
            self.product.copy_(self.product @ self.square)
            self.sorted.copy_(self.sorted.sort(1, descending=True)[0])
            self.mixed[0] = y[1]
            self.mixed.copy_(self.mixed.softmax(1))
            self.early.copy_(x)
            before = self.swapped.clone()
            self.swapped.copy_(self.other)
            self.other.copy_(before + 1)
            self.flags.copy_(self.flags.flip(1))
            self.assigned = self.assigned * 0.5 + x.mean(0)
            self.count = self.count + 1
            self.left, self.right = self.right, self.left + x.mean(0)
        changed = self.product + self.sorted + self.mixed + self.swapped + self.assigned
        return (y * changed).sum() + read + self.count + (y * self.flags * chosen).sum(), was


@pytest.mark.parametrize(
    ("level", "nested"),
    [
        ("O3", False),
        pytest.param("O3", True, marks=pytest.mark.long),
        pytest.param("O0", False, marks=pytest.mark.long),
        pytest.param("O0", True, marks=pytest.mark.long),
    ],
)
def test_three_steps(level: sambac.options.Level, nested: bool) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(_Writing()) if nested else _Writing()
    exact, x = exactly(copy.deepcopy(module)), exactly(X)
    optimizer = torch.optim.SGD(exact.parameters(), lr=0.1)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss, was = exact(x)
        loss.backward()
        optimizer.step()
        expected.append((loss.detach().numpy(), was.clone().numpy()))
    options = sambac.CompileOptions(train=True, level=level, optimizers=(sambac.SGD(lr=0.1),))
    program = sambac.compile(module, options, inputs=(X,))
    (name,) = (port.name for port in program.graphs[0].inputs if "__grad" not in port.name)
    with sambarun.load(program) as executable:
        found = [tuple(executable.run({name: X.numpy()}).values()) for _ in range(3)]
        state = dict(executable.state())
    for results, exact_results in zip(found, expected, strict=True):
        for result, exact_result in zip(results, exact_results, strict=True):
            assert_near(result, exact_result)
    for key, value in exact.state_dict().items():
        assert_near(state[key], value.detach().numpy(), what=key)


class _Assigning(nn.Module):
    def __init__(self, value: torch.Tensor | None) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))
        self.register_buffer("kept", value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = x.double().mean(0)
        return (x * self.w).sum()


@pytest.mark.parametrize("value", [None, torch.zeros(4), torch.zeros(2).double()])
def test_what_does_not_fit_a_buffer_is_refused_and_taken_back(value: torch.Tensor | None) -> None:
    module = nn.Sequential(_Assigning(value))
    with pytest.raises(sambac.CompileError, match=r"float64\[4\] to the buffer 0\.kept, which is"):
        sambac.compile(module, sambac.CompileOptions(train=True), inputs=(X,))
    assert module[0].kept is value


class _Becoming(nn.Module):
    """Lets a buffer be a parameter or another buffer, or takes what a branch makes of it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.w = nn.Parameter(torch.linspace(-1, 1, 4))
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("other", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * self.w * self.kept.clone()).sum()
        if self.how == "parameter":
            self.kept = self.w.detach().view(4)
        elif self.how == "buffer":
            self.other.add_(x.mean(0))
            self.kept = self.other
        else:
            with torch.no_grad():
                operands = (x.mean(0), self.kept)
                self.kept.copy_(torch.cond(x.sum() > 0, torch.add, torch.mul, operands))
        return y


class _Showing(nn.Module):
    """Lets a buffer be another tensor, or a parameter be made anew, before it is read."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.w = nn.Parameter(torch.linspace(-1, 1, 4))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("other", torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.how:
            case "view":
                self.kept = self.w.detach().view(4)
            case "buffer":
                self.kept = self.other
            case "parameter":
                self.kept = self.w
            case "new":
                self.made = self.w
            case "state":
                self.frozen = nn.Parameter(self.frozen * 0.5 + x.mean(0), requires_grad=False)
        return (x * self.w * self.kept * self.frozen).sum()


@pytest.mark.parametrize("how", ["view", "buffer", "parameter", "new"])
def test_a_buffer_may_be_another_tensor_where_nothing_trains(how: str) -> None:
    module = _Showing(how)
    held = dict(module.state_dict(keep_vars=True))
    with sambarun.load(sambac.compile(module, inputs=(X,))) as executable:
        found = executable.run({"x": X.numpy()})["output"]
    assert [*module.state_dict(keep_vars=True).items()] == [*held.items()]
    assert_near(found, exactly(module)(exactly(X)).detach().numpy())


def test_a_buffer_that_becomes_a_parameter_trains_as_it_does() -> None:
    module = _Showing("parameter")
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))
    with sambarun.load(sambac.compile(module, options, inputs=(X,))) as executable:
        for _ in range(2):
            executable.step({"x": X.numpy()})
        state = executable.state()
    assert list(dict(module.named_parameters())) == ["w", "frozen"]
    exact = exactly(module)
    optimizer = torch.optim.SGD([exact.w], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        exact(exactly(X)).backward()
        optimizer.step()
    assert_near(state["w"], exact.w.detach().numpy())


@pytest.mark.parametrize("train", [False, True])
def test_a_parameter_is_not_assigned_to(train: bool) -> None:
    module = nn.Sequential(_Showing("state"))
    frozen = module[0].frozen
    with pytest.raises(
        sambac.CompileError, match=r"its parameters 0\.frozen, .* register a buffer"
    ):
        sambac.compile(module, sambac.CompileOptions(train=train), inputs=(X,))
    assert module[0].frozen is frozen


@pytest.mark.parametrize(("how", "what"), [("parameter", "w"), ("buffer", "other")])
def test_a_buffer_does_not_become_another_tensor(how: str, what: str) -> None:
    with pytest.raises(sambac.CompileError, match=f"lets the buffer kept be {what}, .* clone"):
        sambac.compile(_Becoming(how), sambac.CompileOptions(train=True), inputs=(X,))


def test_what_branches_make_of_a_buffer_is_written_over_it() -> None:
    module = _Becoming("branch")
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))
    with sambarun.load(sambac.compile(module, options, inputs=(X,))) as executable:
        for _ in range(2):
            executable.step({"x": X.numpy()})
        found = executable.state()["kept"]
    with torch.no_grad():
        for _ in range(2):
            module(X)
    np.testing.assert_allclose(found, module.kept.numpy(), rtol=1e-5)


class _Shared(nn.Module):
    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", buffer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.kept + x.mean()
        return (x * self.kept).sum()


def test_one_buffer_of_two_names_is_not_parted() -> None:
    buffer = torch.zeros(4)
    module = nn.Sequential(nn.Linear(4, 4), _Shared(buffer))
    module[0].register_buffer("also", buffer)
    with pytest.raises(sambac.CompileError, match=r"buffer 1\.kept, which is also 0\.also"):
        sambac.compile(module, sambac.CompileOptions(train=True), inputs=(X,))
