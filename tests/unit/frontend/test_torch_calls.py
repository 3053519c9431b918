"""Inputs that do not fit `forward`: one sentence before anything is recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim
from torch_runs import Lambda, run_training, training_source

import sambac
import sambarun
from sambac import CompileError

X = torch.ones(2, 4)


class _Two(nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first + second


class _Optional(nn.Module):
    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, *, scale: float = 1.0
    ) -> torch.Tensor:
        return x * scale if mask is None else x * mask


class _OfDict(nn.Module):
    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return batch["x"].exp()


@pytest.mark.parametrize(
    ("module", "inputs", "said"),
    [
        (_Two(), (X,), "_Two: forward takes (first, second); 1 input came: missing .* 'second'"),
        (_Two(), (X, X, X), "takes (first, second); 3 inputs came: too many"),
        (_Two(), (), "takes (first, second); 0 inputs came: missing .* 'first'"),
        (_Two(), {"first": X}, "(first, second); first by name came: missing .* 'second'"),
        (_Two(), (X, {"first": X}), "1 input and first by name came: multiple values .* 'first'"),
        (_Optional(), (), "takes (x, mask=None, *, scale=1.0); 0 inputs came"),
        (_Optional(), (X, X, X), "takes (x, mask=None, *, scale=1.0); 3 inputs came: too many"),
        (_Optional(), {"x": X, "maks": X}, "'maks' (did you mean 'mask'?)"),
        (_OfDict(), {"x": X}, "takes (batch); x by name came: .* one argument goes into a tuple"),
    ],
)
@pytest.mark.parametrize("train", [False, True])
def test_wrong_inputs(module: nn.Module, inputs: object, said: str, train: bool) -> None:
    pattern = said.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
    with pytest.raises(CompileError, match=pattern.replace(", *,", r", \*,")):
        sambac.compile(module, sambac.CompileOptions(train=train), inputs=inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (_Two(), {"first": X, "second": X}),
        (_Two(), (X, {"second": X})),
        (_Optional(), (X, X)),
        (_OfDict(), ({"x": X},)),
        (Lambda(torch.add), (X, X)),
    ],
)
def test_inputs_that_fit(module: nn.Module, inputs: object) -> None:
    sambac.compile(module, inputs=inputs)  # type: ignore[arg-type]


ROWS = Dim("rows")


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"first": {5: ROWS}, "second": None}, "leave axis 5 of first open, which has 2 axes"),
        (({0: ROWS}, {-1: ROWS}), "leave axis -1 of second open, which has 2 axes"),
        ({"first": {"0": ROWS}, "second": None}, "leave axis '0' of first open"),
        ({"first": {0: ROWS}}, "for the inputs first, second, and first came"),
        (({0: ROWS},), "for the inputs first, second, and 1 came"),
        ((None, None, None), "for the inputs first, second, and 3 came"),
        (5, "dynamic_shapes is of type int; give a dict"),
    ],
)
def test_open_sizes_of_what_is_not_there(shapes: object, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        sambac.compile(_Two(), inputs=(X, X.clone()), dynamic_shapes=shapes)  # type: ignore[arg-type]


class _Heard(logging.Handler):
    """What PyTorch logs."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture
def heard() -> Iterator[list[str]]:
    loggers = [logging.getLogger(name) for name in ("torch", *_LOGGERS_OF_THEIR_OWN)]
    handler = _Heard()
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.said
    for logger in loggers:
        logger.removeHandler(handler)


_LOGGERS_OF_THEIR_OWN = ("torch._dynamo", "torch._subclasses.fake_tensor", "torch.export")
"""Loggers that hand nothing on to `torch`; theirs are traceback after traceback."""


@pytest.mark.parametrize(
    "module",
    [nn.Linear(3, 2), Lambda(lambda x: torch.cond(x.sum() > 0, torch.sin, lambda t: t[1:], (x,)))],
)
def test_what_is_raised_is_not_logged_too(module: nn.Module, heard: list[str]) -> None:
    before = logging.getLogger("torch").level
    with pytest.raises(CompileError):
        sambac.compile(module, inputs=(X,))
    assert heard == []
    assert logging.getLogger("torch").level == before


class _Converted(nn.Module):
    """A layer that forward converts, or what else `change` does to it."""

    def __init__(self, change: Callable[[nn.Module, torch.Tensor], nn.Module]) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(4, 3), change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer = self.change(self.layer, x)
        return self.layer(x)


