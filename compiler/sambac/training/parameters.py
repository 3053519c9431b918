"""Parameters and buffers become inputs of the graph, so that no later stage can fold them away.

A PyTorch module says which of its tensors are parameters. In an ONNX file every floating-point
initializer that is read as a weight is one: it has at least one axis, no operator reads it as a
setting (`_SETTINGS`), and it holds no number as large as masks do (`_MASKED`), nor the zeros that
recurrent layers begin with (`_BEGINNINGS`). The statistics of a normalisation are buffers. What an
exporter notes about a tensor counts for more (`frontend/exported.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir as ir

from pef.symbols import SymbolKind
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.facts import Roles, State
from sambac.frontend import load, take_apart
from sambac.graph.constants import is_absent
from sambac.graph.nodes import all_nodes
from sambac.graph.origins import role_of
from sambac.options import CompileOptions

from .canonical import settle_weights

# Inputs that say how an operator works: settings, not weights.
_SETTINGS: Mapping[str, frozenset[int]] = {
    "Clip": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1, 2}),
    "Dropout": frozenset({1, 2}),
    "OneHot": frozenset({2}),
    "Pad": frozenset({2}),
    "QuantizeLinear": frozenset({1, 2}),
    "Range": frozenset({0, 1, 2}),
    "Resize": frozenset({1, 2, 3}),
    "RotaryEmbedding": frozenset({1, 2}),
    "Upsample": frozenset({1}),
}
# What layers begin with; zeros there are no weight, but what exporters write for no beginning.
_BEGINNINGS: Mapping[str, frozenset[int]] = {
    "GRU": frozenset({5}),
    "LSTM": frozenset({5, 6}),
    "RNN": frozenset({5}),
}
# No weight is so large; what is added to hide other numbers is.
_MASKED = 1e9
_MASKED_IN_HALF = 65504.0
_NO_PARAMETERS = (
    "the model has no parameters; those of an ONNX model are its floating-point initializers, not "
    "what operators Constant hold (onnx_ir.passes.common.LiftConstantsToInitializersPass makes "
    "initializers of that)"
)
_STATISTICS: Mapping[str, frozenset[int]] = {"BatchNormalization": frozenset({3, 4})}


@dataclass(frozen=True)
class Trainable:
    """What the states of a model are: by graph input; `trained` are those that get gradients."""

    states: Mapping[str, State]
    trained: tuple[str, ...]


def roles_of(model: ir.Model) -> Roles:
    """Return the roles of the initializers of a model that comes from an ONNX file."""
    settings, statistics = _read_as(model, _SETTINGS), _read_as(model, _STATISTICS)
    beginnings = _read_as(model, _BEGINNINGS)
    weights = [
        name
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
        and value.const_value.dtype.is_floating_point()
        and (len(value.const_value.shape) > 0 or role_of(value) == "parameter")
        and (role_of(value) != "constant" or value in statistics)
        and value not in settings
        and value.uses()
        and not _masks(value.const_value)
        and not (value in beginnings and _is_nothing(value.const_value))
    ]
    constants = model.graph.initializers
    buffers = {
        name
        for name in weights
        if constants[name] in statistics or role_of(constants[name]) == "buffer"
    }
    return Roles(
        parameters=tuple(name for name in weights if name not in buffers),
        buffers=tuple(name for name in weights if name in buffers),
    )


def _masks(tensor: ir.TensorProtocol) -> bool:
    """Tell whether `tensor` holds what hides other numbers: infinity, or nearly that."""
    if is_absent(tensor) or not tensor.size:
        return False
    numbers = tensor.numpy()
    largest = _MASKED_IN_HALF if tensor.dtype == ir.DataType.FLOAT16 else _MASKED
    return max(-float(numbers.min()), float(numbers.max())) >= largest


def _is_nothing(tensor: ir.TensorProtocol) -> bool:
    return not is_absent(tensor) and not tensor.numpy().any()


def _read_as(model: ir.Model, places: Mapping[str, frozenset[int]]) -> set[ir.Value]:
    """Return the values that some operator reads at one of the given places."""
    return {
        value
        for node in all_nodes(model.graph)
        if node.op_type in places and node.domain == ""
        for index, value in enumerate(node.inputs)
        if value is not None and index in places[node.op_type]
    }


def frozen_by(roles: Roles, patterns: Iterable[str], *, allow_all: bool = False) -> Roles:
    """Return `roles` with what matches one of `patterns` frozen too.

    Raises `CompileError` for a pattern that matches no parameter, and, but for `allow_all`, if
    nothing is left to train.
    """
    names = (*roles.parameters, *roles.aliases)
    frozen, problems = set(roles.frozen), []
    for pattern in patterns:
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            hint = did_you_mean(pattern, names)
            problems.append(f"the pattern '{pattern}' to freeze matches no parameter{hint}")
        frozen.update(roles.aliases.get(name, name) for name in matching)
    if problems:
        shown = listed(roles.parameters, 8, ", ")
        raise CompileError(f"{listed(problems)}; the parameters are {shown or 'none'}")
    if frozen.issuperset(roles.parameters) and not allow_all:
        why = "every parameter is frozen" if roles.parameters else _NO_PARAMETERS
        raise CompileError(f"there is nothing to train: {why}")
    return replace(roles, frozen=frozenset(frozen))


def take_parameters(model: ir.Model, roles: Roles) -> Trainable:
    """Turn the parameters and buffers of `model` into graph inputs, in place.

    Those that the graph does not read are states too: a checkpoint holds them. Raises
    `CompileError` for parameters that are no floating-point tensors and are not frozen.
    """
    states: dict[str, State] = {}
    whole = []
    for kind, names in ((SymbolKind.WEIGHT, roles.parameters), (SymbolKind.BUFFER, roles.buffers)):
        for name in names:
            value = model.graph.initializers.pop(name)
            tensor = value.const_value
            assert tensor is not None
            value.const_value = None
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
            model.graph.inputs.append(value)
            states[name] = State(kind, None if is_absent(tensor) else tensor)
            if kind is SymbolKind.WEIGHT and not tensor.dtype.is_floating_point():
                whole += [] if name in roles.frozen else [f"'{name}' ({tensor.dtype})"]
    if whole:
        raise CompileError(
            f"only floating-point parameters can be trained, not {listed(whole, separator=', ')}; "
            "freeze them"
        )
    trained = tuple(name for name in roles.parameters if name not in roles.frozen)
    return Trainable(states, trained)


def take_states(
    model: ir.Model, roles: Roles | None, wanted: Collection[str]
) -> Mapping[str, State]:
    """Turn the weights `wanted` of a model for inference into states, in place.

    If some parameters or buffers have no content all of them become states, so that a file which
    holds the model's whole state fits. Without `roles` there is nothing absent: only PyTorch makes
    models without content.
    """
    weights = model.graph.initializers
    known = roles or Roles(parameters=tuple(name for name in weights if name in wanted))
    if not any(is_absent(value.const_value) for value in weights.values()):
        known = replace(
            known,
            parameters=tuple(name for name in known.parameters if name in wanted),
            buffers=tuple(name for name in known.buffers if name in wanted),
        )
    frozen = replace(known, frozen=frozenset(known.parameters))
    return take_parameters(model, frozen).states


def adopt_states(model: ir.Model, states: Mapping[str, State]) -> None:
    """Turn those initializers of the evaluation model that are `states` into graph inputs.

    The model then has the inputs of all states, read or not, in the order of `states`.
    """
    for name, state in states.items():
        value = model.graph.initializers.pop(name, None)
        if value is None:
            continue
        tensor = value.const_value or state.content
        if tensor is not None:
            value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        value.const_value = None
        model.graph.inputs.append(value)


class OnnxWeights(NamedTuple):
    """The parameters of a model, and the statistics of its normalisations, with their values."""

    parameters: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]


def untied(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which weights are those that training has, each statistic read once."""
    found = ir.from_proto(model)
    take_apart(found)
    settle_weights(found)
    return ir.to_proto(found)


def weights_of(model: onnx.ModelProto) -> OnnxWeights:
    """Return what becomes parameters and buffers when `model` is compiled to train.

    Raises `CompileError` for a model that cannot be read.
    """
    found = load(model, CompileOptions(train=True)).model
    settle_weights(found)
    roles = roles_of(found)

    def valued(names: tuple[str, ...]) -> dict[str, np.ndarray]:
        tensors = {name: found.graph.initializers[name].const_value for name in names}
        return {name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None}

    return OnnxWeights(valued(roles.parameters), valued(roles.buffers))
