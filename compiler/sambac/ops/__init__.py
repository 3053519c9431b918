"""Facts of operators, one file per family."""

from .registry import flops_of, is_random

__all__ = ["flops_of", "is_random"]
