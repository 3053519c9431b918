"""What is minimised: outputs of the model, or losses built on them.

`cross_entropy:LOGITS,LABELS` is the mean cross entropy of an output with one number for each class,
against integer labels; the classes are the last axis of two- and three-dimensional logits (tokens
of a text) and axis 1 of others (pixels of an image), unless an input with the labels' name says
otherwise by its shape. `mse:PREDICTION,TARGET` is the mean squared difference. Labels and targets
that are no inputs of the model become inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from pef.dtypes import BY_NUMBER
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.graph.editor import Editor, shape_of
from sambac.graph.names import FreshNames, make_way
from sambac.graph.nodes import has_subgraphs, static_shape
from sambac.graph.origins import place_of
from sambac.ops.control import THROUGH_CONTROL_FLOW

_TOKENS_RANK = 3


@dataclass(frozen=True)
class LossSpec:
    """A loss to build: its kind and the names of its two operands."""

    kind: str
    prediction: str
    target: str


def parse_losses(texts: Iterable[str]) -> tuple[str | LossSpec, ...]:
    """Return output names and losses to build. Raises `CompileError` for what is neither."""
    return tuple(_parse(text) for text in texts)


def _parse(text: str) -> str | LossSpec:
    kind, colon, operands = text.partition(":")
    if not colon or kind not in _BUILDERS:
        return text
    names = [name.strip() for name in operands.split(",")]
    if len(names) != 2 or not all(names):
        raise CompileError(
            f"the loss '{text}' needs two tensors, an output and what it should be, and names "
            f"{len([name for name in names if name])}; give {kind}:PREDICTION,TARGET, of which "
            "TARGET may be the name of an input to add"
        )
    return LossSpec(kind, *names)


def build_losses(
    model: ir.Model, wanted: Sequence[str | LossSpec], public: tuple[str, ...]
) -> tuple[str, ...]:
    """Append the losses that `wanted` describes to the public outputs; return all losses' names.

    `public` are the names of the outputs that a user knows; where none are wanted the only scalar
    floating-point one among them is the loss. Raises `CompileError` if there is no such thing.
    """
    outputs = {str(out.name): out for out in model.graph.outputs if out.name in public}
    if not wanted:
        return (_only_scalar(outputs),)
    names = _names(wanted, model.graph)
    targets = [each.target for each in wanted if isinstance(each, LossSpec)]
    make_way(model, (*names, *targets))
    editor = Editor(model, "loss/")
    problems = [
        _build(editor, each, outputs, name)
        if isinstance(each, LossSpec)
        else _why_no_loss(each, outputs)
        for each, name in zip(wanted, names, strict=True)
    ]
    if any(problems):
        raise CompileError(listed([problem for problem in problems if problem]))
    return names


def _names(wanted: Sequence[str | LossSpec], graph: ir.Graph) -> tuple[str, ...]:
    """Return the losses' names: `loss` for the only one to build, else their kinds."""
    fresh = FreshNames(str(value.name) for value in (*graph.inputs, *graph.outputs))
    kinds = [
        each.kind if len(wanted) > 1 else "loss" for each in wanted if isinstance(each, LossSpec)
    ]
    built = iter([fresh(kind) for kind in kinds])
    return tuple(next(built) if isinstance(each, LossSpec) else each for each in wanted)


def _only_scalar(outputs: dict[str, ir.Value]) -> str:
    scalars = [name for name, value in outputs.items() if _is_scalar(value)]
    if len(scalars) == 1:
        return scalars[0]
    hidden = [name for name, value in outputs.items() if value.shape is None]
    if hidden and not scalars:
        raise CompileError(_of_unknown_shape(hidden[0], outputs[hidden[0]]))
    found = f"{len(scalars)} ({listed(scalars, separator=', ')})" if scalars else "none"
    raise CompileError(
        f"a model is trained on its one scalar floating-point output; this one has {found}; say "
        f"which output is the loss (--loss NAME), or what to build it from (--loss "
        f"cross_entropy:LOGITS,LABELS); {_known(outputs)}"
    )


def _known(outputs: dict[str, ir.Value]) -> str:
    """Return which outputs there are, with types and shapes: what can be a loss is to be seen."""
    return f"the outputs are {listed([_spelled(*item) for item in outputs.items()], 8, ', ')}"


def _spelled(name: str, value: ir.Value) -> str:
    shape = "" if value.shape is None else f" [{', '.join(map(str, value.shape))}]"
    kind = "no tensor" if value.dtype is None else BY_NUMBER[value.dtype].name
    return f"{name} ({kind}{shape})"


def _is_scalar(value: ir.Value) -> bool:
    return (
        value.dtype is not None
        and value.dtype.is_floating_point()
        and value.shape is not None
        and all(dim == 1 for dim in value.shape)
    )


def _why_no_loss(name: str, outputs: dict[str, ir.Value]) -> str | None:
    problem = _why_no_floats(name, outputs)
    if problem is not None or _is_scalar(outputs[name]):
        return problem
    shape = outputs[name].shape
    if shape is None:
        return _of_unknown_shape(name, outputs[name])
    return (
        f"the output '{name}' is [{', '.join(map(str, shape))}], a loss is a single number; give "
        f"the model an output with its mean or sum, or build the loss on it (--loss "
        f"mse:{name},TARGET)"
    )


