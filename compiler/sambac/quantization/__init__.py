"""Layers in whole numbers of few bits, for inference.

    layers      what becomes of each layer, as the log shows it
    quantize    the layers of a model, as options want them

The rewritings themselves are passes: `sambac.passes.quantize_weights` and its neighbours.
"""

from .quantize import QuantizedLayers, quantize

__all__ = ["QuantizedLayers", "quantize"]
