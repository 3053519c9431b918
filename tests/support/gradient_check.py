"""Checks of gradient rules: one record an operator, compared with finite differences and torch.

A record gives float inputs as float64 arrays away from kinks and ties. From it come
* a float64 graph, run by onnx's reference evaluator: the gradient along a random direction must be
  the central difference of the loss along that direction;
* a float32 graph, run by onnxruntime: each gradient must be torch's, computed in float64.
The loss is the sum over all outputs, each weighted with random numbers, so that every gradient
counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from near import assert_near
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from reference_scan import Scan

from sambac.autodiff import differentiate
from sambac.passes.base import Pass
from sambac.passes.legalize.infer_shapes import infer

Array = np.ndarray[Any, np.dtype[Any]]
OPSET = 23
# Inputs are of the size of 1: what should vanish may be off by a share of this.
_LEAST = 1e-3


@dataclass(frozen=True)
class Case:
    """One sample of an operator.

    `torch`: from float64 tensors, one for each input (None where absent), to the outputs.
    `outputs`: how many outputs the node has; those that are no floats count nothing.
    `read`: which of them the loss reads and `torch` returns, by default all. The node leaves out
    the others, but the first, which no operator can leave out.
    `wrt`: which inputs get a gradient, by default every float one that is not constant.
    `constants`: float inputs that are constants of the model; integers and booleans always are.
    `around`: passes that run before and after differentiation.
    `opset`: that of ONNX, an older one where no kernel runs the operator of the newest.
    `finite_differences` may be given a reason why there are none (no reference implementation).
    """

    op: str
    inputs: tuple[Array | None, ...]
    torch: Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    read: tuple[int, ...] | None = None
    wrt: tuple[int, ...] | None = None
    label: str = ""
    domain: str = ""
    tolerance: float = 2e-5
    without_finite_differences: str = ""
    constants: tuple[int, ...] = ()
    around: tuple[Pass, Pass] | None = None
    opset: int = OPSET

    def __str__(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op

    def reads(self, output: int) -> bool:
        """Tell whether the loss reads an output."""
        return self.read is None or output in self.read

    @property
    def trained(self) -> tuple[int, ...]:
        """The inputs that get gradients."""
        return tuple(self.fed) if self.wrt is None else self.wrt

    @property
    def fed(self) -> dict[int, Array]:
        """The inputs that vary from run to run, by position."""
        return {
            index: np.asarray(array)
            for index, array in enumerate(self.inputs)
            if array is not None and array.dtype.kind == "f" and index not in self.constants
        }


@dataclass(frozen=True)
class Graph:
    """A differentiated sample: the model, the names of its float outputs and of its gradients."""

    model: onnx.ModelProto
    outputs: tuple[str, ...]
    gradients: dict[int, str]
    weights: dict[str, Array]


def build(case: Case, dtype: type[np.floating[Any]], seed: int = 0) -> Graph:
    """Return the graph of `case` with gradients of all trained inputs as outputs."""
    model = _forward(case, dtype)
    infer(model)
    rng = np.random.default_rng(seed)
    node = next(iter(model.graph))
    targets = [
        out for i, out in enumerate(node.outputs) if out.name and _is_float(out) and case.reads(i)
    ]
    seeds, weights = {}, {}
    for target in targets:
        name = f"{target.name}__grad"
        assert target.shape is not None
        seed_value = ir.val(name, target.dtype, target.shape)
        model.graph.inputs.append(seed_value)
        seeds[target] = seed_value
        weights[name] = rng.normal(size=tuple(target.shape.numpy())).astype(dtype)
    by_name = {value.name: value for value in model.graph.inputs}
    trained = [by_name[f"x{index}"] for index in case.trained]
    names = [target.name for target in targets]
    if case.around is not None:
        case.around[0](model)
    found = differentiate(model, seeds, trained)
    if case.around is not None:
        case.around[1](model)
    gradients = {}
    for index, value in zip(case.trained, trained, strict=True):
        if value in found:
            gradients[index] = found[value].name
            model.graph.outputs.append(found[value])
    return Graph(ir.serde.serialize_model(model), tuple(names), gradients, weights)


def _forward(case: Case, dtype: type[np.floating[Any]]) -> ir.Model:
    inputs = [
        None
        if array is None
        else ir.val(f"x{i}", ir.DataType.from_numpy(_cast(array, dtype).dtype), array.shape)
        for i, array in enumerate(case.inputs)
    ]
    named = [i for i in range(case.outputs) if i == 0 or case.reads(i)]
    outputs = [ir.val(f"y{i}" if i in named else "") for i in range(case.outputs)]
    node = ir.node(
        case.op, inputs, dict(case.attributes), domain=case.domain, outputs=outputs, name="node"
    )
    opsets = {"": case.opset, "com.microsoft": 1}
    # Integers and booleans are constants, as shapes, axes and indices mostly are in models.
    graph_inputs, initializers = [], []
    for index, (value, array) in enumerate(zip(inputs, case.inputs, strict=True)):
        if value is None or array is None:
            continue
        if index in case.fed:
            graph_inputs.append(value)
        else:
            content = np.asarray(array if array.dtype == np.float32 else _cast(array, dtype))
            value.dtype = ir.DataType.from_numpy(content.dtype)
            value.const_value = ir.Tensor(content, name=value.name)
            initializers.append(value)
    graph = ir.Graph(
        graph_inputs,
        [output for output in outputs if output.name],
        nodes=[node],
        initializers=initializers,
        opset_imports=opsets,
        name="g",
    )
    return ir.Model(graph, ir_version=10)


def _cast(array: Array, dtype: type[np.floating[Any]]) -> Array:
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _is_float(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point()


class Erf(OpRun):
    """The error function in the precision of its input; onnx's own rounds to float32."""

    op_domain = ""

    def _run(self, x: Array) -> tuple[Array]:
        return (np.vectorize(math.erf, otypes=[x.dtype])(x),)


