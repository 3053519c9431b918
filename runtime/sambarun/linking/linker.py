"""Linking: adjacent sections of a schedule become one graph, so that sectioning costs no speed.

Every section's graph has formal names of its own. Linking renames them to names that are unique in
the result: what is bound to a symbol takes the symbol's name, everything else a fresh one. Names
inside subgraphs follow ONNX's scoping: what a subgraph defines is renamed there, what it captures
takes the name it has outside.

All this happens on the protobuf wire format; nothing but the names is decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pef import onnx_fields as onnx
from pef.errors import PefError
from pef.wire import bytes_field, content, fields, int_field, number, text, text_field
from sambarun.errors import RunError

from .nodes import results_soon
from .reorders import reordered_once

_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A section to link: its graph, and the symbol behind each formal name.

    `inputs` and `weights` map formal names to symbol names, `outputs` likewise; a formal name that
    is both an input and an output may stand for two symbols.
    """

    label: str
    graph: memoryview
    inputs: Mapping[str, str]
    weights: Mapping[str, str]
    outputs: Mapping[str, str]


def link(parts: Sequence[Part], outputs: Sequence[str]) -> bytes:
    """Return one serialised ModelProto that runs `parts` in order.

    Its inputs are the symbols that `parts` read and none of them produces, in order of first use;
    its outputs are the symbols named in `outputs`, in that order. Weights keep their symbols' names
    and stay undefined, as in the parts. What the parts declare of values between them is dropped:
    onnxruntime infers it, and refuses graphs whose declarations say more than they should.

    Raises `RunError` where a graph is malformed, or where the parts need different versions of one
    operator set.
    """
    with _malformed():
        heads = [_Head.read(part.graph) for part in parts]
        names = _LinkedNames({name for part in parts for name in _symbol_names(part)})
        result = _Result()
        for part, head in zip(parts, heads, strict=True):
            _add_part(part, head, names, result)
        return _model(heads, result, outputs)


def opset_imports(graph: memoryview) -> dict[str, int]:
    """Return the operator sets that a serialised ModelProto imports, version by domain.

    Raises `RunError` where it is malformed.
    """
    with _malformed():
        return _Head.read(graph).imports


@contextmanager
def _malformed() -> Iterator[None]:
    """Raise `RunError` where a graph is not in the wire format."""
    try:
        yield
    except PefError as error:
        raise RunError(str(error)) from error


def _symbol_names(part: Part) -> Iterable[str]:
    yield from part.inputs.values()
    yield from part.weights.values()
    yield from part.outputs.values()


@dataclass(slots=True)
class _Head:
    """A ModelProto taken apart."""

    ir_version: int = 0
    imports: dict[str, int] = field(default_factory=dict)
    graph: memoryview = field(default_factory=lambda: memoryview(b""))

    @classmethod
    def read(cls, model: memoryview) -> _Head:
        head = cls()
        for key, value, _ in fields(model):
            if key == onnx.MODEL_IR_VERSION:
                head.ir_version = number(value)
            elif key == onnx.MODEL_OPSET_IMPORT:
                domain, version = _opset(content(value))
                head.imports[domain] = version
            elif key == onnx.MODEL_GRAPH:
                head.graph = content(value)
            elif key == onnx.MODEL_FUNCTIONS:
                raise RunError("The program's graph is malformed: it holds local functions.")
        return head


def _opset(entry: memoryview) -> tuple[str, int]:
    domain, version = "", 0
    for key, value, _ in fields(entry):
        if key == onnx.OPSET_DOMAIN:
            domain = text(value)
        elif key == onnx.OPSET_VERSION:
            version = number(value)
    return "" if domain == "ai.onnx" else domain, version


class _LinkedNames:
    """Hands out names that nothing else in the linked graph has."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def fresh(self, base: str) -> str:
        """Return `base`, or `base` with a number where that is taken."""
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}~{count}"
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class _Scope:
    """The new names of one graph's values; what it does not define is looked up outside."""

    label: str
    names: dict[str, str]
    outer: _Scope | None = None

    def __getitem__(self, name: str) -> str:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.outer
        raise RunError(f"Section '{self.label}' uses a value '{name}' that nothing defines.")

    def depth(self) -> int:
        """Return how many graphs this one is inside of."""
        return 0 if self.outer is None else self.outer.depth() + 1


