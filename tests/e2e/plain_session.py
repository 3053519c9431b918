"""Plain onnxruntime in a process of its own: MODEL INPUTS.npz OUTPUTS.npz [--every-value].

Writes the model's outputs, or every value that any of its operators computes, under the names
that the model gives them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime


def main() -> None:
    """Run the model once."""
    model, inputs, outputs = map(Path, sys.argv[1:4])
    if "--every-value" in sys.argv:
        model = with_every_value(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    with np.load(inputs) as feeds:
        values = session.run(None, dict(feeds))
    names = [output.name for output in session.get_outputs()]
    np.savez(outputs, **dict(zip(names, values, strict=True)))


def with_every_value(path: Path) -> Path:
    """A copy of the model beside it whose outputs are the values of all its operators."""
    model = onnx.load(path, load_external_data=False)
    computed = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    copy = path.with_name(f"every-value-{path.name}")
    onnx.save_model(model, copy)
    return copy


if __name__ == "__main__":
    main()
