"""Bring a model to an IR version and to opsets that the installed onnxruntime accepts.

Models from before opset 7 are raised to it. Exporters are often ahead of onnxruntime, but most
operators of a newer opset are those of an older one: the model is taken for the newest opset that
onnxruntime accepts, and operators that differ there are marked with the version they were
written for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import version_converter

from pef.foreign import reading
from sambac.errors import CompileError
from sambac.graph.nodes import all_nodes
from sambac.graph.opsets import mark_differing
from sambac.kernels.probe import RefusedError, open_session

_IR_WITHOUT_OPSETS = 3
# How onnxruntime names its limits.
_NEWEST = re.compile(r"domain \S+ is till opset \d+|max supported IR version: \d+")
# onnxruntime has kernels for few operators of older operator sets.
_FIRST_OPSET_WITH_KERNELS = 7
# How far ahead of onnxruntime a model may be: a few releases of ONNX.
_MAX_STEPS_DOWN = 6


class _NotConvertedError(Exception):
    """The ONNX library cannot convert a model."""


def raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` converted from the first opsets, which had explicit broadcasting, to 7.

    A model that is not that old is returned as it is. So is one that the ONNX library cannot
    convert: what it has without a kernel is reported later, with all others.
    """
    opsets = {item.domain: item.version for item in model.opset_import}
    if not 0 < opsets.get("", _FIRST_OPSET_WITH_KERNELS) < _FIRST_OPSET_WITH_KERNELS:
        return model
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = model.ir_version, opsets
    try:
        with reading(_NotConvertedError):
            for node in model.graph.node:  # an attribute of another type would end the process
                onnx.checker.check_node(node, context)
            converted = version_converter.convert_version(model, _FIRST_OPSET_WITH_KERNELS)
            return _slopes_by_channel(converted)
    except _NotConvertedError:
        return model


def _slopes_by_channel(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with slopes of PRelu [C] as [C, 1, ...], which broadcast to the channels.

    `model` is of opset 7, converted by the library, which leaves slopes as they were: a number a
    channel, while those of opset 7 are broadcast from the last axis. Raises `_NotConvertedError`
    where no rank is known.
    """
    if not any(node.op_type == "PRelu" for node in model.graph.node):
        return model
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = (*inferred.input, *inferred.output, *inferred.value_info)
    typed = {v.name: v.type.tensor_type for v in values if v.type.tensor_type.HasField("shape")}
    ranks = {name: len(kind.shape.dim) for name, kind in typed.items()}
    ranks |= {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    found = onnx.ModelProto()
    found.CopyFrom(model)
    del found.graph.node[:]
    for node in model.graph.node:
        if node.op_type == "PRelu":
            rank, slope = ranks.get(node.input[0]), ranks.get(node.input[1])
            if rank is None or slope is None:
                raise _NotConvertedError
            if slope == 1 and rank > 2:
                name = f"{node.output[0]}__slope"
                axes = list(range(1, rank - 1))
                found.graph.node.append(
                    onnx.helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
                )
                node = onnx.NodeProto.FromString(node.SerializeToString())
                node.input[1] = name
        found.graph.node.append(node)
    return found


def adopt_versions(model: ir.Model, name: str) -> None:
    """Lower the versions of `model` in place until onnxruntime accepts them.

    `name` is the model's name in messages. Raises `CompileError` where no version close below
    is accepted, and where the model names no opset at all.
    """
    opsets = model.opset_imports
    if not opsets and model.ir_version < _IR_WITHOUT_OPSETS:
        opsets[""] = 1
    _complete(model, name)
    refusal = _refusal(model.ir_version, opsets)
    if refusal is None:
        return
    written = dict(opsets)
    ir_version = _lowered_ir_version(model.ir_version)
    for domain, version in written.items():
        opsets[domain] = _lowered_opset(domain, version)
    if ir_version is None or _refusal(ir_version, opsets) is not None:
        spelled = ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in written.items())
        raise CompileError(
            f"{name} has IR version {model.ir_version} and opsets {spelled or 'none'}, which "
            f"onnxruntime {ort.__version__} does not run ({_limit(refusal)}); export it with "
            "older versions, or install a newer onnxruntime"
        )
    model.ir_version = ir_version
    mark_differing(model.graph, written, opsets)


def _limit(refusal: str) -> str:
    """Return what onnxruntime says about the newest version, or all it says."""
    found = _NEWEST.search(refusal)
    return found[0] if found else refusal


def _complete(model: ir.Model, name: str) -> None:
    """Add version 1 of the domains that nodes use and the model does not name."""
    for node in all_nodes(model.graph):
        if node.domain not in model.opset_imports:
            if node.domain == "":
                raise CompileError(
                    f"{name} does not say which version of the ONNX operators it is written for; "
                    "export it again with an opset import"
                )
            model.opset_imports[node.domain] = 1


def _lowered_ir_version(version: int) -> int | None:
    candidates = range(version, max(version - _MAX_STEPS_DOWN, 0), -1)
    return next((v for v in candidates if _refusal(v, {"": 1}) is None), None)


def _lowered_opset(domain: str, version: int) -> int:
    candidates = range(version, max(version - _MAX_STEPS_DOWN, 0), -1)
    return next((v for v in candidates if _refusal(8, {"": 1, domain: v}) is None), version)


def _refusal(ir_version: int, opsets: Mapping[str, int]) -> str | None:
    """Return why onnxruntime refuses every model of these versions, or None."""
    trial = onnx.ModelProto(ir_version=ir_version)
    trial.graph.name = "trial"
    for port in (trial.graph.input.add(), trial.graph.output.add()):
        port.CopyFrom(onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1]))
    for domain, version in opsets.items():
        trial.opset_import.add(domain=domain, version=version)
    try:
        open_session(trial.SerializeToString())
    except RefusedError as refusal:
        return str(refusal)
    return None
