"""A `Program` as the tree of columns that a PEF stores, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import program as p
from . import symbols
from .columns import (
    Column,
    Enums,
    Flags,
    Lists,
    Numbers,
    OptionalIndices,
    Pairs,
    Pool,
    Rows,
    Shapes,
    Texts,
    array,
    row_count,
    table,
)
from .container import DIGEST_SIZE, DataRef, Segment, leaves
from .costs import DeviceNumber, Estimate
from .errors import PefError
from .structure import Tree

_TEXT = Texts()
_U32 = Numbers("<u4")
_U64 = Numbers("<u8")
_F64 = Numbers("<f8")
_INDICES = Lists(_U32, "item")
_TEXTS = Lists(_TEXT, "item")
_DATA_REF = {"segment": _U32, "offset": _U64, "size": _U64}
_PORTS = Lists(Rows(p.Port, {"name": _TEXT, "symbol": _U32, "gradient": OptionalIndices()}))
_OPERATOR = Rows(
    p.Operator,
    {
        "name": _TEXT,
        "op_type": _TEXT,
        "node": _U32,
        "flops": _U64,
        "pcus": _U64,
        "declared": _INDICES,
    },
)

_ESTIMATE = Rows(
    Estimate,
    {
        "latency": _F64,
        "flops": _U64,
        "pcus": _U64,
        "pmus": _U64,
        "sram": _U64,
        "bytes_in": _U64,
        "bytes_out": _U64,
        "bytes_weights": _U64,
        "limited_by": _TEXT,
        "launch": _F64,
        "fill": _F64,
        "held": _F64,
        "compute": _F64,
        "streams": _F64,
        "link": _F64,
    },
)
_PRODUCER = Rows(
    p.Producer,
    {
        "tool": _TEXT,
        "version": _TEXT,
        "options": _TEXT,
        "source": _TEXT,
        "source_hash": _TEXT,
        "libraries": Lists(Pairs(_TEXT, _TEXT)),
    },
)
_REQUIREMENTS = Rows(p.Requirements, {"opsets": Lists(Pairs(_TEXT, _U32)), "features": _TEXTS})
_REGION = Rows(
    symbols.Region,
    {
        "kind": Enums(symbols.RegionKind),
        "capacity": _U64,
        "used": _U64,
        "persistent": _U64,
        "peak_live": _U64,
        "bandwidth": _F64,
    },
)
_ALLOCATION = Rows(
    symbols.Allocation,
    {
        "region": Enums(symbols.RegionKind),
        "address": _U64,
        "size": _U64,
        "name": _TEXT,
        "spilled": Flags(),
        "shared": Flags(),
        "reason": Enums(symbols.PlacementReason),
        "cost": _F64,
    },
)
_SYMBOL = Rows(
    symbols.Symbol,
    {
        "name": _TEXT,
        "kind": Enums(symbols.SymbolKind),
        "dtype": Numbers("<u1"),
        "shape": Shapes(),
        "type": _TEXT,
        "allocation": OptionalIndices(),
        "offset": _U64,
        "size": _U64,
        "first_call": Numbers("<i4"),
        "last_call": Numbers("<i4"),
        "data": Rows(DataRef, _DATA_REF, optional=True),
        "origins": _TEXTS,
        "duration": Enums(symbols.Duration),
        "parameter": OptionalIndices(),
        "pack": OptionalIndices(),
        "declared": Numbers("<u1"),
    },
)
_PROGRAM = Rows(
    p.SectionProgram,
    {
        "graph": Rows(DataRef, _DATA_REF),
        "inputs": _TEXTS,
        "weights": _TEXTS,
        "outputs": _TEXTS,
        "call_form": Enums(p.CallForm),
        "requires": _TEXTS,
    },
)
_VARIANT = Rows(p.Variant, {"program": _U32, "zeros": _INDICES, "nonzeros": _INDICES})
_SECTION = Rows(
    p.Section,
    {
        "name": _TEXT,
        "type": Enums(p.SectionType),
        "variants": Lists(_VARIANT),
        "inputs": _INDICES,
        "weights": _INDICES,
        "outputs": _INDICES,
        "groups": Lists(Rows(p.FusionGroup, {"name": _TEXT, "operators": Lists(_OPERATOR)})),
        "estimate": _ESTIMATE,
        "in_place": Lists(Pairs(_U32, _U32)),
    },
)
_GRAPH = Rows(
    p.NamedGraph,
    {
        "name": _TEXT,
        "inputs": _PORTS,
        "outputs": _PORTS,
        "first_call": _U32,
        "calls": _U32,
        "model": _TEXT,
        "role": Enums(p.GraphRole),
        "policy_latency": _F64,
        "chip_calls": _INDICES,
        "stage_calls": _INDICES,
    },
)
_ARGIN = Rows(
    p.Argin,
    {"name": _TEXT, "symbol": _U32, "default": _F64, "group": _TEXT, "option": _TEXT},
)
_HOST_KERNEL = Rows(
    p.HostKernel,
    {"kind": _TEXT, "section": _U32, "inputs": _INDICES, "outputs": _INDICES, "parameters": _TEXT},
)
_DEVICE = Rows(
    DeviceNumber,
    {"name": _TEXT, "value": _F64, "unit": _TEXT, "origin": _TEXT, "source": _TEXT},
)

# The fields of `Program` that are one object, stored as one row.
SINGLE: dict[str, Column] = {"producer": _PRODUCER, "requires": _REQUIREMENTS, "arch": _TEXT}
# Those that are tuples.
MANY: dict[str, Column] = {
    "regions": _REGION,
    "allocations": _ALLOCATION,
    "symbols": _SYMBOL,
    "programs": _PROGRAM,
    "sections": _SECTION,
    "schedule": _U32,
    "graphs": _GRAPH,
    "argins": _ARGIN,
    "host_kernels": _HOST_KERNEL,
    "aliases": Rows(p.Alias, {"name": _TEXT, "symbol": _U32, "api": _TEXT}),
    "warnings": _TEXT,
    "device": _DEVICE,
}


class StoredSegment(NamedTuple):
    """Where a segment lies: `offset` from the segment base; `digests` of all leaves, joined."""

    name: str
    offset: int
    size: int
    digests: bytes


def encode(program: p.Program, segments: tuple[StoredSegment, ...]) -> Tree:
    """The columns of a program. Raises `PefError` for what no column can hold."""
    pool = Pool()
    tree: Tree = {}
    for name, column in (SINGLE | MANY).items():
        value = getattr(program, name)
        try:
            tree[name] = column.encode([value] if name in SINGLE else value, pool)
        except OverflowError as error:
            raise PefError(f"its {name} hold a number out of range: {error}") from None
    tree["segments"] = _encode_segments(segments, pool)
    try:
        tree["texts"] = pool.encode()
    except UnicodeEncodeError as error:
        raise PefError(f"{error.object!r} is no valid text: {error.reason}") from None
    return tree


def decode(tree: Tree, texts: list[str], segments: tuple[Segment, ...]) -> p.Program:
    """The program of a tree; raises `PefError` if its columns contradict each other."""
    fields: dict[str, Any] = {"segments": segments}
    for name, column in SINGLE.items():
        (fields[name],) = column.decode(tree[name], 1, texts)
    for name, column in MANY.items():
        if name in tree:  # older files lack what was appended since
            node = tree[name]
            fields[name] = tuple(column.decode(node, row_count(node), texts))
    return p.Program(**fields)


def decode_requirements(tree: Tree, texts: list[str]) -> p.Requirements:
    """Only what the program requires, to be looked at first."""
    (found,) = _REQUIREMENTS.decode(table(tree, "requires"), 1, texts)
    assert isinstance(found, p.Requirements)
    return found


def _encode_segments(segments: tuple[StoredSegment, ...], pool: Pool) -> Tree:
    digests = b"".join(segment.digests for segment in segments)
    return {
        "name": _TEXT.encode([segment.name for segment in segments], pool),
        "offset": _U64.encode([segment.offset for segment in segments], pool),
        "size": _U64.encode([segment.size for segment in segments], pool),
        "digest": np.frombuffer(digests, "<u1"),
    }


def decode_segments(tree: Tree, texts: list[str]) -> tuple[StoredSegment, ...]:
    """The segment table; raises `PefError` if the digests are miscounted."""
    node = table(tree, "segments")
    rows = row_count(node)
    names = _TEXT.decode(array(node, "name"), rows, texts)
    offsets = _U64.decode(array(node, "offset"), rows, texts)
    sizes = _U64.decode(array(node, "size"), rows, texts)
    digests = array(node, "digest").tobytes()
    counts = [leaves(size) * DIGEST_SIZE for size in sizes]
    if sum(counts) != len(digests):
        raise PefError("is damaged: the digests of its segments are miscounted")
    segments, start = [], 0
    for name, offset, size, count in zip(names, offsets, sizes, counts, strict=True):
        segments.append(StoredSegment(name, offset, size, digests[start : start + count]))
        start += count
    return tuple(segments)
