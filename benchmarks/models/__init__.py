"""Deterministic model generators, shared by the benchmarks, the tests and the demo.

`light` are the published networks of the onnx package with random weights, `transformers` an
encoder and a decoder as PyTorch exports them, `inference` published architectures as PyTorch's
own exporter writes them, `synthetic` whatever shape a question needs. `vision` and `sequences` are
to train.
"""
