"""Training programs made by hand: sections as ONNX nodes, states, argins, masks, two graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import pef
from pef import dtypes
from pef.older import stated

Array = np.ndarray[Any, np.dtype[Any]]
Kind = pef.SymbolKind
OPSET = 23
STATES = (Kind.WEIGHT, Kind.BUFFER, Kind.OPT_STATE, Kind.ARGIN)


@dataclass(frozen=True)
class Tensor:
    """A symbol; `data` is its content in the file, `forever` makes a gradient a state."""

    kind: pef.SymbolKind
    shape: tuple[int, ...]
    dtype: type = np.float32
    data: Array | None = None
    forever: bool = False
    inside: tuple[str, int] | None = None
    """The pack it lies in, and at which offset in bytes."""

    @property
    def persistent(self) -> bool:
        return self.forever or self.kind in STATES

    @property
    def number(self) -> int:
        found = dtypes.from_numpy(np.dtype(self.dtype))
        assert found is not None
        return found

    @property
    def size(self) -> int:
        return dtypes.nbytes(self.number, self.shape)


@dataclass(frozen=True)
class Part:
    """A section: nodes in terms of symbol names, and what it writes: symbol -> name in `nodes`."""

    name: str
    type: pef.SectionType
    nodes: Sequence[onnx.NodeProto]
    inputs: Sequence[str]
    outputs: Mapping[str, str]
    graph: str = "train"
    constants: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Mask:
    """A host kernel that makes the symbol `mask` before the section called `section` runs."""

    section: str
    mask: str
    rate: str
    seed: str
    site: int = 0


@dataclass(frozen=True)
class Spec:
    """A training program. `addresses` overrides the places of transient symbols."""

    parts: Sequence[Part]
    tensors: Mapping[str, Tensor]
    inputs: Mapping[str, Mapping[str, str]]
    outputs: Mapping[str, Mapping[str, str]]
    argins: Mapping[str, str] = field(default_factory=dict)
    masks: Sequence[Mask] = ()
    addresses: Mapping[str, int] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)

    def program(self) -> pef.Program:
        return _Builder(self).program()


class _Builder:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.index = {name: number for number, name in enumerate(spec.tensors)}
        self.allocations: list[pef.Allocation] = []
        self.homes: dict[str, tuple[int, int]] = {}
        self.top = 0

    def program(self) -> pef.Program:
        spec = self.spec
        order = sorted(spec.tensors, key=lambda name: not spec.tensors[name].persistent)
        for name in order:
            if spec.tensors[name].inside is None:
                self._allocate(name)
                if spec.tensors[name].persistent:
                    persistent = self.top
        data: list[pef.Piece] = []
        symbols = tuple(self._symbol(name, data) for name in spec.tensors)
        graphs = [_formal_graph(part, spec.tensors) for part in spec.parts]
        starts = np.cumsum([0, *(-(-len(graph) // 8) * 8 for graph in graphs)])
        pieces = tuple(
            pef.Piece(int(start), graph) for start, graph in zip(starts[:-1], graphs, strict=True)
        )
        with_program = [part for part in spec.parts if part.type is not pef.SectionType.REDUCE]
        program = pef.Program(
            producer=pef.Producer("test", "0", "{}"),
            requires=pef.Requirements((("", OPSET),), ("training",)),
            arch="sn40l",
            regions=(pef.Region(pef.RegionKind.HBM, 1 << 30, self.top, persistent, self.top),),
            allocations=tuple(self.allocations),
            symbols=symbols,
            programs=tuple(
                _section_program(part, pef.DataRef(0, int(start), len(graph)))
                for part, start, graph in zip(spec.parts, starts[:-1], graphs, strict=True)
                if part in with_program
            ),
            sections=tuple(self._section(part, with_program) for part in spec.parts),
            schedule=tuple(range(len(spec.parts))),
            graphs=self._graphs(),
            segments=(
                pef.Segment("programs", int(starts[-1]), pieces),
                pef.Segment("weights", _end(data), tuple(data)),
            ),
            argins=tuple(
                pef.Argin(name, self.index[symbol], float(spec.tensors[symbol].data))
                for name, symbol in spec.argins.items()
            ),
            host_kernels=tuple(self._kernel(mask) for mask in spec.masks),
            aliases=tuple(
                pef.Alias(name, self.index[symbol]) for name, symbol in spec.aliases.items()
            ),
        )
        return stated(program, (0, 3))

    def _allocate(self, name: str) -> None:
        address = self.spec.addresses.get(name, self.top)
        size = max(-(-self.spec.tensors[name].size // 64) * 64, 64)
        self.homes[name] = (len(self.allocations), 0)
        self.allocations.append(pef.Allocation(pef.RegionKind.HBM, address, size, name))
        self.top += size  # also where it lies elsewhere, so that the others stay where they are

    def _symbol(self, name: str, data: list[pef.Piece]) -> pef.Symbol:
        tensor = self.spec.tensors[name]
        home = (name, 0) if tensor.inside is None else tensor.inside
        first, last = self._lifetime(name)
        ref = None
        if tensor.data is not None:
            content = np.asarray(tensor.data, tensor.dtype).tobytes()
            ref = pef.DataRef(1, -(-_end(data) // 64) * 64, len(content))
            data.append(pef.Piece(ref.offset, content))
        return pef.Symbol(
            name,
            tensor.kind,
            tensor.number,
            tensor.shape,
            dtypes.spelling(tensor.number),
            allocation=self.homes[home[0]][0],
            offset=home[1],
            size=tensor.size,
            first_call=first,
            last_call=last,
            data=ref,
        )

    def _lifetime(self, name: str) -> tuple[int, int]:
        parts, end = self.spec.parts, len(self.spec.parts)
        if self.spec.tensors[name].persistent:
            return -1, end
        made = [call for call, part in enumerate(parts) if name in part.outputs]
        made += [
            call
            for call, part in enumerate(parts)
            for mask in self.spec.masks
            if mask.section == part.name and mask.mask == name
        ]
        inner = [
            self._lifetime(other)[0]
            for other, tensor in self.spec.tensors.items()
            if tensor.inside and tensor.inside[0] == name
        ]
        read = [call for call, part in enumerate(parts) if name in part.inputs]
        first = min([*made, *inner], default=-1)
        returned = any(name in ports.values() for ports in self.spec.outputs.values())
        return first, end if returned else max([first, *read])

    def _section(self, part: Part, with_program: Sequence[Part]) -> pef.Section:
        inputs, outputs = tuple(part.inputs), tuple(part.outputs)
        variants = (pef.Variant(with_program.index(part)),) if part in with_program else ()
        return pef.Section(
            name=part.name,
            type=part.type,
            variants=variants,
            inputs=tuple(self.index[name] for name in inputs),
            weights=(),
            outputs=tuple(self.index[name] for name in outputs),
            groups=(),
            estimate=pef.Estimate(),
            in_place=tuple(
                (inputs.index(name), position)
                for position, name in enumerate(outputs)
                if name in inputs
            ),
        )

    def _graphs(self) -> tuple[pef.NamedGraph, ...]:
        graphs = []
        for name in dict.fromkeys(part.graph for part in self.spec.parts):
            calls = [call for call, part in enumerate(self.spec.parts) if part.graph == name]
            ports = [
                tuple(pef.Port(port, self.index[symbol]) for port, symbol in way[name].items())
                for way in (self.spec.inputs, self.spec.outputs)
            ]
            graphs.append(pef.NamedGraph(name, *ports, calls[0], len(calls)))
        return tuple(graphs)

    def _kernel(self, mask: Mask) -> pef.HostKernel:
        names = [part.name for part in self.spec.parts]
        return pef.HostKernel(
            "dropout_mask",
            names.index(mask.section),
            (self.index[mask.rate], self.index[mask.seed]),
            (self.index[mask.mask],),
            f'{{"site": {mask.site}}}',
        )


def _end(pieces: Sequence[pef.Piece]) -> int:
    return pieces[-1].offset + len(pieces[-1].data) if pieces else 0


def _formal_graph(part: Part, tensors: Mapping[str, Tensor]) -> bytes:
    """The section's graph, with the formal names i0, ... and o0, ..."""
    formal = {name: f"i{number}" for number, name in enumerate(part.inputs)}
    formal |= {name: f"o{number}" for number, name in enumerate(part.outputs.values())}
    graph = onnx.GraphProto(name=part.name)
    for node in part.nodes:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [formal.get(name, name) for name in node.input]
        copy.output[:] = [formal.get(name, name) for name in node.output]
    for name, array in part.constants.items():
        graph.initializer.append(numpy_helper.from_array(array, name))
    for target, symbols, letter in (
        (graph.input, part.inputs, "i"),
        (graph.output, part.outputs, "o"),
    ):
        for number, name in enumerate(symbols):
            tensor = tensors[name]
            proto = helper.make_tensor_type_proto(tensor.number, tensor.shape)
            target.append(helper.make_value_info(f"{letter}{number}", proto))
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


def _section_program(part: Part, graph: pef.DataRef) -> pef.SectionProgram:
    return pef.SectionProgram(
        graph=graph,
        inputs=tuple(f"i{number}" for number in range(len(part.inputs))),
        weights=(),
        outputs=tuple(f"o{number}" for number in range(len(part.outputs))),
    )


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)
