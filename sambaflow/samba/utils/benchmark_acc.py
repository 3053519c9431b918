"""Reports of accuracy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from sambaflow.samba.arguments.checked import checked, require
from sambaflow.samba.arguments.kinds import COUNT, NUMBER, dict_of

from .reports import save_json

__all__ = ["AccuracyReport"]

_METRICS = dict_of(NUMBER, "a dict of numbers by name")


@dataclass(frozen=True, kw_only=True)
class AccuracyReport:
    """How good a model was on data that it was not trained on.

    `val_metrics` are numbers by name; `val_accuracy` is the older form, one number.
    `num_iterations` is how many batches it was trained with.
    """

    val_accuracy: float | None = None
    val_metrics: Mapping[str, float] = field(default_factory=dict)
    batch_size: int | None = None
    num_iterations: int | None = None

    def __post_init__(self) -> None:
        require("val_accuracy", self.val_accuracy, NUMBER.or_none())
        require("val_metrics", self.val_metrics, _METRICS)
        require("batch_size", self.batch_size, COUNT.or_none())
        require("num_iterations", self.num_iterations, COUNT.or_none())

    @checked()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to `path` as a JSON object, whole or not at all; raises OSError."""
        metrics = dict(self.val_metrics)
        if self.val_accuracy is not None:
            metrics.setdefault("acc", self.val_accuracy)
        save_json(
            path,
            {
                "val_metrics": metrics,
                "batch_size": self.batch_size,
                "num_iterations": self.num_iterations,
            },
        )
