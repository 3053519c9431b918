"""Several losses whose gradients are scaled to equal norms before they are added up."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from near import assert_near, exactly
from onnx import helper, numpy_helper

import sambac
import sambarun
from sambac import SGD, CompileError, CompileOptions

_RNG = np.random.default_rng(1)
WEIGHTS = {
    name: _RNG.standard_normal(shape).astype("f")
    for name, shape in (("trunk", (6, 8)), ("left", (8, 3)), ("right", (8, 2)))
}
DATA = [_RNG.standard_normal((5, 6)).astype("f") for _ in range(4)]
LOSSES = ("small", "large")
RATE = 0.05


def _model() -> onnx.ModelProto:
    """Return a trunk with two heads, whose losses differ by a factor of a thousand and more."""
    nodes = [
        helper.make_node("MatMul", ["x", "trunk"], ["h"]),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "left"], ["l"]),
        helper.make_node("ReduceMean", ["l"], ["small"], keepdims=0),
        helper.make_node("MatMul", ["a", "right"], ["r"]),
        helper.make_node("Mul", ["r", "r"], ["s"]),
        helper.make_node("Mul", ["s", "thousand"], ["t"]),
        helper.make_node("ReduceMean", ["t"], ["large"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (5, 6))
    outputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ()) for name in LOSSES]
    weights = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    weights.append(numpy_helper.from_array(np.asarray(1000, "f"), "thousand"))
    graph = helper.make_graph(nodes, "heads", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _losses(p: dict[str, torch.Tensor], x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.tanh(torch.tensor(x).double() @ p["trunk"])
    return (a @ p["left"]).mean(), (1000 * (a @ p["right"]) ** 2).mean()


def _balanced(
    p: dict[str, torch.Tensor], batches: list[np.ndarray]
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Return the weights of the losses and the sum of the weighted gradients, as defined."""
    sums = [sum(_losses(p, x)[index] for x in batches) for index in range(2)]
    gradients = [
        dict(zip(p, torch.autograd.grad(s, list(p.values()), allow_unused=True), strict=True))
        for s in sums
    ]
    norms = [float(g["trunk"].norm()) for g in gradients]
    weights = [2 / norm / sum(1 / other for other in norms) for norm in norms]
    return weights, {
        name: sum(
            w * g[name] for w, g in zip(weights, gradients, strict=True) if g[name] is not None
        )
        for name in p
    }


def _load(**options: object) -> sambarun.Executable:
    chosen = CompileOptions(
        train=True,
        loss=LOSSES,
        balance=True,
        optimizers=(SGD(lr=RATE),),
        **options,  # type: ignore[arg-type]
    )
    return sambarun.load(sambac.compile(_model(), options=chosen))


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("largest", [None, 0.01], ids=["", "clipped"])
def test_losses_weigh_the_same(level: str, largest: float | None) -> None:
    executable = _load(level=level, max_grad_norm=largest)
    p = {name: exactly(torch.tensor(array)).requires_grad_() for name, array in WEIGHTS.items()}
    for x in DATA:
        weights, gradients = _balanced(p, [x])
        found = executable.run({"x": x})
        assert [float(found[f"{loss}__weight"]) for loss in LOSSES] == pytest.approx(
            weights, rel=1e-5
        )
        if largest is not None:
            norm = torch.stack([g.norm() for g in gradients.values()]).norm()
            assert float(found["grad_norm"]) == pytest.approx(float(norm), rel=1e-5)
            gradients = {name: g * largest / (norm + 1e-6) for name, g in gradients.items()}
        with torch.no_grad():
            for name, tensor in p.items():
                tensor -= RATE * gradients[name]
    for name, tensor in p.items():
        assert_near(executable.state()[name], tensor, what=name)


def test_losses_are_balanced_over_all_batches_of_a_step() -> None:
    executable = _load(accumulate=True)
    executable.run({}, section_types=["ZEROGRAD"])
    for x in DATA:
        executable.run({"x": x}, section_types=["FWD", "BCKWD"])
    executable.run({}, section_types=["GRADNORM", "OPT"])
    p = {name: exactly(torch.tensor(array)).requires_grad_() for name, array in WEIGHTS.items()}
    _, gradients = _balanced(p, DATA)
    for name, tensor in p.items():
        expected = (tensor - RATE * gradients[name]).detach()
        assert_near(executable.state()[name], expected, what=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": ("small",)}, "needs two losses or more"),
        ({"loss": LOSSES, "freeze": ("trunk",)}, "no parameter is reached by all of"),
    ],
)
def test_what_cannot_be_balanced_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        sambac.compile(
            _model(),
            options=CompileOptions(train=True, balance=True, **options),  # type: ignore[arg-type]
        )
