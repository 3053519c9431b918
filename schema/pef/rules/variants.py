"""Programs that run while some argins are zero: what they may leave out, and what stands in."""

from __future__ import annotations

from collections.abc import Iterator

from pef.program import Program, Section, Variant
from pef.states import ARGIN_VARIANTS


def conditions(program: Program) -> Iterator[str]:
    """Programs depend on argins, on none in two ways, and some program fits whatever they are."""
    argins = {argin.symbol for argin in program.argins}
    for section in program.sections:
        who = f"section '{section.name}'"
        for variant in filter(_depends, section.variants):
            asked = {*variant.zeros, *variant.nonzeros}
            for symbol in sorted(asked - argins):
                name = program.symbols[symbol].name
                yield f"{who} chooses a program by '{name}', which is no argin"
            for symbol in sorted({*variant.zeros} & {*variant.nonzeros}):
                name = program.symbols[symbol].name
                yield f"{who} has a program for '{name}' being zero and not"
            if ARGIN_VARIANTS not in program.requires.features:
                yield f"{who} chooses a program by argins, and the feature is not required"
        if section.variants and all(map(_depends, section.variants)):
            yield f"{who} has no program that fits whatever argins are"


def absent_ports(program: Program) -> Iterator[str]:
    """Only programs that argins choose lack ports: inputs, and outputs that stay as they are."""
    for section in program.sections:
        updated = {target for _, target in section.in_place}
        for variant in section.variants:
            yield from _absent(program, section, variant, updated)


def _absent(
    program: Program, section: Section, variant: Variant, updated: set[int]
) -> Iterator[str]:
    formal = program.programs[variant.program]
    who = f"program {variant.program} of section '{section.name}'"
    if not all((*formal.inputs, *formal.outputs)) and not _depends(variant):
        yield f"{who} lacks inputs or outputs, and runs whatever argins are"
    for position, name in enumerate(formal.outputs):
        if not name and position not in updated:
            output = program.symbols[section.outputs[position]].name
            yield f"{who} does not make '{output}', which nothing else has made"


def _depends(variant: Variant) -> bool:
    return bool(variant.zeros or variant.nonzeros)


RULES = (conditions, absent_ports)