def _of_unknown_shape(name: str, value: ir.Value) -> str:
    node = _first_unknown(value)
    where = f", which begins at the operator {node.op_type} '{node.name}'" if node else ""
    if node is not None and has_subgraphs(node):
        return (
            f"the shape of the output '{name}' is unknown{where}{place_of(node)}, whose results "
            f"have none that holds in every run; {THROUGH_CONTROL_FLOW}"
        )
    return (
        f"the shape of the output '{name}' is unknown{where}, and training needs all sizes: "
        "export the model without it"
    )


def _first_unknown(value: ir.Value) -> ir.Node | None:
    """Return an operator behind `value` of whose results the sizes are lost, not before it."""
    node = value.producer()
    while node is not None:
        before = [item for item in node.inputs if item is not None and static_shape(item) is None]
        if not before or before[0].producer() is None:
            return node
        node = before[0].producer()
    return None


def _why_no_floats(name: str, outputs: dict[str, ir.Value]) -> str | None:
    value = outputs.get(name)
    if value is None:
        return f"there is no output '{name}' to be the loss{_meant(name, outputs)}"
    if value.dtype is None or not value.dtype.is_floating_point():
        return f"the output '{name}' is {value.dtype}, a loss is a floating-point number"
    return None


def _meant(name: str, outputs: dict[str, ir.Value]) -> str:
    """Return what may be meant by a loss that there is not: an output, or a kind of loss."""
    scalars = [known for known, value in outputs.items() if _is_scalar(value)]
    kind, colon, _ = name.partition(":")
    meant = did_you_mean(name, scalars or outputs)
    if colon or not meant:
        kinds = "kinds of loss are cross_entropy:LOGITS,LABELS and mse:PREDICTION,TARGET"
        if kind in _BUILDERS:
            meant = ", and a kind of loss needs the names of what it compares"
        else:
            meant = f", and no kind of loss '{kind}'{did_you_mean(kind, _BUILDERS)}"
        meant = f"{meant}; {kinds}"
    return f"{meant}; {_known(outputs)}"


def _build(b: Editor, spec: LossSpec, outputs: dict[str, ir.Value], name: str) -> str | None:
    """Append one loss called `name`; return what is wrong with `spec`, or None."""
    problem = _why_no_floats(spec.prediction, outputs)
    if problem:
        return problem.replace("to be the loss", f"for {spec.kind}")
    if static_shape(outputs[spec.prediction]) is None:
        return _of_unknown_shape(spec.prediction, outputs[spec.prediction])
    inputs = {str(value.name): value for value in b.model.graph.inputs}
    try:
        loss = _BUILDERS[spec.kind](b, outputs[spec.prediction], spec.target, inputs)
    except CompileError as error:
        return str(error)
    b.model.graph.outputs.append(b.named(loss, name))
    return None


def _cross_entropy(
    b: Editor, logits: ir.Value, target: str, inputs: dict[str, ir.Value]
) -> ir.Value:
    """Mean of -log softmax(logits)[label]."""
    shape = shape_of(logits)
    if len(shape) < 2:
        raise CompileError(f"the logits '{logits.name}' have the shape {shape}, no axis of classes")
    choices = {"last": shape[:-1], "second": (shape[0], *shape[2:])}
    given = inputs.get(target)
    axis = "last" if len(shape) <= _TOKENS_RANK else "second"
    if given is None:
        labels = b.input(target, ir.DataType.INT64, choices[axis])
    else:
        labels = given
        fitting = [name for name, want in choices.items() if shape_of(labels) == want]
        if not fitting or labels.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
            raise CompileError(
                f"the labels '{target}' are {labels.dtype} {list(shape_of(labels))}, expected "
                f"integers {list(choices[axis])} for logits {list(shape)}"
            )
        axis = axis if axis in fitting else fitting[0]
    if axis == "last" and len(shape) > 2:
        logits = b.op("Reshape", logits, [-1, shape[-1]])
        labels = b.op("Reshape", labels, [-1])
    return b.op("SoftmaxCrossEntropyLoss", logits, _from_the_start(b, labels), reduction="mean")


def _from_the_start(b: Editor, labels: ir.Value) -> ir.Value:
    """Return labels that no kernel takes where they are negative: -1 would be the last class.

    Without its highest bit a negative number is out of any range.
    """
    assert labels.dtype is not None
    numbers = labels.dtype.numpy()
    return b.op("BitwiseAnd", labels, b.constant(np.asarray(np.iinfo(numbers).max, numbers)))


def _mse(b: Editor, prediction: ir.Value, target: str, inputs: dict[str, ir.Value]) -> ir.Value:
    """Mean of (prediction - target)^2."""
    shape = shape_of(prediction)
    given = inputs.get(target)
    if given is None:
        assert prediction.dtype is not None
        given = b.input(target, prediction.dtype, shape)
    elif shape_of(given) != shape or given.dtype != prediction.dtype:
        raise CompileError(
            f"the target '{target}' is {given.dtype} {list(shape_of(given))}, expected "
            f"{prediction.dtype} {list(shape)} like '{prediction.name}'"
        )
    difference = b.op("Sub", prediction, given)
    return b.op("ReduceMean", b.op("Mul", difference, difference), keepdims=0)


_Builder = Callable[[Editor, ir.Value, str, dict[str, ir.Value]], ir.Value]
_BUILDERS: dict[str, _Builder] = {"cross_entropy": _cross_entropy, "mse": _mse}
