"""Which sections a run was asked for, as the runtime takes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sambarun.schedule import Reduction


@dataclass(frozen=True)
class Selected:
    """Which sections to run, as `sambarun.Executable.run` takes it."""

    section_types: tuple[str, ...] | None = None
    section_ids: tuple[int, ...] | None = None
    calls: tuple[int, ...] | None = None
    train: bool = False
    reduction: Reduction = "none"

    @cached_property
    def evaluates(self) -> bool:
        """Whether the forward sections alone run, as in evaluation."""
        return not self.train and self.section_types == ("FWD",)
