"""The published networks inside the onnx package, with seeded random weights.

The package ships nine networks whose weights are constant fills (`ConstantOfShape` nodes and
constant initializers): right for shapes, useless for numbers, because equal weights hide permuted
channels and transposed matrices. Here every fill becomes a random tensor of a scale that keeps
activations within the same few orders of magnitude from the first layer to the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

LIGHT = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_BATCH_NORM_ROLES = {1: "scale", 2: "shift", 3: "shift", 4: "scale"}
_SCALES = {"scale": (0.75, 1.25), "branch": (0.3, 0.6)}
_EXTERNAL_FROM = 1024  # bytes; smaller tensors stay in the model


def light_path(name: str) -> Path:
    """The file of a published network as the onnx package ships it, with constant weights."""
    return _FOLDER / f"light_{name}.onnx"


def randomized(name: str, seed: int = 0) -> onnx.ModelProto:
    """A published network with random weights as ordinary initializers (IR version 8)."""
    model = onnx.load(light_path(name))
    rng = np.random.default_rng(seed)
    roles = dict(_roles(model.graph))
    fills = _fills(model.graph)
    weights = [
        numpy_helper.from_array(_draw(rng, roles.get(fill, "shift"), shape), fill)
        for fill, shape in fills.items()
    ]
    kept = [tensor for tensor in model.graph.initializer if _is_needed(tensor, model.graph, fills)]
    nodes = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    names = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in names]
    graph = helper.make_graph(nodes, name, inputs, model.graph.output, [*kept, *weights])
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=8)


def save(model: onnx.ModelProto, path: Path) -> Path:
    """Write `model` to `path`, its large tensors to `<path>.data` beside it; returns `path`.

    The model object is emptied of its tensors on the way.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)
    onnx.save_model(
        model,
        path,
        save_as_external_data=True,
        location=data.name,
        size_threshold=_EXTERNAL_FROM,
    )
    return path


def image(seed: int = 0) -> NDArray[np.float32]:
    """A random picture, float32 of shape 1x3x224x224: the input of all nine networks.

    Large patches under fine noise, since pooling averages pure noise away.
    """
    rng = np.random.default_rng(seed)
    patches = rng.standard_normal((1, 3, 7, 7), dtype=np.float32)
    noise = rng.standard_normal((1, 3, 224, 224), dtype=np.float32)
    return np.repeat(np.repeat(patches, 32, axis=2), 32, axis=3) + np.float32(0.5) * noise


def _fills(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Every float tensor that is a constant fill, with its shape."""
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    fills = {
        node.output[0]: tuple(numpy_helper.to_array(shapes[node.input[0]]).tolist())
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    used = {name for node in graph.node for name in node.input}
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.name in used:
            fills[tensor.name] = tuple(tensor.dims)
    return fills


def _is_needed(
    tensor: onnx.TensorProto, graph: onnx.GraphProto, fills: Mapping[str, object]
) -> bool:
    """Whether an operator other than a fill reads this tensor, which is no fill itself."""
    readers = (node for node in graph.node if node.op_type != "ConstantOfShape")
    return tensor.name not in fills and any(tensor.name in node.input for node in readers)


def _roles(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """What each tensor is for.

    'matrix', 'scale' (about 1, positive), 'shift' (about 0), or 'branch': the scale at the end of
    a residual branch, below 1 because every addition would double the variance otherwise.
    """
    unsqueezed = {
        node.output[0]: node.input[0] for node in graph.node if node.op_type == "Unsqueeze"
    }
    summed = {name for node in graph.node if node.op_type == "Sum" for name in node.input}
    for node in graph.node:
        for position, name in enumerate(node.input):
            source = unsqueezed.get(name, name)
            if node.op_type in ("Conv", "Gemm") and position == 1:
                yield source, "matrix"
            elif node.op_type == "BatchNormalization" and position in _BATCH_NORM_ROLES:
                is_branch = position == 1 and node.output[0] in summed
                yield source, "branch" if is_branch else _BATCH_NORM_ROLES[position]
            elif node.op_type == "Mul" and position == 1:
                yield source, "scale"


def _draw(rng: np.random.Generator, role: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Random values for a role.

    Convolutions after He (their fan-in is all but the first dimension); depthwise ones and fully
    connected layers with half the variance, as few of them are followed by a Relu.
    """
    if role == "matrix":
        gain = 1.0 if len(shape) == 2 or shape[1] == 1 else 2.0
        deviation = math.sqrt(gain / math.prod(shape[1:]))
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    if role == "shift":
        return rng.normal(0.0, 0.1, shape).astype(np.float32)
    low, high = _SCALES[role]
    return rng.uniform(low, high, shape).astype(np.float32)
