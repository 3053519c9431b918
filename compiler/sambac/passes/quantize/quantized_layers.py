"""Layers that can be quantised: products and convolutions of one value with constant weights."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_absent
from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute, static_shape
from sambac.passes.rewriting import constant, has_one_reader, made_by

_MATRIX = 2
_NOTE = "sambac.quantised"
LEAST = 32
"""Fewer factors than this for each number of the result are not worth products of bytes."""

Way = Literal["rows", "two-bytes", "float32"]
"""How a layer is computed, if not as others are: with a scale for each row of its data, with its
data in two bytes, or as it was."""
Ways: TypeAlias = Mapping[str, Way]
"""Those of layers, by name."""
IN_FLOAT32: Mapping[Way, float] = MappingProxyType({"float32": 1.0})
"""The only other way of a layer that is no product of data in bytes, at its cost."""


@dataclass(frozen=True)
class Product:
    """A matrix product `data` @ `weights`, and a number times `added` on top if there is one.

    `stored` is the initializer of the weights, [rows, columns], or of [columns, rows] if `turned`.
    What the node reads may be the result of another product, which takes a new value: it is asked.
    """

    node: ir.Node
    stored: ir.Value
    turned: bool

    @property
    def data(self) -> ir.Value:
        """What is multiplied by the weights."""
        data = self.node.inputs[0]
        assert data is not None
        return data

    @property
    def added(self) -> ir.Value | None:
        """What a Gemm adds."""
        return input_at(self.node, 2)

    @property
    def rows(self) -> int:
        """The length of the sums."""
        return _sizes(self.stored)[1 if self.turned else 0]

    @property
    def columns(self) -> int:
        """The results for each row of the data."""
        return _sizes(self.stored)[0 if self.turned else 1]

    def costs(self) -> Mapping[Way, float]:
        """Return what part of the time that bytes gain each way loses again; all is the most.

        A number of the data is multiplied by as many weights as there are columns, and as many
        products are added to one of the results as there are rows: what is done to each number
        counts for more, the fewer these are. Two bytes are multiplied twice. Fitted to products
        of 128 to 512 rows of data on two threads (onnxruntime 1.31, AVX-512 with VNNI).
        """
        found: dict[Way, float] = {
            "rows": 75 / self.columns + 33 / self.rows,
            "two-bytes": 0.45 + 58 / self.columns + 33 / self.rows,
        }
        return {**{way: cost for way, cost in found.items() if cost < 1}, **IN_FLOAT32}

    def weights(self) -> Array:
        """Return the weights, [rows, columns] in float32."""
        tensor = self.stored.const_value
        assert tensor is not None
        return tensor.numpy().T if self.turned else tensor.numpy()


def in_float32(ways: Ways) -> frozenset[str]:
    """Return the layers that stay as they are."""
    return frozenset(layer for layer, way in ways.items() if way == "float32")


def products(graph: ir.Graph, but: Collection[str] = ()) -> Iterator[Product]:
    """Yield the products of `graph` that can be quantised, in order, without the nodes in `but`."""
    for node in tuple(graph):
        found = product_of(node) if node.name not in but else None
        if found is not None and np.isfinite(found.weights()).all():
            yield found


def product_of(node: ir.Node) -> Product | None:
    """Return what product `node` is, None if it is none of float32 with constant weights."""
    if node.domain != "" or node.op_type not in ("MatMul", "Gemm"):
        return None
    data, right = node.inputs[:2]
    if data is None or right is None or data.dtype != ir.DataType.FLOAT or data.shape is None:
        return None
    turned, stored = _stored(right)
    if stored is None or len(data.shape) < _MATRIX or _is_weight(data):
        return None
    if node.op_type == "Gemm":
        plain = all(float_attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if int_attribute(node, "transA") or not plain:
            return None
        turned ^= bool(int_attribute(node, "transB"))
    found = Product(node, stored, turned)
    return found if found.rows >= LEAST and found.columns > 1 else None


def _stored(value: ir.Value) -> tuple[bool, ir.Value | None]:
    """Return whether `value` is a transposed matrix of weights, and the matrix, if it is one."""
    turn = made_by(value, "Transpose")
    source = value if turn is None else turn.inputs[0]
    if source is None or not _is_weight(source) or len(_sizes(source)) != _MATRIX:
        return False, None
    return turn is not None, source  # an order of two axes that keeps them is no operator


def _is_weight(value: ir.Value) -> bool:
    """Tell whether `value` is a constant of float32 with content that nobody can override."""
    tensor = value.const_value
    if not value.is_initializer() or value.is_graph_input() or tensor is None:
        return False
    return tensor.dtype == ir.DataType.FLOAT and not is_absent(tensor)


def _sizes(value: ir.Value) -> tuple[int, ...]:
    assert value.const_value is not None
    return tuple(int(size) for size in value.const_value.shape.numpy())


def bias_of(product: Product) -> tuple[ir.Value | None, ir.Node]:
    """Return what is added for each column, and the operator that adds it."""
    node = product.node
    if product.added is not None:
        return (product.added if _is_bias(product.added, product) else None), node
    result = node.outputs[0]
    if not has_one_reader(result):
        return None, node
    (reader,) = result.consumers()
    if reader.domain != "" or reader.op_type != "Add" or reader.graph is not node.graph:
        return None, node
    others = [value for value in reader.inputs if value is not result]
    if len(others) == 1 and others[0] is not None and _is_bias(others[0], product):
        return others[0], reader
    return None, node


def _is_bias(value: ir.Value, product: Product) -> bool:
    return constant(value) is not None and static_shape(value) == (product.columns,)


@dataclass(frozen=True)
class LayerNote:
    """What is noted at the operator that stands for a layer: its name and type, its weights' error.

    `scale` says what one of its numbers is worth, or how many share a scale.
    """

    layer: str
    operator: str
    precision: str
    scale: str
    weights: float

    def note(self, node: ir.Node | None) -> None:
        """Note it at `node`."""
        assert node is not None
        node.metadata_props[_NOTE] = json.dumps(asdict(self))

    @classmethod
    def noted(cls, node: ir.Node) -> LayerNote | None:
        """Return what is noted at `node`, if anything is."""
        text = node.metadata_props.get(_NOTE)
        return None if text is None else cls(**json.loads(text))


def put_result(editor: Editor, node: ir.Node, made: ir.Value, added: ir.Value | None) -> None:
    """Let `made`, and `added` to it if there is that, take the place of the result of `node`.

    The operator that makes the result now has the node's name.
    """
    if added is not None:
        editor.replace(node, "Add", made, added)
        return
    maker = made.producer()
    assert maker is not None
    attributes = {name: attr.value for name, attr in maker.attributes.items()}
    new = editor.replace(node, maker.op_type, *maker.inputs, domain=maker.domain, **attributes)
    new.metadata_props.update(maker.metadata_props)
    editor.remove(maker)
