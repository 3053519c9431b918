"""Layers in whole numbers of few bits, for inference.

    quantize    the layers of a model, as options want them, and what the log says of them
    fallback    which of them stay in float32, by errors that are measured
    measuring   values inside of a model while it runs on samples
    ranges      the ranges of values, by observers
    samples     batches of inputs in a file
    recipe      which layers there are, and which passes quantise them

The rewritings themselves are passes: `sambac.passes.quantize.quantize_weights` and its neighbours.
"""

from .quantize import QuantizedLayers, quantize

__all__ = ["QuantizedLayers", "quantize"]
