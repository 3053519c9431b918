"""Host kernels: steps that are no ONNX graphs, from a closed table.

A host kernel runs right before the section it belongs to and writes that section's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

import pef
from sambarun.arrays import Array

# A kernel gets its inputs and outputs as views of device memory, and the number of the forward run
# that its section belongs to.
Kernel = Callable[[Sequence[Array], Sequence[Array], int], None]

_WORD = 1 << 32
_KEY = 1 << 64


def kernel_of(row: pef.HostKernel) -> Kernel:
    """Return what `row` asks for; the format's rules have checked that its kind is known."""
    import json  # few programs have host kernels

    return _MAKERS[row.kind](json.loads(row.parameters))


def seed_names(program: pef.Program) -> frozenset[str]:
    """Return the names of the argins that seed the masks of `program`."""
    seeds = {seed for row in program.host_kernels for seed in row.inputs[1:2]}
    return frozenset(row.name for row in program.argins if row.symbol in seeds)


def dropout_mask(rate: float, seed: int, site: int, step: int, mask: Array) -> None:
    """Fill `mask`, float32: each element is 0 with probability `rate`, else 1 / (1 - rate).

    The same (seed, site, step) make the same mask, on every machine: it comes from numpy's Philox
    generator, keyed by seed and site, with the step in the upper half of its counter.
    """
    if rate <= 0.0:
        mask.fill(1.0)
        return
    flat = mask.reshape(-1)
    generator = np.random.Philox(
        key=(site % _KEY) << 64 | seed % _KEY, counter=(step % _KEY) << 128
    )
    # Two draws of 32 bits from each number.
    draws = generator.random_raw((flat.size + 1) // 2).view(np.uint32)[: flat.size]
    limit = round(rate * _WORD)
    if limit >= _WORD:
        mask.fill(0.0)
        return
    np.multiply(draws >= np.uint32(limit), np.float32(1.0 / (1.0 - rate)), out=flat)


def _dropout_mask(parameters: Mapping[str, int]) -> Kernel:
    site = parameters["site"]

    def run(inputs: Sequence[Array], outputs: Sequence[Array], step: int) -> None:
        rate, seed = inputs
        dropout_mask(float(rate), int(seed), site, step, outputs[0])

    return run


_MAKERS: Mapping[str, Callable[[Mapping[str, int]], Kernel]] = MappingProxyType(
    {"dropout_mask": _dropout_mask}
)
