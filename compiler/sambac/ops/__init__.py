"""Facts of operators, one file per family; `registry` answers for all of them."""

from .family import Family
from .registry import (
    FAMILIES,
    blocks_gradients,
    family_of,
    flops_of,
    gradient_of,
    held_whole,
    is_anchor,
    is_byte_product,
    is_elementwise,
    is_normalization,
    is_random,
    keepable,
    undifferentiable,
)

__all__ = [
    "FAMILIES",
    "Family",
    "blocks_gradients",
    "family_of",
    "flops_of",
    "gradient_of",
    "held_whole",
    "is_anchor",
    "is_byte_product",
    "is_elementwise",
    "is_normalization",
    "is_random",
    "keepable",
    "undifferentiable",
]
