"""What this host is, as tuning files describe it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.kernels.probe import RefusedError, open_session, results_of
from sambac.tuning_file import MeasuredHost
from sambac.variants.blocked import feature
from sambac.variants.layout import DOMAIN

_CPU_INFO = Path("/proc/cpuinfo")


def empty_model() -> ir.Model:
    """Return a model without operators."""
    imports = {"": 23, "com.microsoft": 1}
    return ir.Model(ir.Graph([], [], nodes=[], opset_imports=imports), ir_version=10)


def this_host(threads: int) -> MeasuredHost:
    """Return this host, where `threads` work."""
    block = block_of_channels()
    features = (feature(block),) if block else ()
    return MeasuredHost(_processor(), os.cpu_count() or 1, threads, features)


def block_of_channels() -> int:
    """Return how many channels the blocks of this host's convolutions have; 0 without blocks.

    An operator that puts a small image into blocks rounds its channels up to a whole block.
    """
    model = empty_model()
    b = Editor(model)
    x = b.input("x", ir.DataType.FLOAT, (1, 4, 1, 1))
    open_shape = ir.Value(type=ir.TensorType(ir.DataType.FLOAT))
    y = b.op("ReorderInput", x, domain=DOMAIN, like=open_shape)
    model.graph.outputs.append(y)
    try:
        session = open_session(ir.to_proto(model).SerializeToString())
        (found,) = results_of(session, [str(y.name)], {"x": np.zeros((1, 4, 1, 1), np.float32)})
    except RefusedError:
        return 0
    return int(found.shape[1])


def _processor() -> str:
    """Return the name of the processor."""
    try:
        lines = _CPU_INFO.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
