"""What the installed onnxruntime can run on a CPU: its operator schemas and kernel registry."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cache

from onnxruntime.capi import onnxruntime_pybind11_state as state

OpKey = tuple[str, str]


@cache
def _schemas() -> Mapping[OpKey, list[state.OpSchema]]:
    """Return every schema by domain and operator, oldest version first."""
    table: dict[OpKey, list[state.OpSchema]] = {}
    for item in state.get_all_operator_schema():
        table.setdefault((item.domain, item.name), []).append(item)
    for versions in table.values():
        versions.sort(key=lambda item: item.since_version)
    return table


def since_version(domain: str, op_type: str, opset: int) -> int | None:
    """Return the version of the operator that a model with `opset` means, or None."""
    versions = [item.since_version for item in _schemas().get((domain, op_type), ())]
    index = bisect_right(versions, opset)
    return versions[index - 1] if index else None