@dataclass(slots=True)
class _Result:
    """The pieces of the linked graph, in the order they are found."""

    body: list[bytes | memoryview] = field(default_factory=list)
    inputs: dict[str, bytes] = field(default_factory=dict)
    produced: dict[str, bytes] = field(default_factory=dict)


def _add_part(part: Part, head: _Head, names: _LinkedNames, result: _Result) -> None:
    """Rename one section's graph and add it to `result`."""
    bound = {**part.outputs, **part.weights, **part.inputs, "": ""}
    scope = _scope(head.graph, part.label, names, bound, None)
    inputs: dict[str, memoryview] = {}
    outputs: dict[str, memoryview] = {}
    for key, value, raw in fields(head.graph):
        if key == onnx.GRAPH_INPUT:
            inputs[_value_name(content(value))] = content(value)
        elif key == onnx.GRAPH_OUTPUT:
            outputs[_value_name(content(value))] = content(value)
        elif key != onnx.GRAPH_NAME and key not in onnx.GRAPH_DROPPED:
            result.body.append(_rename_graph_field(key, value, raw, scope, names))
    for formal, symbol in part.inputs.items():
        if symbol not in result.produced:
            info = _with_name(_port(inputs, formal, "input", part), symbol)
            result.inputs.setdefault(symbol, info)
    for formal, symbol in part.outputs.items():
        result.produced[symbol] = _with_name(_port(outputs, formal, "output", part), symbol)
        if scope[formal] != symbol:
            result.body.append(bytes_field(onnx.GRAPH_NODE, _identity(scope[formal], symbol)))


def _port(ports: Mapping[str, memoryview], formal: str, what: str, part: Part) -> memoryview:
    """Return the description of an input or output that `part` must have."""
    if formal not in ports:
        raise RunError(f"Section '{part.label}' has no {what} '{formal}' in its graph.")
    return ports[formal]


def _model(heads: Sequence[_Head], result: _Result, outputs: Sequence[str]) -> bytes:
    """Put the linked model together."""
    kept = {**result.inputs, **result.produced}
    missing = [name for name in outputs if name not in kept]
    if missing:
        raise RunError(f"No linked section produces {', '.join(map(repr, missing))}.")
    graph = [
        *results_soon(reordered_once(result.body, outputs)),
        text_field(onnx.GRAPH_NAME, "linked"),
        *(bytes_field(onnx.GRAPH_INPUT, info) for info in result.inputs.values()),
        *(bytes_field(onnx.GRAPH_OUTPUT, kept[name]) for name in outputs),
    ]
    return b"".join(
        (
            int_field(onnx.MODEL_IR_VERSION, max(head.ir_version for head in heads)),
            *_merged_imports(heads),
            bytes_field(onnx.MODEL_GRAPH, b"".join(graph)),
        )
    )


def _merged_imports(heads: Sequence[_Head]) -> Iterable[bytes]:
    """Yield the operator sets that all parts import."""
    merged: dict[str, int] = {}
    for head in heads:
        for domain, version in head.imports.items():
            if merged.setdefault(domain, version) != version:
                raise RunError(
                    f"Sections that need versions {merged[domain]} and {version} of operator set "
                    f"'{domain or 'ai.onnx'}' cannot be linked."
                )
    for domain, version in sorted(merged.items()):
        entry = text_field(onnx.OPSET_DOMAIN, domain) + int_field(onnx.OPSET_VERSION, version)
        yield bytes_field(onnx.MODEL_OPSET_IMPORT, entry)


def _scope(
    graph: memoryview, label: str, names: _LinkedNames, bound: dict[str, str], outer: _Scope | None
) -> _Scope:
    """Give every name that `graph` itself defines a new one; those in `bound` have theirs."""
    scope = _Scope(label, bound, outer)
    if scope.depth() > _MAX_DEPTH:
        raise RunError(f"Section '{label}' nests subgraphs deeper than {_MAX_DEPTH}.")
    for name in _defined_names(graph):
        if name not in bound:
            bound[name] = names.fresh(f"{label}/{name}")
    return scope


def _defined_names(graph: memoryview) -> Iterable[str]:
    """Yield the names of a graph's inputs, initializers and node outputs."""
    for key, value, _ in fields(graph):
        if key == onnx.GRAPH_NODE:
            for inner, name, _ in fields(content(value)):
                if inner == onnx.NODE_OUTPUT:
                    yield text(name)
        elif key == onnx.GRAPH_INPUT:
            yield _value_name(content(value))
        elif key == onnx.GRAPH_INITIALIZER:
            yield _tensor_name(content(value))
        elif key == onnx.GRAPH_SPARSE_INITIALIZER:
            yield from _sparse_names(content(value))


