"""Running one step of a traced model again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from sambaflow.samba.errors import SambaError
from sambaflow.samba.session import session
from sambaflow.samba.tensors.tensor import SambaTensor

__all__ = ["MeasuredRun", "flat", "traced_outputs"]


@dataclass(frozen=True)
class MeasuredRun:
    """What a measurement repeats: a run of the whole schedule, or of its forward part."""

    outputs: tuple[SambaTensor, ...]
    inference: bool = False
    data_parallel: bool = False
    reduce_on_rdu: bool = False

    def run(self, inputs: tuple[SambaTensor, ...] | None) -> tuple[SambaTensor, ...]:
        """Run once and return the outputs; without `inputs` on what the device already has."""
        return tuple(
            session.run(
                input_tensors=inputs,
                output_tensors=self.outputs,
                data_parallel=self.data_parallel,
                reduce_on_rdu=self.reduce_on_rdu,
                section_types=["FWD"] if self.inference else [],
                train=not self.inference,
            )
        )


def traced_outputs(model: nn.Module) -> tuple[SambaTensor, ...]:
    """Return the output tensors that tracing gave `model`; raises SambaError if it is untraced."""
    outputs = getattr(model, "output_tensors", None)
    if outputs is None:
        raise SambaError(
            "the model has no output_tensors: call samba.utils.trace_graph with the model and its "
            "PEF before measuring or testing it"
        )
    return tuple(flat(outputs))


def flat(values: object) -> Iterator[SambaTensor]:
    """Give the tensors in `values`, in order: mappings and iterables are entered, None left out.

    Raises TypeError for anything else.
    """
    if isinstance(values, SambaTensor):
        yield values
    elif isinstance(values, Mapping):
        yield from flat(tuple(values.values()))
    elif isinstance(values, Iterable) and not isinstance(values, str | torch.Tensor):
        for value in values:
            yield from flat(value)
    elif values is not None:
        raise TypeError(f"a {type(values).__name__} is no SambaTensor; convert it first")
