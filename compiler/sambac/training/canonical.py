"""ONNX files in the form that training needs: opset 23, batch statistics, active dropout.

    BatchNormalization(x, s, b, mean, var)
        ->  y, m, v = BatchNormalization(x, s, b, -mean, -var; training_mode = 1, momentum = 0)
            mean' = momentum * mean + (1 - momentum) * m,  var' likewise
    Dropout(x, p)  ->  Dropout(x, p, True)

where mean and var are buffers, whether or not the file was exported as it trains; the evaluation
graph gets the opposite. onnxruntime writes m and v over what the operator is given as statistics,
which counts for nothing otherwise and must not be the buffers themselves. PyTorch's frontend
exports modules in this form already.

All of that is done to what runs in every step: branches that a constant chooses are part of the
graph by then, and their weights weights of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from pef.wording import listed
from sambac.facts import Roles
from sambac.graph.editor import Editor
from sambac.graph.names import value_names
from sambac.graph.nodes import all_nodes, float_attribute, input_at, subgraphs
from sambac.passes.legalize.names_and_order import UniqueNames
from sambac.passes.legalize.raise_opset import require_unread, to_opset

OPSET = 23
_NAMES_SHOWN = 8
# Which inputs of a BatchNormalization are running statistics.
_STATISTICS = {3: "mean", 4: "var"}


def to_training_opset(model: ir.Model, name: str) -> None:
    """Convert `model` to opset 23 in place. Raises `CompileError` for what changes its meaning."""
    to_opset(model, name, OPSET, "training is done")


def settle_weights(model: ir.Model) -> tuple[str, ...]:
    """Make weights of branches those of the model, and statistics nobody else's, in place.

    These are branches that no input chooses. Weights of others, and vectors in bodies of loops,
    stay constants: nothing is trained through those. Returns their names.
    """
    branches = [*_branches(model.graph)]
    if branches:
        UniqueNames()(model)
        for graph in branches:
            for value in _weights_in(graph):
                del graph.initializers[str(value.name)]
                model.graph.register_initializer(value)
    _untie_statistics(model)
    inner = [value for graph in model.graph.subgraphs() for value in _weights_in(graph)]
    return tuple(str(value.name) for value in inner if value.uses())


def _weights_in(graph: ir.Graph) -> list[ir.Value]:
    """Return the constants of `graph` that are weights, those with an axis."""
    return [
        value
        for value in graph.initializers.values()
        if value.dtype is not None and value.dtype.is_floating_point() and value.shape
    ]


def _branches(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yield the branches of choices in `graph` that no input makes, and of those in them."""
    for node in graph:
        if node.domain == "" and node.op_type == "If" and _is_settled(input_at(node, 0)):
            for branch in subgraphs(node):
                yield branch
                yield from _branches(branch)


def _is_settled(condition: ir.Value | None) -> bool:
    """Tell whether `condition` depends on constants and shapes alone."""
    todo, seen = [condition], {condition}
    while todo:
        value = todo.pop()
        maker = None if value is None else value.producer()
        if maker is None:
            if value is None or value.is_graph_input() or not value.is_initializer():
                return False
        elif maker.op_type not in ("Shape", "Size"):
            read = {source for source in maker.inputs if source is not None} - seen
            seen |= read
            todo += read
    return True


def _untie_statistics(model: ir.Model) -> None:
    """Give each running statistic that is read elsewhere too a constant of its own.

    Files in which equal constants are stored once have one for a new network's means and biases,
    of which training moves the ones and learns the others. An Identity may stand between.
    """
    fresh = value_names(model)
    constants = model.graph.initializers
    for node in model.graph:
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        for index, value in enumerate(node.inputs[3:5], 3):
            if value is None:
                continue
            known = _without_copies(value)
            if known.name in constants and (known is not value or len(value.uses()) > 1):
                name, tensor = fresh(f"{value.name}__{_STATISTICS[index]}"), known.const_value
                assert tensor is not None
                own = ir.Value(name=name, type=known.type, shape=known.shape)
                own.const_value = ir.Tensor(tensor.numpy(), tensor.dtype, name=name)
                constants[str(own.name)] = own
                node.replace_input_with(index, own)


def _named(node: ir.Node, index: int) -> str:
    value = input_at(node, index)
    return "" if value is None else str(value.name)


