"""What a device does to numbers: formats, rounding rules and fidelities, as functions of numpy.

    formats        the table of formats
    block_float    blocks of 16 numbers that share an exponent
    rounding       an array as a device holds it in any of the formats
    fidelity       the parts of its operands that a multiplier takes, pass by pass

Nothing here knows a graph: `sambac.passes.device_numbers.round_numbers` puts the same formulas
into one.
"""

from .fidelity import (
    FIDELITIES,
    FULL,
    LARGEST,
    SOURCE_A,
    SOURCE_B,
    Fidelity,
    SourceRegister,
    parts,
    truncated,
)
from .formats import FLOAT32, FORMATS, NumberFormat
from .rounding import BLOCK, ROUNDING_RULES, Blocks, decode, encode, rounded

__all__ = [
    "BLOCK",
    "FIDELITIES",
    "FLOAT32",
    "FORMATS",
    "FULL",
    "LARGEST",
    "ROUNDING_RULES",
    "SOURCE_A",
    "SOURCE_B",
    "Blocks",
    "Fidelity",
    "NumberFormat",
    "SourceRegister",
    "decode",
    "encode",
    "parts",
    "rounded",
    "truncated",
]
