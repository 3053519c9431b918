"""Where no gradient may flow, and gradients that a recording would lose."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_runs import (
    TRAIN,
    gradient_reaches,
    operators,
    run,
    run_training,
    stops,
    training_source,
)

from sambac import CompileOptions
from sambac.errors import CompileError
from sambac.frontend import load

Function = Callable[[torch.Tensor], torch.Tensor]


class _Detached(nn.Module):
    """Each result depends on x by ways that carry gradients, or by others alone."""

    def __init__(self, *, autocast: bool) -> None:
        super().__init__()
        self.autocast = autocast
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("queue", torch.zeros(4, 3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        first, second = self.first(x), self.second(x)
        with torch.no_grad():
            off = first * 2
            with torch.enable_grad():
                inner = second + off
            self.average.copy_(first.mean(0))
            self.queue[:2] = first * 2
            self.queue[2] = first[0]
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            low = functional.linear(first, self.first.weight)
        inside = first * 3
        inside.detach_()
        with torch.no_grad():
            room = torch.zeros_like(first)
            empty = room + 1
        room[:, 0] = second[:, 0]
        constant = torch.tensor([1.0, 2.0, 3.0])
        constant[0] = second[0, 0]
        return {
            "detached": first.detach() + second,
            "off": off + second,
            "inner": inner,
            "averaged": self.average * second,
            "low": low.float() + second,
            "both": first + off,
            "alone": off,
            "inside": inside + second,
            "queued": self.queue[:2] * second,
            "room": room + empty,
            "constant": constant,
        }


@pytest.mark.parametrize("ambient", [True, False])
def test_what_is_detached_and_what_is_not(ambient: bool) -> None:
    """Whether gradients are on or off where a module is recorded."""
    x = torch.randn(2, 3)
    with torch.set_grad_enabled(ambient):
        source = training_source(_Detached(autocast=True), x)
    model = source.model
    reached = {
        name: [gradient_reaches(model, name, f"{layer}.weight") for layer in ("first", "second")]
        for name in source.signature.outputs
    }
    assert reached == {
        "detached": [False, True],
        "off": [False, True],
        "inner": [False, True],
        "averaged": [False, True],
        "low": [False, True],
        "both": [True, False],
        "alone": [False, False],
        "inside": [False, True],
        "queued": [False, True],
        "room": [False, True],
        "constant": [False, True],
    }


def test_values_are_those_of_the_module() -> None:
    module, x = _Detached(autocast=False), torch.randn(2, 3)
    got = run_training(training_source(module, x), x)
    for name, want in module(x).items():
        np.testing.assert_allclose(
            got[name], want.detach().numpy(), rtol=1e-5, atol=1e-6, err_msg=name
        )


def test_what_is_on_inside_of_what_is_off() -> None:
    """In a program that was recorded with gradients off."""

    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                y = self.layer(x)
            return y * 2

    with torch.no_grad():
        program = torch.export.export(Inside(), (torch.randn(2, 3),))
    assert gradient_reaches(load(program, TRAIN).model, "output", "layer.weight")


def test_a_decorated_function_has_no_gradients() -> None:
    @torch.no_grad()
    def target(x: torch.Tensor) -> torch.Tensor:
        return functional.softmax(x, -1)

    class Distilled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            logits = self.layer(input)
            return functional.cross_entropy(logits, target(logits))

    source = training_source(Distilled(), torch.randn(2, 3))
    assert len(stops(source.model)) == 1
    assert source.signature.inputs == ("input",)
    assert gradient_reaches(source.model, "output", "layer.weight")


def test_the_padding_row_of_an_embedding_does_not_learn() -> None:
    tokens = torch.tensor([[1, 0, 2]])
    embedding = nn.Embedding(5, 3, padding_idx=0)
    source = training_source(embedding, tokens)
    (stop,) = stops(source.model)
    (where,) = (node for node in source.model.graph if node.op_type == "Where")
    assert where.inputs[1] is stop.outputs[0]
    assert (run_training(source, tokens)["output"] == embedding(tokens).detach().numpy()).all()
    assert source.evaluation is not None
    assert operators(source.evaluation) == ["BitwiseAnd", "Gather"]
    plain = training_source(nn.Embedding(5, 3), tokens)
    assert operators(plain.model) == ["BitwiseAnd", "Gather"]


class _Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


class _Before(nn.Module):
    """A function of what a layer returns."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x))


def _hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y


