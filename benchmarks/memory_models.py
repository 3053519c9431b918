"""The models of `benchmarks.training_memory`, which its worker makes too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sambac
from benchmarks.models import training as models
from benchmarks.training import ENTRIES, Entry

_DEEP = "transformer, 12 layers"


def entries() -> Mapping[str, Entry]:
    """Return the models that count, and a deep one without and with --recompute at the end."""
    deep = Entry(lambda: models.decoder(8, 64, 128, 12, 4, 1000), sambac.AdamW(lr=1e-3))
    return {**ENTRIES, _DEEP: deep, f"{_DEEP}, --recompute": replace(deep, recompute=True)}
