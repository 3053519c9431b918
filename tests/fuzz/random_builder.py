"""What random models are built of: values of known shape, and the graph under construction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
OPSETS = (9, 13, 17)


@dataclass(frozen=True)
class Tensor:
    """A float32 value of known shape."""

    name: str
    shape: tuple[int, ...]


@dataclass
class Builder:
    """A graph under construction."""

    rng: np.random.Generator
    opset: int
    values: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, rank: int | None = None) -> Tensor:
        """Return a value, recent ones more likely; of `rank` dimensions if there is one."""
        fitting = [value for value in self.values if rank is None or len(value.shape) == rank]
        if not fitting:
            return self.reshape(self.pick(), rank)
        back = min(int(self.rng.geometric(0.4)), len(fitting))
        return fitting[-back]

    def constant(self, array: np.ndarray) -> str:
        name = self.name()
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, shape: Sequence[int], low: float = -1, high: float = 1) -> str:
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def ints(self, numbers: Sequence[int]) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def node(
        self, op: str, inputs: Sequence[str], count: int = 1, **attributes: object
    ) -> list[str]:
        outputs = [self.name() for _ in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def add(
        self, op: str, inputs: Sequence[str], shape: Sequence[int], **attributes: object
    ) -> Tensor:
        (name,) = self.node(op, inputs, **attributes)
        value = Tensor(name, tuple(int(size) for size in shape))
        self.values.append(value)
        return value

    def reshape(self, x: Tensor, rank: int | None) -> Tensor:
        """Reshape to `rank` dimensions, the elements dealt out at random."""
        shape = [1] * (rank or int(self.rng.integers(1, 5)))
        for prime in _factors(int(np.prod(x.shape))):
            shape[int(self.rng.integers(len(shape)))] *= prime
        return self.add("Reshape", [x.name, self.ints(shape)], shape)


def _factors(number: int) -> list[int]:
    factors, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return factors