def _differentiated(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    leaf.square().sum().backward()
    assert leaf.grad is not None
    return x * leaf.grad


def _written_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x.mul_(2)
    return x


def _written_in_part_without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        x[0] = 0
    return x


def _written_by_another_name(x: torch.Tensor) -> torch.Tensor:
    x.detach().mul_(2)
    return x


def _written_after_detach(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(2, 3).detach().add_(x)


def _written_once_more(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        room = torch.zeros(2, 3)
    room.copy_(x)
    with torch.no_grad():
        room.mul_(2)
    return room


@torch.no_grad()
def _decorated(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _off(*managers: AbstractContextManager[object]) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        with ExitStack() as stack:
            for manager in managers:
                stack.enter_context(manager)
            return x * 2

    return function


def _set_off_inside_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        torch.set_grad_enabled(False)
        y = x * 2
        torch.set_grad_enabled(True)
    return y


def _decorated_inside_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return _decorated(x)


_AUTOCAST = r"turns gradients off inside torch\.autocast"
_WRITTEN = "changes a tensor in place .* where gradients are off"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_hooked, "hook on a tensor"),
        (_differentiated, r"derivatives inside forward \(autograd\.backward"),
        (_off(torch.inference_mode()), r"inference_mode, .* use torch\.no_grad"),
        (_off(torch.autocast("cpu", torch.bfloat16), torch.no_grad()), _AUTOCAST),
        (_set_off_inside_autocast, _AUTOCAST),
        (_decorated_inside_autocast, _AUTOCAST),
        (_written_without_gradients, _WRITTEN),
        (_written_in_part_without_gradients, _WRITTEN),
        (_written_by_another_name, _WRITTEN),
        (_written_after_detach, _WRITTEN),
        (_written_once_more, _WRITTEN),
    ],
)
def test_gradients_that_would_be_lost_are_refused(function: Function, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        training_source(_Before(function), torch.randn(2, 3))


class _Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("last", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.last.detach().copy_(y)
        return self.last * y


def test_what_has_gradients_is_not_written_by_another_name() -> None:
    with pytest.raises(CompileError, match=_WRITTEN):
        training_source(_Remembering(), torch.randn(2, 3))


def test_writes_that_lose_nothing_are_not_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(mode=False):
            free = x.detach().clone()
        with torch.no_grad():
            free.mul_(2)
            own = (x * 2).add_(1)
        y = x * 3
        y[0] = 0
        return y.mul_(2) + free + own

    x = torch.randn(2, 3)
    module = _Before(function)
    source = training_source(module, x)
    assert gradient_reaches(source.model, "output", "layer.weight")
    want = module(x).detach().numpy()
    np.testing.assert_allclose(run_training(source, x)["output"], want, rtol=1e-5, atol=1e-6)


def test_an_inference_program_may_write_what_it_likes() -> None:
    module, x = _Before(_written_by_another_name), torch.randn(2, 3)
    model = load(module, CompileOptions(), (x,)).model
    got = run(model, {"x": x.numpy()})["output"]
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-5)


def test_embeddings_whose_gradients_depend_on_frequency_are_refused() -> None:
    tokens, offsets = torch.tensor([1, 2, 1]), torch.tensor([0, 2])
    with pytest.raises(CompileError, match="scale_grad_by_freq"):
        training_source(nn.Embedding(5, 3, scale_grad_by_freq=True), tokens)
    with pytest.raises(CompileError, match="scale_grad_by_freq"):
        training_source(nn.EmbeddingBag(5, 3, scale_grad_by_freq=True), tokens, offsets)


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (lambda layer: layer.register_full_backward_hook(lambda *_: None), "Linear"),
        (lambda layer: layer.register_full_backward_pre_hook(lambda *_: None), "Linear"),
        (lambda layer: layer.weight.register_hook(lambda g: g * 2), "weight"),
        (lambda layer: layer.bias.register_post_accumulate_grad_hook(lambda _: None), "bias"),
    ],
)
def test_hooks_on_gradients_are_refused(hook: Callable[[nn.Linear], object], name: str) -> None:
    layer = nn.Linear(3, 3)
    hook(layer)
    with pytest.raises(CompileError, match=f"the gradients of {name} have hooks"):
        training_source(layer, torch.randn(2, 3))


def test_nothing_stays_replaced() -> None:
    """What would lose gradients is forbidden while a module is recorded, and not longer."""
    training_source(nn.Linear(3, 3), torch.randn(2, 3))
    y = torch.ones(2, requires_grad=True)
    _Round.apply(y).sum().backward()
    assert y.grad is not None


class _Waiting(nn.Module):
    """Lets another thread work while it is recorded."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.work = work

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=self.work)
        thread.start()
        thread.join()
        return (x * self.scale).sum()


class _Doubling(torch.autograd.Function):
    @staticmethod
    def forward(context: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def test_other_threads_have_gradients_of_their_own_while_one_records(tmp_path: Path) -> None:
    # In a file: what a recording leaves in objects that the module gets to is taken back.
    done = tmp_path / "done"

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        x.register_hook(lambda gradient: gradient * 5)
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            pass
        with torch.inference_mode():
            pass
        _Doubling.apply(x).sum().backward()
        (more,) = torch.autograd.grad((x * 3).sum(), x)
        assert x.grad is not None
        with done.open("a") as file:
            file.write(f"{x.grad.tolist()} {more.tolist()}\n")

    load(_Waiting(work), TRAIN, inputs=(torch.ones(3),))
    assert set(done.read_text().splitlines()) == {f"{[10.0] * 3} {[15.0] * 3}"}
