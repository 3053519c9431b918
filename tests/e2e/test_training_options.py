"""Optimizers through compiler and runtime, beside PyTorch: packed, clipped, accumulating."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from near import assert_near, exactly
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from sambac import LAMB, LARS, SGD, Adagrad, Adam, AdamW, CompileOptions, Optimizer, RMSprop

_RNG = np.random.default_rng(0)
WEIGHTS: Mapping[str, np.ndarray] = {
    "w1": (_RNG.standard_normal((6, 8)) / 2).astype("f"),
    "b1": np.zeros(8, "f"),
    "w2": (_RNG.standard_normal((8, 3)) / 2).astype("f"),
    "b2": np.zeros(3, "f"),
}
DATA = [
    (_RNG.standard_normal((5, 6)).astype("f"), _RNG.standard_normal((5, 3)).astype("f"))
    for _ in range(6)
]

Peer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]
OPTIMIZERS: Mapping[str, tuple[tuple[Optimizer, ...], Peer]] = {
    "sgd": (
        (SGD(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.1),
    ),
    "adamw": ((AdamW(lr=0.01),), lambda p: torch.optim.AdamW(p, lr=0.01)),
    "adam in two groups": (
        (Adam(lr=0.01), Adam(lr=0.02, params=("w*",))),
        lambda p: torch.optim.Adam([{"params": p[1::2]}, {"params": p[::2], "lr": 0.02}], lr=0.01),
    ),
    "rmsprop": (
        (RMSprop(lr=0.01, momentum=0.5, centered=True),),
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    ),
    "adagrad": (
        (Adagrad(lr=0.1, initial_accumulator_value=0.1),),
        lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
    ),
}


def _model(dtype: type = np.float32) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["y"]),
        helper.make_node("Sub", ["y", "t"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["loss"], keepdims=0),
    ]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, shape in (("x", (5, 6)), ("t", (5, 3)), ("loss", ()))
    ]
    weights = [
        numpy_helper.from_array(array.astype(dtype), name) for name, array in WEIGHTS.items()
    ]
    graph = helper.make_graph(nodes, "mlp", infos[:2], infos[2:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


class _Peer:
    """The same network in PyTorch, of float64."""

    def __init__(self, make: Peer) -> None:
        self.parameters = {
            name: exactly(torch.tensor(array)).requires_grad_() for name, array in WEIGHTS.items()
        }
        self.optimizer = make(list(self.parameters.values()))

    def backward(self, x: np.ndarray, t: np.ndarray) -> float:
        p = self.parameters
        y = torch.tanh(torch.tensor(x, dtype=torch.float64) @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        loss = ((y - torch.tensor(t)) ** 2).mean()
        loss.backward()
        return loss.item()

    def update(self, largest: float | None) -> None:
        if largest is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), largest)
        self.optimizer.step()
        self.optimizer.zero_grad()


def _program(ours: tuple[Optimizer, ...], **options: Any) -> sambarun.Executable:
    chosen = CompileOptions(train=True, optimizers=ours, **options)
    return sambarun.load(sambac.compile(_model(), options=chosen))


@pytest.mark.parametrize("accumulate", [False, True], ids=["", "accumulating"])
@pytest.mark.parametrize("largest", [None, 0.3], ids=["", "clipped"])
@pytest.mark.parametrize(
    ("name", "level"),
    [("sgd", "O0"), ("adamw", "O0"), ("adamw", "O1"), *((name, "O3") for name in OPTIMIZERS)],
)
def test_training_follows_torch(
    name: str, level: str, largest: float | None, accumulate: bool
) -> None:
    ours, make = OPTIMIZERS[name]
    executable = _program(ours, level=level, max_grad_norm=largest, accumulate=accumulate)
    peer = _Peer(make)
    for x, t in DATA:
        loss = executable.step({"x": x, "t": t})["loss"]
        assert_near(loss, peer.backward(x, t), what="loss")
        peer.update(largest)
    state = executable.state()
    for key, tensor in peer.parameters.items():
        assert_near(state[key], tensor, what=key)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["", "accumulating"])
def test_half_precision_is_clipped_too(level: str, accumulate: bool) -> None:
    ours, make = OPTIMIZERS["sgd"]
    chosen = CompileOptions(
        level=level,  # type: ignore[arg-type]  # a str here, of known words
        train=True,
        optimizers=ours,
        max_grad_norm=0.3,
        accumulate=accumulate,
    )
    executable = sambarun.load(sambac.compile(_model(np.float16), options=chosen))
    peer = _Peer(make)
    for x, t in DATA:
        executable.step({"x": x.astype(np.float16), "t": t.astype(np.float16)})
        peer.backward(x, t)
        peer.update(0.3)
    state = executable.state()
    for key, tensor in peer.parameters.items():
        assert_near(state[key], tensor, 5e-3, what=key)


@pytest.mark.parametrize("ours", [LAMB(weight_decay=0.1), LARS(weight_decay=0.1)], ids=str)
def test_optimizers_that_take_norms_agree_at_all_levels(ours: Optimizer) -> None:
    """Their formulas are tested beside their definitions elsewhere."""
    states = []
    for level in ("O0", "O3"):
        executable = _program((ours,), level=level)
        for x, t in DATA:
            executable.step({"x": x, "t": t})
        states.append(executable.state())
    for key, start in WEIGHTS.items():
        assert_near(states[0][key], states[1][key].astype(np.float64), what=key)
        assert np.any(states[0][key] != start)


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_gradients_of_several_runs_add_up(level: str) -> None:
    ours, make = OPTIMIZERS["adamw"]
    executable = _program(ours, level=level, max_grad_norm=0.3, accumulate=True)
    peer = _Peer(make)
    for first in range(0, len(DATA), 2):
        executable.run({}, section_types=["ZEROGRAD"])
        for x, t in DATA[first : first + 2]:
            executable.run({"x": x, "t": t}, section_types=["FWD", "BCKWD"])
            peer.backward(x, t)
        executable.run({}, section_types=["GRADNORM", "OPT"])
        peer.update(0.3)
    state = executable.state()
    for key, tensor in peer.parameters.items():
        assert_near(state[key], tensor, what=key)


@pytest.mark.parametrize("largest", [None, 0.3], ids=["", "clipped"])
def test_updates_without_the_clipping_of_a_program_are_told(largest: float | None) -> None:
    ours, _ = OPTIMIZERS["sgd"]
    executable = _program(ours, level="O3", max_grad_norm=largest)
    batch = dict(zip(("x", "t"), DATA[0], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable.run(batch)
        executable.run(batch, section_types=["FWD", "BCKWD"])
        if largest is None:
            executable.run(batch, section_types=["FWD", "BCKWD", "OPT"])
            return
        executable.run(batch, section_types=["FWD", "BCKWD", "GRADNORM", "OPT"])
    with pytest.warns(UserWarning, match="OPT runs without GRADNORM, which clips gradients"):
        executable.run(batch, section_types=["FWD", "BCKWD", "OPT"])


def _gradients(size: float) -> dict[str, np.ndarray]:
    return {f"{name}__grad": np.full_like(start, size) for name, start in WEIGHTS.items()}


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("accumulate", [False, True], ids=["", "accumulating"])
def test_updates_by_themselves_are_told_where_gradients_are_not_clipped(
    level: str, accumulate: bool
) -> None:
    """Not where GRADNORM has made them in a run of its own, nor where it would change nothing."""
    ours, _ = OPTIMIZERS["sgd"]
    executable = _program(ours, level=level, max_grad_norm=0.3, accumulate=accumulate)
    batch = dict(zip(("x", "t"), DATA[0], strict=True))

    def update(told: bool, given: Mapping[str, np.ndarray], **asked: Any) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if accumulate:
                executable.write(given)
            executable.run({} if accumulate else given, **(asked or {"section_types": "OPT"}))
        words = "OPT runs without GRADNORM, which clips gradients, and takes them as they are"
        assert [str(w.message).partition(";")[0] for w in caught] == [words] * told

    numbers = [
        number
        for number, section in enumerate(executable.program.sections)
        if section.type is pef.SectionType.OPT
    ]
    update(True, _gradients(1.0))
    update(False, _gradients(0.01))
    executable.run(batch, section_types=["FWD", "BCKWD"])
    update(True, {})
    update(True, {}, section_ids=numbers)
    executable.run({}, section_types="GRADNORM")
    update(False, {})
    update(False, {}, section_ids=numbers)
    update(True, _gradients(1.0))
