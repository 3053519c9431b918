"""The PEF: an executable file of sections, planned memory and weights.

>>> import pef
>>> with pef.open("model.pef") as file:
...     print(file.program.sections)
"""

from __future__ import annotations

import sys

from . import dtypes
from .arguments import tell
from .container import FORMAT_VERSION, DataRef, Piece, Segment
from .costs import DeviceNumber, Estimate
from .errors import PefError
from .program import (
    Alias,
    Argin,
    CallForm,
    FusionGroup,
    GraphRole,
    HostKernel,
    NamedGraph,
    Operator,
    Port,
    Producer,
    Program,
    Requirements,
    Section,
    SectionProgram,
    SectionType,
    Variant,
)
from .reader import PefFile, open, verify
from .rules import check_program
from .symbols import Allocation, Duration, PlacementReason, Region, RegionKind, Symbol, SymbolKind
from .writer import write

__all__ = [
    "FORMAT_VERSION",
    "Alias",
    "Allocation",
    "Argin",
    "CallForm",
    "DataRef",
    "DeviceNumber",
    "Duration",
    "Estimate",
    "FusionGroup",
    "GraphRole",
    "HostKernel",
    "NamedGraph",
    "Operator",
    "PefError",
    "PefFile",
    "Piece",
    "PlacementReason",
    "Port",
    "Producer",
    "Program",
    "Region",
    "RegionKind",
    "Requirements",
    "Section",
    "SectionProgram",
    "SectionType",
    "Segment",
    "Symbol",
    "SymbolKind",
    "Variant",
    "check_program",
    "dtypes",
    "open",
    "verify",
    "write",
]


def _repr_html_(self: Program) -> str:
    """Return what a notebook shows of a program; reports are loaded when one is asked for."""
    # Imported here: only notebooks ask for it.
    from .report.notebook import program_html

    return program_html(self)


Program._repr_html_ = _repr_html_

tell(sys.modules[__name__], __name__)
