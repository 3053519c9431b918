"""Where a backward pass starts and ends: outputs of any shape, gradients of inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from near import assert_near, exactly

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions

LEVELS = ("O0", "O1", "O3")
RNG = np.random.default_rng(0)
X, K = RNG.standard_normal((6, 4)).astype("f"), RNG.standard_normal((6, 3)).astype("f")
# output_1 and output_2 are one value, output_4 are integers.
GIVEN = {
    f"output_{i}__grad": RNG.standard_normal(shape).astype("f")
    for i, shape in enumerate([(6, 3), (6, 5), (6, 5), (6, 4)])
}
OUTPUTS = tuple(f"output_{i}" for i in range(5))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 5)
        self.b = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.tanh(self.a(x))
        y = self.b(hidden) + k
        return y, hidden, hidden, x * 2, torch.argmax(y, 1)


class Pure(torch.nn.Module):
    """A function without parameters."""

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.sum(1, keepdim=True) * k)


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def compiled(module: torch.nn.Module | None = None, **options: Any) -> pef.Program:
    chosen = CompileOptions(train=True, **options)
    return sambac.compile(
        module or net(), chosen, inputs=(torch.from_numpy(X), torch.from_numpy(K))
    )


def expected(seeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return torch's gradients in float64; an output without a seed starts from ones."""
    module = exactly(net())
    x, k = (torch.from_numpy(array).double().requires_grad_() for array in (X, K))
    outputs = module(x, k)[:4]
    torch.autograd.backward(
        outputs,
        [
            torch.from_numpy(seeds.get(f"output_{i}__grad", np.ones(output.shape))).double()
            for i, output in enumerate(outputs)
        ],
    )
    named = {name: p.grad for name, p in module.named_parameters()}
    found = {**named, "x": x.grad, "k": k.grad}
    return {f"{name}__grad": g.numpy() for name, g in found.items() if g is not None}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seeds", [{}, GIVEN], ids=["ones", "given"])
def test_gradients_from_all_outputs_to_inputs_and_parameters(
    level: str, seeds: dict[str, np.ndarray]
) -> None:
    program = compiled(
        level=level,
        backward_from=OUTPUTS,
        input_grads=("x", "k"),
        optimizers=(sambac.SGD(lr=0.1),),
        max_grad_norm=1e6,
    )
    assert pef.check_program(program) == []
    wanted = expected(seeds)
    executable = sambarun.load(program)
    results = executable.run({"x": X, "k": K, **seeds})
    assert {"x__grad", "k__grad", *OUTPUTS} <= results.keys()
    for name, array in {**executable.read(*wanted), **results}.items():
        if name in wanted:
            assert_near(array, wanted[name], what=name)


def test_backward_alone_gives_every_gradient() -> None:
    executable = sambarun.load(compiled(backward_from=("output_0",), input_grads=("x",)))
    executable.run({"x": X, "k": K}, section_types="FWD", train=True)
    found = executable.run({"x": X, "k": K}, section_types="BCKWD")
    parameters = {f"{name}__grad" for name, _ in net().named_parameters()}
    assert found.keys() == {"x__grad", *parameters}


def test_an_input_gradient_is_of_one_run_where_others_add_up() -> None:
    executable = sambarun.load(
        compiled(backward_from=("output_0",), input_grads=("x",), accumulate=True)
    )
    types = ("FWD", "BCKWD")
    first, second = (executable.run({"x": X, "k": K}, section_types=types) for _ in range(2))
    np.testing.assert_array_equal(first["x__grad"], second["x__grad"])
    ones = executable.read("b.bias__grad")["b.bias__grad"]
    np.testing.assert_allclose(ones, np.full(3, 12.0), rtol=1e-6)


def test_a_step_returns_outputs_that_start_the_pass() -> None:
    executable = sambarun.load(compiled(backward_from=("output_0", "output_4")))
    assert executable.step({"x": X, "k": K}).keys() == {"output_0"}


def test_what_does_not_start_the_pass_is_left_out_with_a_warning() -> None:
    program = compiled(backward_from=("output_3", "output_0", "output_4"))
    assert [port.name for port in program.graphs[0].inputs] == ["x", "k", "output_0__grad"]
    (warning,) = program.warnings
    assert "output_3" in warning
    assert "output_4" not in warning


def test_an_input_that_no_loss_depends_on_gets_a_warning() -> None:
    program = compiled(backward_from=("output_1",), input_grads=("x", "k"))
    assert "x__grad" in [port.name for port in program.graphs[0].outputs]
    assert any("input k" in warning for warning in program.warnings)


@pytest.mark.parametrize("more", [{}, {"max_grad_norm": 1.0}, {"accumulate": True}])
def test_a_function_without_parameters_has_gradients_of_its_inputs(more: dict[str, Any]) -> None:
    program = compiled(Pure(), backward_from=("output",), input_grads=("x", "k"), **more)
    found = sambarun.load(program).run({"x": X, "k": K})
    x, k = (torch.from_numpy(array).double().requires_grad_() for array in (X, K))
    Pure()(x, k).sum().backward()
    for name, leaf in (("x__grad", x), ("k__grad", k)):
        assert leaf.grad is not None
        assert_near(found[name], leaf.grad, what=name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_grads": ("y", "q")}, ["no input 'y'", "no input 'q'", "x, k"]),
        ({"backward_from": ("output_7", "output_9")}, ["output_7", "output_9", "output_0"]),
        ({"backward_from": ("output_4",)}, ["output_4", "floating-point"]),
        ({"backward_from": ("output_3",)}, ["output_3", "depends on none"]),
    ],
)
def test_what_cannot_be_is_named(options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(**{"backward_from": ("output_0",), **options})
    assert all(word in str(caught.value) for word in words)


def test_an_integer_input_has_no_gradient() -> None:
    embedding = torch.nn.Sequential(torch.nn.Embedding(5, 2))
    options = CompileOptions(train=True, backward_from=("output",), input_grads=("input",))
    with pytest.raises(CompileError, match=r"the input 'input' is INT64"):
        sambac.compile(embedding, options, inputs=(torch.tensor([1, 2]),))


def test_of_use_only_in_training() -> None:
    with pytest.raises(CompileError, match="backward_from"):
        CompileOptions(backward_from=("y",), input_grads=("x",))
