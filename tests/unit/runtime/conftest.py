"""Hand-made programs: sections written as ONNX nodes, bound to symbols, without the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import pef
from pef import dtypes
from pef.older import stated

FLOAT = onnx.TensorProto.FLOAT
OPSET = 21


@dataclass(frozen=True)
class Value:
    """A symbol: its element type and shape, or another type than a tensor's."""

    shape: tuple[int | str | None, ...] | None = (4,)
    dtype: int = FLOAT
    proto: onnx.TypeProto | None = None

    def type_proto(self) -> onnx.TypeProto:
        return self.proto or helper.make_tensor_type_proto(self.dtype, self.shape)

    def spelling(self) -> str:
        if self.proto is None:
            return dtypes.spelling(self.dtype)
        return _spelling(self.proto)

    def nbytes(self) -> int | None:
        sizes = self.shape or ()
        if self.proto is not None or self.shape is None or self.dtype == dtypes.STRING:
            return None
        if not all(isinstance(size, int) for size in sizes):
            return None
        return dtypes.nbytes(self.dtype, [size for size in sizes if isinstance(size, int)])


def _spelling(proto: onnx.TypeProto) -> str:
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return dtypes.spelling(proto.tensor_type.elem_type)
    if kind == "sequence_type":
        return f"seq({_spelling(proto.sequence_type.elem_type)})"
    return f"optional({_spelling(proto.optional_type.elem_type)})"


@dataclass(frozen=True)
class Sec:
    """A section: nodes in terms of symbol names, and what crosses its border."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Sequence[str] = ()
    form: pef.CallForm = pef.CallForm.BOUND
    opset: int = OPSET
    type: pef.SectionType = pef.SectionType.FWD


@dataclass(frozen=True)
class Spec:
    """A program: sections in the order of the schedule, and the symbols they use."""

    sections: Sequence[Sec]
    values: Mapping[str, Value]
    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    defaults: Mapping[str, np.ndarray] = field(default_factory=dict)
    addresses: Mapping[str, int] = field(default_factory=dict)
    weight_types: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def program(self) -> pef.Program:
        return _build(self)


def _formal_graph(sec: Sec, values: Mapping[str, Value]) -> bytes:
    """The section's graph with the formal names i0, w0, o0."""
    formal = {name: f"i{index}" for index, name in enumerate(sec.inputs)}
    formal |= {name: f"w{index}" for index, name in enumerate(sec.weights)}
    formal |= {name: f"o{index}" for index, name in enumerate(sec.outputs)}
    graph = onnx.GraphProto(name="section")
    for node in sec.nodes:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        _rename(copy, formal)
        graph.node.append(copy)
    for names, target in ((sec.inputs, graph.input), (sec.outputs, graph.output)):
        for name in names:
            target.append(helper.make_value_info(formal[name], values[name].type_proto()))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", sec.opset)], ir_version=10
    )
    return model.SerializeToString()


def _rename(node: onnx.NodeProto, formal: Mapping[str, str]) -> None:
    node.input[:] = [formal.get(name, name) for name in node.input]
    node.output[:] = [formal.get(name, name) for name in node.output]
    for attribute in node.attribute:
        if attribute.HasField("g"):
            hidden = {value.name for value in attribute.g.input}
            hidden |= {tensor.name for tensor in attribute.g.initializer}
            hidden |= {name for inner in attribute.g.node for name in inner.output}
            visible = {old: new for old, new in formal.items() if old not in hidden}
            for inner in attribute.g.node:
                _rename(inner, visible)


