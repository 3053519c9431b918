"""The passes that rewrite a simple graph to the operators that run fastest, in order."""

from __future__ import annotations

import onnx_ir as ir

from .lower_lrn import LowerLrn

SELECT_KERNELS: tuple[ir.passes.InPlacePass, ...] = (LowerLrn(),)
