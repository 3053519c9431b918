"""Inference on a device: programs that follow each other, run for each sample by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from .samples import Samples, Tensors, joined
from .stages import Stage, StageProgram

Sink = TypeVar("Sink")
"""Where something goes that comes behind the outputs of a program."""


@dataclass(frozen=True)
class RunSettings:
    """How programs run: threads of an operator, None for one per core, and what says errors.

    `api` is whose names count.
    """

    threads: int | None
    api: str
    raises: Callable[[str], Exception]


class SampleRunner(Generic[Sink]):
    """Programs on the device, of which each takes what the one before gives.

    What comes behind the outputs of one goes to its sinks. The inputs of the first are `names`.
    """

    def __init__(self, names: Sequence[str], settings: RunSettings) -> None:
        self.names = tuple(names)
        self.stages: list[Stage] = []
        self.sinks: list[Sink] = []
        self._settings = settings
        self._behind: list[int] = []

    def add(self, made: StageProgram, sinks: Sequence[Sink] = ()) -> None:
        """Load a program that runs behind the others; its last outputs go to `sinks`."""
        own = self._settings
        self.stages.append(Stage(made, own.threads, own.api, own.raises))
        self._behind.append(len(sinks))
        self.sinks += sinks

    def run(self, batch: Samples) -> tuple[Tensors, Tensors]:
        """Return the outputs for a microbatch, and beside them what sinks get.

        Raises an error for what does not fit what was compiled.
        """
        found = joined(map(self._sample, batch.ordered(self.names).samples()))
        count = len(found) - len(self.sinks)
        return found[:count], found[count:]

    def follow(self, sample: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Return what the last program gives for a sample that goes to it, without what is kept."""
        found = self.stages[-1].forward(sample)
        return found[: len(found) - self._behind[-1]]

    def close(self) -> None:
        """Give back the memory of the device."""
        for stage in self.stages:
            stage.close()

    def _sample(self, sample: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        kept: list[torch.Tensor] = []
        for stage, behind in zip(self.stages, self._behind, strict=True):
            found = stage.forward(sample)
            count = len(found) - behind
            sample = found[:count]
            kept += found[count:]
        return [*sample, *kept]
