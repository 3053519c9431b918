"""The same inputs give the same results."""

from __future__ import annotations

import torch

from sambaflow.samba.tensor import SambaTensor, to_torch
from sambaflow.samba.utils.steps import Step, flat

__all__ = ["consistency_test"]


def consistency_test(
    inputs: object,
    outputs: object,
    n_iterations: int = 2,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
) -> None:
    """Run the forward part of a traced model several times and compare the results bit for bit.

    `outputs` are the traced output tensors. Dropout is off, as in evaluation. Raises ValueError for
    fewer than two runs, AssertionError that names the outputs that were not always the same.
    """
    if n_iterations < 2:
        raise ValueError(f"n_iterations is {n_iterations}, expected 2 or more to compare")
    wanted = tuple(flat(outputs))
    step = Step(wanted, inference=True, data_parallel=data_parallel, reduce_on_rdu=reduce_on_rdu)
    tensors = tuple(flat(inputs))
    first = _copies(step.run(tensors))
    unlike: dict[str, int] = {}
    for number in range(1, n_iterations):
        for output, before, now in zip(wanted, first, step.run(tensors), strict=True):
            if not same_bits(before, to_torch(now)):
                unlike.setdefault(output.sn_name, number)
    if unlike:
        found = ", ".join(f"{name} (run {number})" for name, number in unlike.items())
        raise AssertionError(f"results differ between runs of the same inputs: {found}")


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the tensors have the same type, shape and bytes, NaNs included."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(_bytes(tensor) for tensor in (left, right)))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _copies(tensors: tuple[SambaTensor, ...]) -> list[torch.Tensor]:
    return [to_torch(tensor).detach().clone() for tensor in tensors]
