"""What only people and tools read, and content that the runtime checks itself when it uses it."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose, isfinite
from operator import attrgetter
from struct import Struct

from pef import dtypes
from pef.defaults import decode
from pef.errors import PefError
from pef.outside import outside_references
from pef.program import Program
from pef.symbols import PlacementReason, Symbol

_TERMS = attrgetter("launch", "fill", "held", "compute", "streams", "link")
_ESTIMATED = attrgetter(
    "latency", "flops", "pcus", "pmus", "sram", "bytes_in", "bytes_out", "bytes_weights"
)


def estimates(program: Program) -> Iterator[str]:
    """Estimates are finite and not negative, and terms of a latency add up to it."""
    for section in program.sections:
        found = section.estimate
        terms = _TERMS(found)
        if not all(isfinite(value) and value >= 0 for value in (*_ESTIMATED(found), *terms)):
            yield f"section '{section.name}' has an impossible estimate: {found}"
            continue
        total = found.launch + found.fill + found.held + max(found.compute, found.streams)
        if any(terms) and not isclose(total + found.link, found.latency, rel_tol=1e-9):
            yield (
                f"section '{section.name}' is said to take {found.latency:g} s, but the terms of "
                f"that add up to {total + found.link:g} s"
            )


def operator_shares(program: Program) -> Iterator[str]:
    """Work and units of operators add up to those of their section, where a file has them."""
    for section in program.sections:
        operators = [op for group in section.groups for op in group.operators]
        for what in ("flops", "pcus"):
            parts = [getattr(op, what) for op in operators]
            whole = getattr(section.estimate, what)
            if any(parts) and sum(parts) != whole:
                yield (
                    f"section '{section.name}' is said to take {whole} {what}, its operators "
                    f"{sum(parts)}"
                )


def declared_types(program: Program) -> Iterator[str]:
    """The types in which a model has what the host has in more bits are such, or 0."""
    for symbol in (symbol for symbol in program.symbols if symbol.declared):
        who = f"symbol '{symbol.name}'"
        kind, own = (dtypes.BY_NUMBER.get(dtype) for dtype in (symbol.declared, symbol.dtype))
        if kind is None:
            yield f"{who} has the unknown element type {symbol.declared} in its model"
        elif own is None or not 0 < kind.bits < own.bits:
            yield f"{who} has {kind.name} in its model, which takes no fewer bits than here"
    for section in program.sections:
        for op in (op for group in section.groups for op in group.operators):
            unknown = [dtype for dtype in op.declared if dtype and dtype not in dtypes.BY_NUMBER]
            if unknown:
                yield f"operator '{op.name}' makes the unknown element type {unknown[0]}"


def device_numbers(program: Program) -> Iterator[str]:
    """Numbers of the device are finite, and each is there once."""
    seen: set[str] = set()
    for each in program.device:
        if each.name in seen:
            yield f"the number '{each.name}' of the device is there twice"
        seen.add(each.name)
        if not isfinite(each.value) or each.value < 0:
            yield f"the number '{each.name}' of the device is {each.value}"


def placement_costs(program: Program) -> Iterator[str]:
    """What regions cost is finite, and told only of what was placed by cost."""
    for index, place in enumerate(program.allocations):
        if not isfinite(place.cost):
            yield f"allocation {index} has the cost {place.cost}"
        if place.cost and place.reason is not PlacementReason.COST:
            yield f"allocation {index} has a cost, but its reason is {place.reason.name}"
    for graph in program.graphs:
        if not (isfinite(graph.policy_latency) and graph.policy_latency >= 0):
            yield f"graph '{graph.name}' has the policy latency {graph.policy_latency}"


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


_DOUBLE = Struct("<d")


def defaults(program: Program) -> Iterator[str]:
    """The default of an input whose size only a run tells is a tensor that fits the input."""
    for symbol in program.symbols:
        is_tensor = dtypes.parse(symbol.type) == symbol.dtype
        if symbol.data is None or not is_tensor or _is_sized(symbol):
            continue
        content = program.segments[symbol.data.segment].content(symbol.data)
        try:
            decode(memoryview(content), symbol)
        except PefError as error:
            yield str(error)


def argin_contents(program: Program) -> Iterator[str]:
    """The content of an argin is its default."""
    for argin in program.argins:
        symbol = program.symbols[argin.symbol]
        if symbol.data is None or symbol.dtype != dtypes.DOUBLE or symbol.data.size != _DOUBLE.size:
            continue  # the fault of the rules of training, if it is one
        (found,) = _DOUBLE.unpack(program.segments[symbol.data.segment].content(symbol.data))
        if found != argin.default:
            yield f"argin '{argin.name}' has the default {argin.default}, its content is {found}"


def _is_sized(symbol: Symbol) -> bool:
    return dtypes.static_nbytes(symbol.dtype, symbol.shape) is not None


def self_contained(program: Program) -> Iterator[str]:
    """No program, variants included, refers to a file."""
    for index, item in enumerate(program.programs):
        graph = program.segments[item.graph.segment].content(item.graph)
        for request in outside_references(memoryview(graph)):
            yield f"program {index} {request}, which no program may"


RULES = (
    estimates,
    operator_shares,
    declared_types,
    device_numbers,
    placement_costs,
    argin_defaults,
    requirements,
    origins,
    operator_nodes,
    json_texts,
    defaults,
    argin_contents,
    self_contained,
)
