"""Names of operators in rule files, and the ONNX operators they stand for."""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType

from .registry import FAMILIES

# PyTorch's names, where they differ from ONNX's in snake case.
_ALIASES = MappingProxyType({
    "adaptive_avg_pool2d": "GlobalAveragePool",
    "avg_pool2d": "AveragePool",
    "batch_norm": "BatchNormalization",
    "bmm": "MatMul com.microsoft.FusedMatMul",
    "conv2d": "Conv com.microsoft.FusedConv com.microsoft.nchwc.Conv",
    "embedding": "Gather",
    "group_norm": "GroupNormalization",
    "instance_norm": "InstanceNormalization",
    "layer_norm": "LayerNormalization com.microsoft.SkipLayerNormalization",
    "linear": "Gemm MatMul com.microsoft.FusedMatMul com.microsoft.FusedGemm "
              "com.microsoft.MatMulNBits com.microsoft.MatMulIntegerToFloat",
    "matmul": "MatMul com.microsoft.FusedMatMul",
    "max_pool2d": "MaxPool com.microsoft.nchwc.MaxPool",
    "rms_norm": "RMSNormalization SimplifiedLayerNormalization",
    "scaled_dot_product_attention": "Attention com.microsoft.MultiHeadAttention",
    "silu": "Swish com.microsoft.QuickGelu",
    "view": "Reshape",
})  # fmt: skip

# Between a lower-case letter or digit and a capital, and before the last of several capitals.
_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def op_types_of(name: str) -> frozenset[str]:
    """Return the operators that `name` stands for, with their domain; none if it is unknown."""
    return _table().get(name, frozenset())


def known_names() -> tuple[str, ...]:
    """Return every name that a rule may use."""
    return tuple(_table())


@cache
def _table() -> dict[str, frozenset[str]]:
    operators = sorted(operator for family in FAMILIES for operator in family.flops)
    table: dict[str, set[str]] = {}
    for operator in operators:
        bare = operator.rpartition(".")[2]
        for name in (_WORD_BOUNDARY.sub("_", bare).lower(), bare, operator):
            table.setdefault(name, set()).add(operator)
    for alias, types in _ALIASES.items():
        table.setdefault(alias, set()).update(types.split())
    return {name: frozenset(types) for name, types in table.items()}