def _without_copies(value: ir.Value) -> ir.Value:
    """Return what `value` is a copy of, by any number of Identities."""
    while (maker := value.producer()) is not None and maker.op_type == "Identity":
        (source,) = maker.inputs
        if source is None:
            break
        value = source
    return value


def train_normalizations(model: ir.Model, roles: Roles) -> dict[str, str]:
    """Let normalisations use batch statistics; return the new outputs by buffer they update."""
    editor = Editor(model, "statistics/")
    buffers = set(roles.buffers)
    updates: dict[str, str] = {}
    for node in tuple(model.graph):
        if node.op_type != "BatchNormalization" or node.domain != "":
            continue
        mean, variance = node.inputs[3], node.inputs[4]
        if mean is None or variance is None:
            continue
        if mean.name in buffers and variance.name in buffers:
            updates.update(_train_normalization(editor, node, mean, variance))
    return updates


def _train_normalization(
    b: Editor, node: ir.Node, mean: ir.Value, variance: ir.Value
) -> dict[str, str]:
    require_unread(node)
    momentum = float_attribute(node, "momentum", 0.9)
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    node.attributes["momentum"] = ir.AttrFloat32("momentum", 0.0)
    for index, buffer in ((3, mean), (4, variance)):
        node.replace_input_with(index, _own(b, buffer, node))
    if len(node.outputs) < 3:
        b.add_output(node, 2)
    b.go_to_end(b.model.graph)
    updates = {}
    for batch, buffer in zip(node.outputs[1:3], (mean, variance), strict=True):
        old, new = b.op("Mul", buffer, momentum), b.op("Mul", batch, 1.0 - momentum)
        following = b.named(b.op("Add", old, new), f"{buffer.name}__next")
        b.model.graph.outputs.append(following)
        updates[str(buffer.name)] = str(following.name)
    return updates


def to_evaluation(model: ir.Model) -> None:
    """Let normalisations of a file that trains use running statistics, and no Dropout drop."""
    for node in [*all_nodes(model.graph)]:
        if node.domain == "" and node.op_type == "Dropout":
            node.resize_inputs(min(len(node.inputs), 2))
        elif node.domain == "" and node.op_type == "BatchNormalization":
            node.attributes.pop("training_mode", None)
            for batch, buffer in zip(node.outputs[1:], node.inputs[3:], strict=False):
                if buffer is not None:
                    batch.replace_all_uses_with(buffer, replace_graph_outputs=True)
            node.resize_outputs(1)


def _own(b: Editor, buffer: ir.Value, reader: ir.Node) -> ir.Value:
    """Return a value made of `buffer` right before `reader`, which may write over it."""
    b.go_before(reader)
    return b.op("Neg", buffer)


def train_dropouts(model: ir.Model) -> None:
    """Let every Dropout drop."""
    for node in tuple(model.graph):
        if node.op_type == "Dropout" and node.domain == "":
            editor = Editor(model)
            ratio = node.inputs[1] if len(node.inputs) > 1 else None
            if ratio is None:
                ratio = editor.constant(np.asarray(0.5, np.float32), "ratio")
            node.resize_inputs(3)
            node.replace_input_with(1, ratio)
            node.replace_input_with(2, editor.constant(np.asarray(True), "training_mode"))


def told_of_inner(model: ir.Model, roles: Roles, weights: Sequence[str]) -> tuple[str, ...]:
    """Return warnings of what stays as it is in branches and loops, `weights` among it."""
    buffers = set(roles.buffers)
    inner = [node for graph in model.graph.subgraphs() for node in graph if node.domain == ""]
    dropouts = [node for node in inner if node.op_type == "Dropout"]
    kept = [
        node
        for node in inner
        if node.op_type == "BatchNormalization" and _named(node, 3) in buffers
    ]
    said = (
        ([str(node.name) for node in dropouts], "drop nothing"),
        ([str(node.name) for node in kept], "keep their running statistics"),
        (weights, "stay as they are"),
    )
    return tuple(
        f"{listed([repr(name) for name in names], _NAMES_SHOWN, ', ')} {what} while the model "
        "trains, as they stand in a branch or a loop that no constant chooses"
        for names, what in said
        if names
    )
