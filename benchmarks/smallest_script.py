"""The smallest script that loads a model with onnxruntime and runs it: MODEL INPUTS."""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
outputs = session.run(None, dict(np.load(sys.argv[2])))
for output, value in zip(session.get_outputs(), outputs, strict=True):
    print(output.name, value.shape, value.dtype, value.min(), value.max())
