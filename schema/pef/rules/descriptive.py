"""Estimates and other facts that people and tools read."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from operator import attrgetter

from pef.program import Program

_ESTIMATED = attrgetter(
    "latency", "flops", "pcus", "pmus", "sram", "bytes_in", "bytes_out", "bytes_weights"
)


def estimates(program: Program) -> Iterator[str]:
    """Estimates are finite and not negative."""
    for section in program.sections:
        if not all(isfinite(value) and value >= 0 for value in _ESTIMATED(section.estimate)):
            yield f"section '{section.name}' has an impossible estimate: {section.estimate}"


def argin_defaults(program: Program) -> Iterator[str]:
    """The default of an argin is a number."""
    for argin in program.argins:
        if not isfinite(argin.default):
            yield f"argin '{argin.name}' has the default {argin.default}"


def requirements(program: Program) -> Iterator[str]:
    """Opsets are sorted, each domain once, and there is at least version 1 of each."""
    domains = [domain for domain, _ in program.requires.opsets]
    if domains != sorted(set(domains)):
        yield f"the opset domains are not sorted and distinct: {domains}"
    for domain, version in program.requires.opsets:
        if version < 1:
            yield f"opset '{domain}' has version {version}"


def origins(program: Program) -> Iterator[str]:
    """What a symbol was computed from has a name, each once and in order; only data has origins."""
    for symbol in program.symbols:
        if not symbol.origins:
            continue
        if not all(symbol.origins) or list(symbol.origins) != sorted(set(symbol.origins)):
            yield (
                f"the origins of symbol '{symbol.name}' are not names, sorted and distinct: "
                f"{list(symbol.origins)}"
            )
        if symbol.data is None:
            yield f"symbol '{symbol.name}' has origins, but no data that was computed from them"


def operator_nodes(program: Program) -> Iterator[str]:
    """Operators of a section stand for different nodes of its program."""
    for section in program.sections:
        seen: set[int] = set()
        for operator in (op for group in section.groups for op in group.operators):
            who = f"operator '{operator.name}' of section '{section.name}'"
            if operator.node < 0:
                yield f"{who} is said to be node {operator.node} of its program"
            elif operator.node in seen:
                yield f"{who} is node {operator.node} of its program, as another operator is"
            seen.add(operator.node)


def json_texts(program: Program) -> Iterator[str]:
    """The options of the producer and the parameters of host kernels are JSON objects."""
    import json  # not needed to run a program

    texts = {"the producer's options": program.producer.options}
    for index, kernel in enumerate(program.host_kernels):
        texts[f"the parameters of host kernel {index}"] = kernel.parameters
    for what, text in texts.items():
        try:
            if isinstance(json.loads(text), dict):
                continue
        except (json.JSONDecodeError, RecursionError):
            pass
        yield f"{what} are no JSON object"


RULES = (estimates, argin_defaults, requirements, origins, operator_nodes, json_texts)
