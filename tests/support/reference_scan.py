"""Scan in both directions for onnx's reference evaluator, whose own only walks forwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.reference.ops import op_scan

_DIRECTIONS = ("scan_input_directions", "scan_output_directions")


class Scan(op_scan.Scan):
    """Turns what is walked backwards, lets the library scan it forwards, and turns it back."""

    op_domain = ""

    def __init__(self, onnx_node: onnx.NodeProto, run_params: dict[str, Any]) -> None:
        given = {a.name: list(a.ints) for a in onnx_node.attribute if a.name in _DIRECTIONS}
        self._turned = [given.get(name, []) for name in _DIRECTIONS]
        forwards = onnx.NodeProto()
        forwards.CopyFrom(onnx_node)
        del forwards.attribute[:]
        forwards.attribute.extend(a for a in onnx_node.attribute if a.name not in _DIRECTIONS)
        super().__init__(forwards, run_params)

    def _run(self, *args: Any, **attributes: Any) -> tuple[Any, ...]:
        states = len(args) - self.num_scan_inputs
        fed = (*args[:states], *_turn(args[states:], self._turned[0]))
        results = super()._run(*fed, **attributes)
        return (*results[:states], *_turn(results[states:], self._turned[1]))


def _turn(sequences: tuple[Any, ...], directions: list[int]) -> list[Any]:
    flags = [*directions, *[0] * (len(sequences) - len(directions))]
    return [np.flip(s, 0) if flag else s for s, flag in zip(sequences, flags, strict=True)]
