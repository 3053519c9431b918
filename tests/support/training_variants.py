"""Variants of the linear regression: packs, accumulation, reduction, a split backward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from training_builder import Part, Spec, Tensor, node
from training_programs import linear_regression

from pef import SectionType, SymbolKind


def lazy() -> Spec:
    """The regression without contents of `w` and `average`, and another name for `w`."""
    spec = linear_regression()
    changed = {name: replace(spec.tensors[name], data=None) for name in ("w", "average")}
    return replace(spec, tensors={**spec.tensors, **changed}, aliases={"tied": "w"})


def reducing() -> Spec:
    """The regression with a REDUCE section between the backward pass and the update."""
    spec = linear_regression()
    forward, backward, update, evaluation = spec.parts
    reduce = Part("reduce", SectionType.REDUCE, [], ["w__grad", "b__grad"], {})
    return replace(spec, parts=[forward, backward, reduce, update, evaluation])


def packed(**changes: Any) -> Spec:
    """The regression with parameters, state and gradients in packs, updated by flat operators."""
    spec = linear_regression()
    tensors = dict(spec.tensors)
    for flat, kind, suffix in (
        ("flat", SymbolKind.WEIGHT, ""),
        ("flat_momentum", SymbolKind.OPT_STATE, "__momentum_buffer"),
        ("flat_grad", SymbolKind.GRADIENT, "__grad"),
    ):
        tensors[flat] = Tensor(kind, (4,))
        for name, offset in (("w", 0), ("b", 12)):
            symbol = name + suffix
            tensors[symbol] = replace(tensors[symbol], inside=(flat, offset))
    update = Part(
        "update",
        SectionType.OPT,
        [
            node("Cast", "sgd.lr", "lr32", to=1),
            node("Cast", "sgd.momentum", "momentum32", to=1),
            node("Add", "sgd__step one", "step_new"),
            node("Mul", "flat_momentum momentum32", "kept"),
            node("Add", "kept flat_grad", "velocity"),
            node("Mul", "velocity lr32", "move"),
            node("Sub", "flat move", "moved"),
        ],
        ["flat", "flat_momentum", "flat_grad", "sgd__step", "sgd.lr", "sgd.momentum"],
        {"flat": "moved", "flat_momentum": "velocity", "sgd__step": "step_new"},
        constants={"one": np.asarray(np.int64(1))},
    )
    forward, backward, _, evaluation = spec.parts
    return replace(spec, tensors=tensors, parts=[forward, backward, update, evaluation], **changes)


def normed() -> Spec:
    """The packed regression with the norm of its gradients, and a mask in the same place."""
    spec = packed()
    forward, backward, update, evaluation = spec.parts
    norm = Part(
        "norm",
        SectionType.GRADNORM,
        [
            node("Mul", "flat_grad flat_grad", "squares"),
            node("ReduceSum", "squares", "norm", keepdims=0),
        ],
        ["flat_grad"],
        {"norm": "norm"},
    )
    spec = replace(
        spec,
        parts=[forward, backward, norm, update, evaluation],
        tensors={**spec.tensors, "norm": Tensor(SymbolKind.OUTPUT, ())},
        outputs={**spec.outputs, "train": {"loss": "loss", "norm": "norm"}},
    )
    where = {allocation.name: allocation.address for allocation in spec.program().allocations}
    return replace(spec, addresses={"mask": where["flat_grad"]})


def accumulating() -> Spec:
    """The regression with gradients that are states: set to zero, added to, used."""
    spec = linear_regression()
    tensors = {
        name: replace(tensor, forever=tensor.kind is SymbolKind.GRADIENT)
        for name, tensor in spec.tensors.items()
    }
    forward, backward, update, evaluation = spec.parts
    zero = Part(
        "zero",
        SectionType.ZEROGRAD,
        [
            node("ConstantOfShape", "w_shape", "w_zero"),
            node("ConstantOfShape", "b_shape", "b_zero"),
        ],
        [],
        {"w__grad": "w_zero", "b__grad": "b_zero"},
        constants={"w_shape": np.array([3, 1]), "b_shape": np.array([1])},
    )
    adding = [
        node("Add", "w_old w_now", "w_sum"),
        node("Add", "b_old b_now", "b_sum"),
    ]
    nodes = []
    for old in (*backward.nodes, *adding):
        copy = type(old)()
        copy.CopyFrom(old)
        new = {"w__grad": "w_now", "b__grad": "b_now"}
        copy.output[:] = [new.get(name, name) for name in copy.output]
        old_names = {"w_old": "w__grad", "b_old": "b__grad"}
        copy.input[:] = [old_names.get(name, name) for name in copy.input]
        nodes.append(copy)
    backward = replace(
        backward,
        nodes=nodes,
        inputs=[*backward.inputs, "w__grad", "b__grad"],
        outputs={"w__grad": "w_sum", "b__grad": "b_sum"},
    )
    return replace(spec, tensors=tensors, parts=[zero, forward, backward, update, evaluation])


def two_backward_sections(spec: Spec) -> Spec:
    """The same with gradients that a second section makes, after the first has read `diff`."""
    forward, backward, update, evaluation = spec.parts
    first = Part(
        "first",
        SectionType.BCKWD,
        backward.nodes[:2],
        ["diff", "loss__grad"],
        {"d": "d"},
        constants=backward.constants,
    )
    second = Part(
        "second",
        SectionType.BCKWD,
        backward.nodes[2:],
        ["h", "d"],
        {"w__grad": "w__grad", "b__grad": "b__grad"},
        constants=backward.constants,
    )
    tensors = {**spec.tensors, "d": Tensor(SymbolKind.ACTIVATION, (4, 1))}
    spec = replace(spec, tensors=tensors, parts=[forward, first, second, update, evaluation])
    where = {allocation.name: allocation.address for allocation in spec.program().allocations}
    return replace(spec, addresses={"diff": where.get("flat_grad", where.get("w__grad"))})
