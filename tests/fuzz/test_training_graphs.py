"""Random graphs have the gradients that PyTorch gives all weights; a failure names its seed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
import torch
from differential import inputs_for
from onnx import TensorProto, helper, numpy_helper
from random_graphs import random_model
from torch_graphs import computed

import sambac
import sambarun

_SIZE = 20
Gradients = Mapping[str, np.ndarray]


def to_train(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` without draws, and the sum of the mean squares of its outputs as its loss."""
    graph, losses = model.graph, []
    for node in graph.node:
        node.op_type = "Identity" if node.op_type == "Dropout" else node.op_type
    for output in graph.output:
        name = output.name
        losses.append(f"{name} mean")
        graph.node.append(helper.make_node("Mul", [name, name], [f"{name} squares"]))
        graph.node.append(
            helper.make_node("ReduceMean", [f"{name} squares"], losses[-1:], keepdims=0)
        )
    graph.node.append(helper.make_node("Sum", losses, ["loss"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    return model


def of_torch(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], dtype: torch.dtype
) -> tuple[float, Gradients]:
    """Return the loss, and the gradients of all weights that have some."""
    given = {name: torch.tensor(array, dtype=dtype) for name, array in feeds.items()}
    weights = {}
    for tensor in model.graph.initializer:
        value = torch.tensor(numpy_helper.to_array(tensor))
        if value.is_floating_point():
            value = weights[tensor.name] = value.to(dtype).requires_grad_()
        given[tensor.name] = value
    (loss,) = computed(model, given)
    if loss.requires_grad:
        loss.backward()
    found = {name: one.grad for name, one in weights.items() if one.grad is not None}
    return loss.item(), {name: gradient.double().numpy() for name, gradient in found.items()}


def check(seed: int, level: sambac.options.Level, **options: object) -> bool:
    """Compare a step of one model with PyTorch's; tell whether there was anything to train."""
    model = to_train(random_model(seed, _SIZE))
    if any(node.op_type == "If" for node in model.graph.node):  # nothing trains through it
        return False
    feeds = inputs_for(model, seed)
    loss, exact = of_torch(model, feeds, torch.float64)
    rounded = of_torch(model, feeds, torch.float32)[1]
    trained = {name for name, gradient in exact.items() if gradient.ndim and gradient.any()}
    if not trained:
        return False
    sgd = sambac.SGD(lr=1.0)
    chosen = sambac.CompileOptions(
        train=True, loss=("loss",), optimizers=(sgd,), level=level, **options  # type: ignore[arg-type]
    )  # fmt: skip
    with sambarun.load(sambac.compile(model, chosen), threads=1) as executable:
        before = executable.state()
        (found,) = executable.step(feeds).values()
        after = executable.state()
    assert found == pytest.approx(loss, rel=2e-5, abs=2e-5)
    assert trained <= before.keys()
    largest = max(float(np.abs(exact[name]).max()) for name in trained)
    for name in trained:
        taken = before[name].astype(np.float64) - after[name]
        weight = max(float(np.abs(each[name]).max()) for each in (before, after))
        limit = 2e-4 * float(np.abs(exact[name]).max()) + 3e-7 * weight + 1e-5 * largest
        limit += 20 * float(np.abs(rounded[name] - exact[name]).max())
        assert float(np.abs(taken - exact[name]).max()) <= limit, name
    return True


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_random_graphs(level: sambac.options.Level) -> None:
    assert sum(check(seed, level) for seed in range(12)) >= 6


@pytest.mark.long
@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_many_random_graphs(level: sambac.options.Level) -> None:
    for seed in range(50_000, 50_060):
        check(seed, level)
