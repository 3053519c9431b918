"""Operators that draw random numbers."""

from __future__ import annotations

from .family import POLYNOMIAL, Family, each, per_output

FAMILY = Family(
    "random",
    {
        **each("Bernoulli Multinomial RandomUniform RandomUniformLike", per_output(POLYNOMIAL)),
        **each("RandomNormal RandomNormalLike", per_output(2 * POLYNOMIAL)),
        **each("SampleOp", per_output(POLYNOMIAL), "com.microsoft"),
    },
    random=True,
)
