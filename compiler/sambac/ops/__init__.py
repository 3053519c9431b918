"""Facts of operators, one file per family; `registry` answers for all of them."""

from .family import Family
from .registry import FAMILIES, family_of, flops_of, is_anchor, is_random

__all__ = ["FAMILIES", "Family", "family_of", "flops_of", "is_anchor", "is_random"]
