"""Operators that libraries register, with gradients of their own, and that translations know.

Only where a library has been imported are its operators there.
"""

from __future__ import annotations

GROUPED_PRODUCTS = ("transformers", "grouped_mm_fallback")
"""The library and the operator by which it computes mixtures of experts."""
