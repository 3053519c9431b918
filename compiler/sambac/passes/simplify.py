"""The passes that make a legal graph smaller without changing what it computes, in order."""

from __future__ import annotations

import onnx_ir as ir

from .remove_dead import RemoveDead

SIMPLIFY: tuple[ir.passes.InPlacePass, ...] = (RemoveDead(),)