class GlobalLpPool(OpRun):
    """The p-norm over all spatial axes, which onnx leaves out."""

    op_domain = ""

    def _run(self, x: Array, p: int = 2) -> tuple[Array]:
        axes = tuple(range(2, x.ndim))
        return ((np.abs(x) ** p).sum(axes, keepdims=True) ** (1 / p),)


def check_finite_differences(case: Case, step: float = 1e-5) -> None:
    """Compare the gradient along random directions with central differences, in float64."""
    if case.without_finite_differences:
        return
    graph = build(case, np.float64)
    evaluator = ReferenceEvaluator(graph.model, new_ops=[Erf, GlobalLpPool, Scan])
    feeds = {f"x{index}": array for index, array in case.fed.items()}
    rng = np.random.default_rng(1)

    def loss(shifted: Mapping[str, Array]) -> float:
        values = evaluator.run(list(graph.outputs), {**feeds, **shifted, **graph.weights})
        return float(
            sum(
                np.sum(v * graph.weights[f"{n}__grad"])
                for n, v in zip(graph.outputs, values, strict=True)
            )
        )

    for index in case.trained:
        array = case.inputs[index]
        assert array is not None
        direction = rng.normal(size=array.shape)
        forward = loss({f"x{index}": array + step * direction})
        backward = loss({f"x{index}": array - step * direction})
        expected = (forward - backward) / (2 * step)
        if index not in graph.gradients:
            assert abs(expected) < 1e-7, f"input {index} has no gradient, differences {expected}"
            continue
        (gradient,) = evaluator.run([graph.gradients[index]], {**feeds, **graph.weights})
        assert gradient.shape == array.shape
        actual = float(np.sum(gradient * direction))
        scale = max(abs(expected), float(np.abs(gradient).sum()) * 1e-3, 1e-6)
        assert abs(actual - expected) <= 2e-5 * scale + 1e-7, f"input {index}: {actual} {expected}"


def check_against_torch(case: Case) -> None:
    """Compare onnxruntime's float32 outputs and gradients with torch's in float64."""
    graph = build(case, np.float32)
    results = run(graph, case)
    outputs, gradients = in_torch(graph, case)
    for name, expected in zip(graph.outputs, outputs, strict=True):
        what = f"{case} output {name}"
        assert_near(results[name], expected, case.tolerance, size=_LEAST, what=what)
    for index, expected in gradients.items():
        if index not in graph.gradients:
            assert not np.abs(expected).max(initial=0) > 0, f"input {index}: no gradient"
            continue
        actual = results[graph.gradients[index]]
        what = f"{case} gradient of input {index}"
        assert_near(actual, expected, case.tolerance, size=_LEAST, what=what)


def run(graph: Graph, case: Case) -> dict[str, Array]:
    """Return the outputs and gradients that onnxruntime computes in float32, by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        graph.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{index}": array.astype(np.float32) for index, array in case.fed.items()}
    names = [*graph.outputs, *graph.gradients.values()]
    return dict(zip(names, session.run(names, {**feeds, **graph.weights}), strict=True))


def in_torch(graph: Graph, case: Case) -> tuple[list[Array], dict[int, Array]]:
    """Return torch's float64 outputs, and its gradients by input (zeros for those without)."""
    import torch

    tensors = [
        None if a is None else torch.tensor(a, requires_grad=i in case.trained)
        for i, a in enumerate(case.inputs)
    ]
    made = case.torch(*tensors)
    outputs = [made] if isinstance(made, torch.Tensor) else list(made)
    outputs = [out for out in outputs if out is not None and out.is_floating_point()]
    total = torch.zeros((), dtype=torch.float64)
    for name, out in zip(graph.outputs, outputs, strict=True):
        weight = torch.tensor(graph.weights[f"{name}__grad"].astype(np.float64))
        total = total + (out * weight).sum()
    wanted = [tensors[index] for index in case.trained]
    found = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    gradients = {
        index: gradient.numpy() for index, gradient in zip(case.trained, found, strict=True)
    }
    return [out.detach().numpy() for out in outputs], gradients
