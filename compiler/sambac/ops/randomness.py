"""Operators that draw random numbers."""

from __future__ import annotations

from .family import POLYNOMIAL, Family, each, per_output

_FLOPS = {
    **each("Bernoulli Multinomial RandomUniform RandomUniformLike", per_output(POLYNOMIAL)),
    **each("RandomNormal RandomNormalLike", per_output(2 * POLYNOMIAL)),
    **each("SampleOp", per_output(POLYNOMIAL), "com.microsoft"),
}

FAMILY = Family("random", _FLOPS, random=True, constant=frozenset(_FLOPS))