def _build(spec: Spec) -> pef.Program:
    symbols: list[pef.Symbol] = []
    allocations: list[pef.Allocation] = []
    pieces: list[pef.Piece] = []
    top = 0

    def store(data: bytes) -> pef.DataRef:
        offset = -(-(pieces[-1].offset + len(pieces[-1].data)) // 64) * 64 if pieces else 0
        if data:
            pieces.append(pef.Piece(offset, data))
        return pef.DataRef(1, offset, len(data))

    for name, array in spec.weights.items():
        stored = dtypes.from_numpy(array.dtype)
        assert stored is not None
        number, shape = spec.weight_types.get(name, (stored, array.shape))
        symbols.append(
            pef.Symbol(
                name,
                pef.SymbolKind.WEIGHT,
                number,
                shape,
                dtypes.spelling(number),
                size=array.nbytes,
                last_call=len(spec.sections),
                data=store(array.tobytes()),
            )
        )
    for name, value in spec.values.items():
        kind = pef.SymbolKind.ACTIVATION
        if name in spec.inputs:
            kind = pef.SymbolKind.INPUT
        elif name in spec.outputs:
            kind = pef.SymbolKind.OUTPUT
        size = value.nbytes()
        allocation = None
        if size is not None:
            address = spec.addresses.get(name, top)
            padded = -(-max(size, 1) // 64) * 64
            allocations.append(pef.Allocation(pef.RegionKind.HBM, address, padded))
            allocation = len(allocations) - 1
            top = max(top, address + padded)
        default = spec.defaults.get(name)
        first, last = _lifetime(spec, name)
        symbols.append(
            pef.Symbol(
                name,
                kind,
                0 if value.proto is not None else value.dtype,
                value.shape,
                value.spelling(),
                allocation=allocation,
                size=size or 0,
                first_call=first,
                last_call=last,
                data=None if default is None else store(default.tobytes()),
            )
        )
    index = {symbol.name: number for number, symbol in enumerate(symbols)}
    graphs = [_formal_graph(sec, spec.values) for sec in spec.sections]
    programs, graph_pieces, offset = [], [], 0
    for sec, graph in zip(spec.sections, graphs, strict=True):
        graph_pieces.append(pef.Piece(offset, graph))
        programs.append(
            pef.SectionProgram(
                graph=pef.DataRef(0, offset, len(graph)),
                inputs=tuple(f"i{n}" for n in range(len(sec.inputs))),
                weights=tuple(f"w{n}" for n in range(len(sec.weights))),
                outputs=tuple(f"o{n}" for n in range(len(sec.outputs))),
                call_form=sec.form,
            )
        )
        offset += -(-len(graph) // 8) * 8
    end = pieces[-1].offset + len(pieces[-1].data) if pieces else 0
    last = graph_pieces[-1].offset + len(graph_pieces[-1].data) if graph_pieces else 0
    program = pef.Program(
        producer=pef.Producer("test", "0", "{}"),
        requires=pef.Requirements(opsets=(("", OPSET),)),
        arch="sn40l",
        regions=(pef.Region(pef.RegionKind.HBM, max(top, 1 << 30), top, 0, top),),
        allocations=tuple(allocations),
        symbols=tuple(symbols),
        programs=tuple(programs),
        sections=tuple(
            pef.Section(
                name=f"s{number}",
                type=sec.type,
                variants=(pef.Variant(number),),
                inputs=tuple(index[name] for name in sec.inputs),
                weights=tuple(index[name] for name in sec.weights),
                outputs=tuple(index[name] for name in sec.outputs),
                groups=(),
                estimate=pef.Estimate(),
            )
            for number, sec in enumerate(spec.sections)
        ),
        schedule=tuple(range(len(spec.sections))),
        graphs=(
            pef.NamedGraph(
                "main",
                tuple(pef.Port(name, index[name]) for name in spec.inputs),
                tuple(pef.Port(name, index[name]) for name in spec.outputs),
                0,
                len(spec.sections),
            ),
        ),
        segments=(
            pef.Segment("programs", last, tuple(graph_pieces)),
            pef.Segment("weights", end, tuple(pieces)),
        ),
    )
    return stated(program, (0, 3))


def _lifetime(spec: Spec, name: str) -> tuple[int, int]:
    made = [n for n, sec in enumerate(spec.sections) if name in sec.outputs]
    read = [n for n, sec in enumerate(spec.sections) if name in sec.inputs]
    first = made[0] if made and name not in spec.inputs else -1
    return first, len(spec.sections) if name in spec.outputs else max([first, *read])


def chain_spec() -> Spec:
    """y = relu(x @ w) @ w, in two sections that share a weight of 16 KB, and z = relu(x @ w)."""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    node = helper.make_node
    return Spec(
        sections=[
            Sec(
                [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["h"])],
                ["x"],
                ["h"],
                ["w"],
            ),
            Sec([node("MatMul", ["h", "w"], ["y"])], ["h"], ["y"], ["w"]),
        ],
        values={name: Value((2, 64)) for name in ("x", "h", "y")},
        inputs=["x"],
        outputs=["y"],
        weights={"w": weight},
    )


def chain_reference(x: np.ndarray, spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x @ spec.weights["w"], 0)
    return hidden, hidden @ spec.weights["w"]


@pytest.fixture
def chain() -> Spec:
    return chain_spec()


@pytest.fixture
def chain_pef(chain: Spec, tmp_path: Path) -> Path:
    path = tmp_path / "chain.pef"
    chain.program().save(path)
    return path


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)


@pytest.fixture
def reference() -> Callable[[np.ndarray, Spec], tuple[np.ndarray, np.ndarray]]:
    return chain_reference


@pytest.fixture
def spec_type() -> type[Spec]:
    return Spec


@pytest.fixture
def sec_type() -> type[Sec]:
    return Sec


@pytest.fixture
def value_type() -> type[Value]:
    return Value


__all__ = ["Sec", "Spec", "Value", "replace"]
