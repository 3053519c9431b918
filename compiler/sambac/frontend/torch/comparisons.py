"""Comparisons in the types that PyTorch compares in.

The exporter lets all comparisons of narrow types be those of float32 numbers. There 0.1 is neither
a float16 nor a bfloat16, while PyTorch rounds a number to the type of the tensor beside it first:
`x == 0.1` holds for the one next to 0.1, and `x <= 0.1` for it, too, where it is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes
from torch.onnx._internal.fx.passes.type_promotion import (
    ElementwiseTypePromotionRule,
    TypePromotionSnapshot,
)

from .guards import replaced


@contextmanager
def compared_in_their_types() -> Iterator[None]:
    """Let exports compare in the type that operands have together, not in a wider one."""
    before = ElementwiseTypePromotionRule.preview_type_promotion

    def preview(
        rule: ElementwiseTypePromotionRule, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TypePromotionSnapshot:
        found: TypePromotionSnapshot = before(rule, args, kwargs)
        if rule.promotion_kind is not KINDS.ALWAYS_BOOL:
            return found
        operands = [args[position] for position in found.args_dtypes]
        _, common = elementwise_dtypes(*operands, type_promotion_kind=KINDS.DEFAULT)
        types = dict.fromkeys(found.args_dtypes, common)
        return TypePromotionSnapshot(types, found.kwargs_dtypes, found.out_dtype)

    with replaced(ElementwiseTypePromotionRule, "preview_type_promotion", preview):
        yield
