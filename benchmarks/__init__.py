"""Comparisons with plain onnxruntime, and the models they are made on."""
