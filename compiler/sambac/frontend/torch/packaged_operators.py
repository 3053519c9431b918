"""Operators that packages other than PyTorch register, and that are translated like its own.

They are there once a package has been imported. They have backward methods of their own, which are
not needed: what they are translated to is differentiated.
"""

from __future__ import annotations

ROWS_IN_GROUPS = ("transformers", "grouped_mm_fallback")
"""The package and the operator by which it multiplies the rows of experts."""
