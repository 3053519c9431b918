"""Dropouts that drop nothing: of rate 0 they are told, and they give the tensor that they take."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import fx, nn
from torch.nn import functional
from torch_runs import Lambda, training_source

import sambac
import sambarun
from sambac.frontend.torch import load_torch
from sambac.frontend.torch.modules.inputs import example_of
from sambac.frontend.torch.modules.memory import Surroundings
from sambac.frontend.torch.patching import quiet
from sambac.frontend.torch.programs.functional import functional as without_writes
from sambac.frontend.torch.recording.capture import capture

TRAIN = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(),))


class Net(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 2, 1), layer)
        self.last = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)).square().mean()


def told(layer: nn.Module) -> tuple[str, ...]:
    return load_torch(Net(layer), TRAIN, (torch.ones(2, 1, 3, 3),)).warnings


@pytest.mark.parametrize(
    "kind", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout]
)
def test_a_rate_of_zero_is_told_with_the_path_of_the_module(kind):
    (warning,) = told(kind(0.0))
    assert warning.startswith("The dropout of first.1 has the rate 0 and is left out: no run can")


def test_a_function_has_the_path_of_the_module_that_calls_it():
    class Calls(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.0)

    (warning,) = told(Calls())
    assert "first.1" in warning


@pytest.mark.parametrize("layer", [nn.Dropout(0.1), nn.Dropout(1.0), nn.Identity()])
def test_other_models_have_nothing_to_tell(layer):
    assert told(layer) == ()


class Writes(nn.Module):
    """What `gives` may give, written in place: so is what it takes, if that is one tensor."""

    def __init__(self, gives: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.gives = gives

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        taken = x + 1
        given = self.gives(taken.relu_())
        return taken + given.mul_(3)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "gives",
    [
        nn.Dropout(0.5),
        nn.Dropout(0.0),
        nn.Sequential(nn.Dropout(0.0), nn.Identity(), nn.Dropout(0.0)),
        nn.Dropout2d(0.0),
        nn.AlphaDropout(0.0),
        lambda x: functional.dropout(x, p=0.5, training=False),
        lambda x: torch.einsum("abcd->abcd", x),
        lambda x: x.sum_to_size(x.shape),
        lambda x: x.type_as(x),
        torch.clone,
    ],
)
def test_what_gives_the_tensor_that_it_takes(gives, training: bool) -> None:
    if training and getattr(gives, "p", 0):
        gives = nn.Dropout(1.0)  # whatever it draws, the numbers are these
    module, x = Writes(gives), torch.randn(2, 3, 2, 2)
    example = example_of(module, (x,), None)
    recorded, _ = capture(module, example, Surroundings.of(module, example), training=training)
    with quiet():
        plain = without_writes(recorded, "it", training=training)
    (found,) = fx.Interpreter(plain.graph_module).run(x)
    torch.testing.assert_close(found, module.train(training)(x))


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (lambda x: torch.einsum("abcd->abdc", x), "einsum"),
        (lambda x: torch.meshgrid(x[0, 0, 0], x[0, 0, 1], indexing="ij")[0], "meshgrid"),
        (lambda x: x.unsafe_chunk(2)[0], "unsafe_chunk"),
        (lambda x: x.unsafe_split(1)[0], "unsafe_split"),
        (lambda x: torch.ops.aten._unsafe_view(x, [24]), "_unsafe_view"),
        (lambda x: torch._C._nn.flatten_dense_tensors([x]), "flatten_dense_tensors"),
    ],
)
def test_a_view_of_which_nothing_is_said_is_refused_where_it_is_written(view, said: str) -> None:
    class Viewed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            taken = x + 1
            view(taken).mul_(3)
            return taken

    with pytest.raises(sambac.CompileError, match=rf"changes what aten.{said}.* a clone\(\) of it"):
        load_torch(Viewed(), sambac.CompileOptions(), (torch.ones(2, 3, 2, 2),))


def test_what_gives_several_views_is_one_memory_with_them() -> None:
    class Broadcast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            taken = x + 1
            torch.broadcast_tensors(taken, torch.ones(1))[0].mul_(3)
            return taken

    x = torch.randn(2, 3, 2, 2)
    with sambarun.load(sambac.compile(Broadcast(), inputs=(x,))) as executable:
        (found,) = executable.run({"x": x.numpy()}).values()
    np.testing.assert_allclose(found, (3 * (x + 1)).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "gives",
    [
        lambda x: functional.dropout(x, p=0.5, training=False),
        lambda x: torch.einsum("ab->ab", x),
        lambda x: x.type_as(x),
        torch.conj_physical,
        torch.atleast_3d,
        lambda x: torch.broadcast_tensors(x)[0],
    ],
)
@pytest.mark.parametrize("detaches", [False, True])
def test_what_has_gradients_is_not_written_without_any_by_another_name(
    gives, detaches: bool
) -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            taken = self.layer(x)
            if detaches:
                gives(taken.detach()).mul_(2)
                return taken
            with torch.no_grad():
                gives(taken).mul_(2)
            return taken

    with pytest.raises(
        sambac.CompileError, match=r"changes a tensor in place .* gradients are off"
    ):
        training_source(Written(), torch.randn(2, 3))


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(
    "drops",
    [
        lambda x: functional.dropout(x, 1.0),
        lambda x: functional.dropout2d(x, 1.0),
        lambda x: functional.alpha_dropout(x, 1.0, training=True),
        lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=1.0),
        lambda x: torch.native_dropout(x, 1.0, True),
    ],
)
def test_a_program_that_infers_may_drop_everything(drops, level: str) -> None:
    x = torch.tensor([1.0, -2.0, 3.0, 0.5]).expand(2, 3, 4, 4).contiguous()
    module = Lambda(lambda x: drops(x))
    program = sambac.compile(module, sambac.CompileOptions(level=level), inputs=(x,))
    with sambarun.load(program) as executable:
        found = executable.run({"args_0": x.numpy()})
    expected = drops(x)
    for got, wanted in zip(
        found.values(), expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
        np.testing.assert_array_equal(got, wanted.numpy())


def _drawing(rows: int = 400) -> tuple[nn.Module, torch.Tensor]:
    """A model that doubles a half of all ones, and a look at it: the last layer adds 1."""

    class Draws(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(x) + 1

    return Draws().eval(), torch.ones(rows)


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("draws", [False, True])
def test_a_dropout_draws_at_inference_if_its_mode_says_so(draws: bool, level: str) -> None:
    model, x = _drawing()
    model.drop.train(draws)
    options = sambac.CompileOptions(level=level)
    with sambarun.load(sambac.compile(model, options, inputs=(x,))) as executable:
        first, second = (executable.run({"x": x.numpy()})["output"] for _ in range(2))
    assert np.isin(first, [1, 3] if draws else [2]).all()
    assert np.array_equal(first, second) is not draws
    assert not draws or 0.3 < float((first == 1).mean()) < 0.7