def test_a_layer_is_converted_to_what_it_is() -> None:
    """Which changes nothing, as where forward puts it on the device of the input."""
    module = _Converted(lambda layer, x: layer.to(x.device).to(x.dtype).to(x).float().cpu())
    found = run_training(training_source(module, X), X)
    np.testing.assert_allclose(found["output"], module(X).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (_Converted(lambda layer, x: layer.double()), r"forward converts .* the module itself"),
        (
            _Converted(lambda layer, x: layer._apply(lambda state: state.mul_(2))),
            "forward converts or moves the module itself",
        ),
        (nn.Linear(4, 3).double(), "1 operator of the model mixes types; .* module.float()"),
        (
            Lambda(lambda x: x * float(x.norm())),
            r"float\(\) or int\(\); .item\(\), as for a log, can",
        ),
        (
            Lambda(lambda x: x[: int(x.norm())]),
            r"float\(\) or int\(\); .item\(\), as for a log, can",
        ),
        (Lambda(lambda x: x if x.norm() > 0 else -x), "its control flow depends on the values"),
        (
            Lambda(lambda x: torch.vmap(lambda i: x[i])(torch.arange(2))),
            r"torch.vmap indexes with a tensor, .* let it be x.index_select\(0, i.reshape\(1\)\)",
        ),
        (
            Lambda(lambda x: torch.Tensor._make_subclass(torch.Tensor, x * 2) * 2),
            "takes tensors out of the recording; let buffers keep tensors",
        ),
    ],
)
def test_reasons_are_named(module: nn.Module, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        sambac.compile(module, inputs=(X.clone(),))


@pytest.mark.parametrize("train", [False, True])
def test_whole_numbers_where_fractions_are_expected(train: bool) -> None:
    said = (
        r"^input 'input' is int64, and Gemm \(node '\w+'.*\) takes it beside float32, so float32 "
        r"was expected; give float32 values, or cast it in the model \(in PyTorch, input.float"
    )
    with pytest.raises(CompileError, match=said) as caught:
        sambac.compile(
            nn.Linear(4, 3), inputs=(X.long(),), options=sambac.CompileOptions(train=train)
        )
    assert "tensor(" not in str(caught.value)


@pytest.mark.parametrize("train", [False, True])
def test_halves_where_singles_are_expected(train: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 3), Lambda(torch.mean))
    with pytest.raises(CompileError, match=r"^1 operator of the model mixes types; give"):
        sambac.compile(model, inputs=(X.half(),), options=sambac.CompileOptions(train=train))


class _Made(nn.Module):
    """A module that forward makes, in which `function` is called."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Lambda(self.function)(x)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x if x.norm() > 0 else -x, r"values of tensors; .* \(Could not guard"),
        (lambda x: torch.manual_seed(0) and x, r"^forward calls torch.manual_seed"),
        (lambda x: x.view(3), r"_Made cannot be exported at .*shape '\[3\]' is invalid"),
    ],
)
def test_reasons_of_what_fails_in_a_module_that_forward_makes(
    function: Callable[[torch.Tensor], torch.Tensor], said: str
) -> None:
    with pytest.raises(CompileError, match=said):
        sambac.compile(_Made(function), inputs=(X,))


class _WordlessError(Exception):
    """An error of a module's own, without words."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError(6), r"there is no 6 \(KeyError\)$"),
        (KeyError("head"), r"there is no 'head' \(KeyError\)$"),
        (IndexError("list index out of range"), r"list index out of range \(IndexError\)$"),
        (AssertionError(), "AssertionError$"),
        (AssertionError("x"), r": x \(AssertionError\)$"),
        (_WordlessError(), ": _WordlessError$"),
        (ValueError("the mask is too long"), ": the mask is too long$"),
    ],
)
def test_what_a_module_raises_is_told_with_its_kind(error: Exception, said: str) -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise error

    with pytest.raises(CompileError, match=f"Lambda cannot be exported at .*{said}"):
        sambac.compile(Lambda(fail), inputs=(X,))


def test_numbers_that_are_items_are_recorded() -> None:
    sambac.compile(Lambda(lambda x: x * x.norm().item()), inputs=(X,))


@pytest.mark.parametrize("inputs", [(X,), None])
def test_a_class_is_to_be_called(inputs: object) -> None:
    with pytest.raises(CompileError, match=r"Linear is a class, not a model; call it, .*Linear\("):
        sambac.compile(nn.Linear, inputs=inputs)  # type: ignore[arg-type]


class _Indexed(nn.Module):
    """Reads a row by a tensor without axes that it keeps."""

    def __init__(self, *, registered: bool) -> None:
        super().__init__()
        if registered:
            self.register_buffer("row", torch.tensor(1))
        else:
            self.row = torch.tensor(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.row]


def test_a_number_out_of_a_kept_tensor_is_told_and_a_buffer_runs() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(
        CompileError, match=r"keeps in an attribute.*register_buffer\(\) the tensor"
    ):
        sambac.compile(_Indexed(registered=False), inputs=(x,))
    with sambarun.load(sambac.compile(_Indexed(registered=True), inputs=(x,))) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    np.testing.assert_array_equal(found, x[1].numpy())