def _value_name(info: memoryview) -> str:
    return _find_text(info, onnx.VALUE_NAME)


def _tensor_name(tensor: memoryview) -> str:
    return _find_text(tensor, onnx.TENSOR_NAME)


def _sparse_names(tensor: memoryview) -> Iterable[str]:
    for key, value, _ in fields(tensor):
        if key == onnx.SPARSE_VALUES:
            yield _tensor_name(content(value))


def _find_text(message: memoryview, key: int) -> str:
    found = ""
    for field_number, value, _ in fields(message):
        if field_number == key:
            found = text(value)
    return found


def _rename_graph_field(
    key: int, value: int | memoryview, raw: memoryview, scope: _Scope, names: _LinkedNames
) -> bytes | memoryview:
    """Return one field of a graph with new names."""
    if key == onnx.GRAPH_NODE:
        return bytes_field(key, _rename_node(content(value), scope, names))
    if key in onnx.GRAPH_VALUE_FIELDS:
        return bytes_field(key, _rename_value(content(value), scope))
    if key == onnx.GRAPH_INITIALIZER:
        return bytes_field(key, _replace_text(content(value), onnx.TENSOR_NAME, scope))
    if key == onnx.GRAPH_SPARSE_INITIALIZER:
        return bytes_field(key, _rename_sparse(content(value), scope))
    return raw


def _rename_value(info: memoryview, scope: _Scope) -> bytes:
    return _replace_text(info, onnx.VALUE_NAME, scope)


def _with_name(info: memoryview, name: str) -> bytes:
    """Return a ValueInfoProto that describes the same under another name."""
    rest = (raw for key, _, raw in fields(info) if key != onnx.VALUE_NAME)
    return b"".join((text_field(onnx.VALUE_NAME, name), *rest))


def _replace_text(message: memoryview, key: int, scope: _Scope) -> bytes:
    """Return `message` with its string field `key` renamed."""
    return b"".join(
        text_field(key, scope[text(value)]) if found == key else raw
        for found, value, raw in fields(message)
    )


def _rename_sparse(tensor: memoryview, scope: _Scope) -> bytes:
    return b"".join(
        bytes_field(key, _replace_text(content(value), onnx.TENSOR_NAME, scope))
        if key == onnx.SPARSE_VALUES
        else raw
        for key, value, raw in fields(tensor)
    )


def _rename_node(node: memoryview, scope: _Scope, names: _LinkedNames) -> bytes:
    """Return a NodeProto with new names. Its own name is dropped: those may repeat."""
    pieces: list[bytes | memoryview] = []
    for key, value, raw in fields(node):
        if key in onnx.NODE_VALUE_FIELDS:
            pieces.append(text_field(key, scope[text(value)]))
        elif key == onnx.NODE_ATTRIBUTE:
            attribute = _rename_attribute(content(value), scope, names)
            pieces.append(raw if attribute is None else bytes_field(key, attribute))
        elif key != onnx.NODE_NAME:
            pieces.append(raw)
    return b"".join(pieces)


def _rename_attribute(attribute: memoryview, scope: _Scope, names: _LinkedNames) -> bytes | None:
    """Return an AttributeProto with its subgraphs renamed; None if it has none."""
    pieces: list[bytes | memoryview] = []
    found = False
    for key, value, raw in fields(attribute):
        if key in onnx.ATTRIBUTE_GRAPH_FIELDS:
            found = True
            pieces.append(bytes_field(key, _rename_subgraph(content(value), scope, names)))
        else:
            pieces.append(raw)
    return b"".join(pieces) if found else None


def _rename_subgraph(graph: memoryview, outer: _Scope, names: _LinkedNames) -> bytes:
    scope = _scope(graph, outer.label, names, {"": ""}, outer)
    return b"".join(
        _rename_graph_field(key, value, raw, scope, names)
        for key, value, raw in fields(graph)
        if key not in onnx.GRAPH_DROPPED
    )


def _identity(source: str, target: str) -> bytes:
    """Return a node that gives the value `source` a second name."""
    return b"".join(
        (
            text_field(onnx.NODE_INPUT, source),
            text_field(onnx.NODE_OUTPUT, target),
            text_field(onnx.NODE_OP_TYPE, "Identity"),
        )
    )
