"""What is around matrix products, left to the product: transposes, factors, additions.

Transposed and scaled operands (`FuseProducts`):

    MatMul(Transpose(A), B)   ->  FusedMatMul(A, B, transA=1)     the last two axes; B likewise
    MatMul(A * c, B)          ->  FusedMatMul(A, B, alpha=c)      B likewise
    MatMul(A, B) * c          ->  FusedMatMul(A, B, alpha=c)

for float32 and a constant number c, if nothing else reads what was scaled and no Scan is between:
a product reads either order at the same speed, and scales for nothing. Forward and backward passes
of attention take 0.65 to 0.95 of the time, and no transposed keys are kept in between.

    MatMul(Transpose(A), B)   ->  FusedMatMul(A', B, transBatchA=1)     [1, S, H, D] to [1, H, S, D]

and B likewise, with A' = Reshape(A, [S, 1, H, D]), which moves nothing. Of attention, only the
result is still transposed: 0.88 of its time on one thread, 0.65 on two, as Transpose uses one. Of a
Transpose to [B, H, D, S], of any batch, that of the last two axes is left to the product: what
remains moves rows of D numbers.

Additions to a product of matrices (`AddInProducts`):

    MatMul(A, B) + c        ->  Gemm(A, B, c)
    FusedMatMul(A, B) + c   ->  Gemm(A, B, c)       with its transposes and its factor

for float32, where c is a row or has the shape of the result, B is one matrix and nothing else reads
the product. Leading axes of A become one and are put back afterwards, which costs nothing. The
product begins with c instead of zeros, and a pass over the result is saved: 0.96 to 0.98 of the
time of a layer, for results of 32 K elements or more. Smaller ones are rewritten only if they are
matrices anyway.

Transposed matrices around a Gemm, left to its flags (`AbsorbTransposes`):

    Gemm(Transpose(A), B, C)               ->  Gemm(A, B, C) with the other transA; B likewise
    Transpose(Gemm(A, B))                  ->  Gemm(B, A) with the other transB and transA
    Transpose(Cast(Gemm(A, B)))            ->  Cast(Gemm(B, A)) likewise

where nothing else reads the product. onnxruntime does so too, but only inside one section: the
transposed weight of a layer would else be kept from its forward to its backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, same_shape, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_beside, made_by, scalar

_DOMAIN = "com.microsoft"
_SIDES = ("transA", "transB")
BATCHES = ("transBatchA", "transBatchB")
"""Attributes of FusedMatMul that swap the first axis of an operand with those of a batch."""
_HEADS = [0, 2, 1, 3]
_TURNED_HEADS = [0, 2, 3, 1]
_MIN_ELEMENTS = 1 << 15


@dataclass(frozen=True)
class _Operand:
    """What a product reads: `value`, with its last two axes swapped if `turned`, times `scale`.

    Before all that, [B, S, H, D] becomes [B, H, S, D] if it has its `heads` behind.
    """

    value: ir.Value
    turned: bool = False
    scale: float = 1.0
    heads: bool = False


def fuse_operands(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(Transpose(A) * c, B) -> FusedMatMul(A, B, transA=1, alpha=c)."""
    together = _is_one_batch(node)
    operands = [_stripped(node, value, together) for value in node.inputs if value is not None]
    if all(operand == _Operand(operand.value) for operand in operands):
        return "no operand is transposed or scaled"
    if any(not _is_float_matrix(operand.value) for operand in operands):
        return "an operand is no float32 matrix"
    flags = {name: int(item.turned) for name, item in zip(_SIDES, operands, strict=True)}
    alpha = operands[0].scale * operands[1].scale
    values = [_in_front(editor, item, together) if item.heads else item.value for item in operands]
    if together:
        flags |= {name: int(item.heads) for name, item in zip(BATCHES, operands, strict=True)}
    _put(editor, node, values, flags, alpha)
    return None


def _is_one_batch(node: ir.Node) -> bool:
    """Tell whether both operands of a product are a batch of 1 with as many heads."""
    first, second = (static_shape(value) or () for value in node.inputs)
    return len(first) == len(second) == len(_HEADS) and (1, first[1]) == first[:2] == second[:2]


def _in_front(editor: Editor, operand: _Operand, together: bool) -> ir.Value:
    """Return what a product reads of an operand [B, S, H, D]: with its heads in front.

    If it takes them `together` with a batch of 1, that is [S, 1, H, D], which moves nothing.
    """
    value, shape = operand.value, static_shape(operand.value)
    if not together or shape is None:
        return editor.op("Transpose", value, perm=_HEADS)
    target = (shape[1], 1, *shape[2:])
    before = made_by(value, "Reshape")
    source = value if before is None else before.inputs[0]
    return editor.op(
        "Reshape", source, np.asarray(target, np.int64), like=ir.val("", value.dtype, target)
    )


def fuse_scale(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(A, B) * c -> FusedMatMul(A, B, alpha=c)."""
    product, factor = _scaled(node)
    if product is None:
        return "nothing is multiplied with a number"
    maker = product.producer()
    if maker is None or not has_one_reader(product) or not _is_product(maker):
        return "what is scaled is no product that nothing else reads"
    values = [value for value in maker.inputs if value is not None]
    if any(not _is_float_matrix(value) for value in values):
        return "an operand is no float32 matrix"
    flags = {name: int_attribute(maker, name) for name in _SIDES}
    alpha = factor * float_attribute(maker, "alpha", 1.0)
    _put(editor, node, values, flags, alpha)
    editor.remove(maker)
    return None


def _stripped(node: ir.Node, value: ir.Value, together: bool) -> _Operand:
    """Return what `value`, which `node` reads, is before it is transposed and scaled.

    Heads that a product takes `together` need not be in front.
    """
    if not made_beside(value, node):
        return _Operand(value)
    turn, scale = made_by(value, "Transpose"), made_by(value, "Mul")
    if turn is not None and turn.inputs[0] is not None and _swaps_last(turn):
        inner = _stripped(node, turn.inputs[0], together)
        return replace(inner, turned=not inner.turned)
    orders = (_HEADS, _TURNED_HEADS) if together else (_TURNED_HEADS,)
    if turn is not None and turn.inputs[0] is not None and _order(turn) in orders:
        return _Operand(turn.inputs[0], turned=_order(turn) == _TURNED_HEADS, heads=True)
    if scale is not None and has_one_reader(value):
        tensor, factor = _scaled(scale)
        if tensor is not None:
            inner = _stripped(node, tensor, together)
            return replace(inner, scale=inner.scale * factor)
    return _Operand(value)


def _scaled(node: ir.Node) -> tuple[ir.Value | None, float]:
    """Return the tensor that a Mul multiplies with a number, and the number."""
    for tensor, other in (node.inputs, reversed(node.inputs)):
        factor = scalar(other)
        if factor is None or not isfinite(factor) or tensor is None:
            continue
        if same_shape(tensor, node.outputs[0]):
            return tensor, factor
    return None, 1.0


def _order(node: ir.Node) -> list[int] | None:
    order = node.attributes.get("perm")
    return None if order is None else list(order.as_ints())


def _swaps_last(node: ir.Node) -> bool:
    perm = _order(node)
    rank = _rank(node.inputs[0])
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    return rank >= 2 and (perm == swapped or (perm is None and rank == 2))


def _rank(value: ir.Value | None) -> int:
    return 0 if value is None or value.shape is None else len(value.shape)


def _is_product(node: ir.Node) -> bool:
    if node.domain == _DOMAIN:
        plain = not (int_attribute(node, "transBatchA") or int_attribute(node, "transBatchB"))
        return node.op_type == "FusedMatMul" and plain
    return node.domain == "" and node.op_type == "MatMul"


def _is_float_matrix(value: ir.Value) -> bool:
    return value.dtype == ir.DataType.FLOAT and _rank(value) >= 2


def _put(
    editor: Editor, node: ir.Node, values: list[ir.Value], flags: Mapping[str, int], alpha: float
) -> None:
    """Put a FusedMatMul in the place of `node`."""
    attributes: dict[str, int | float] = {name: flag for name, flag in flags.items() if flag}
    if alpha != 1.0:
        attributes["alpha"] = alpha
    editor.replace(node, "FusedMatMul", *values, domain=_DOMAIN, **attributes)


@dataclass(frozen=True)
class FuseProducts(RulePass):
    """Let matrix products transpose and scale what they read."""

    name: ClassVar[str] = "fuse_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Mul", "Transpose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "MatMul": (fuse_operands,),
        "Mul": (fuse_scale,),
    }

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuse in `model`, subgraphs included."""
        result = super().call(model)
        if result.modified:
            model.opset_imports.setdefault(_DOMAIN, 1)
        return result


def fuse_addition(editor: Editor, node: ir.Node) -> str | None:
    """Add(MatMul(A, B), c) -> Gemm(A, B, c)."""
    out = node.outputs[0]
    shape = static_shape(out)
    if out.dtype != ir.DataType.FLOAT or shape is None or len(shape) < 2:
        return "the result is no float32 matrix"
    if len(shape) > 2 and (out.is_graph_output() or prod(shape) < _MIN_ELEMENTS):
        return "the result is small, or has to be copied to its shape"
    for product, addend in (node.inputs, reversed(node.inputs)):
        if product is not None and addend is not None:
            found = _product(product, shape)
            c = _addend(addend, shape)
            if found is not None and c is not None:
                _put_sum(editor, node, found, addend)
                return None
    return "no operand is a product with one matrix that nothing else reads"


def _product(value: ir.Value, shape: tuple[int, ...]) -> ir.Node | None:
    """Return the node that makes `value`, of `shape`, as a product with one matrix."""
    node = value.producer()
    if node is None or not has_one_reader(value) or static_shape(value) != shape:
        return None
    fused = node.domain == _DOMAIN and node.op_type == "FusedMatMul"
    if not fused and made_by(value, "MatMul") is None:
        return None
    if any(int_attribute(node, name) for name in BATCHES):
        return None
    a, b = (static_shape(operand) for operand in node.inputs)
    if a is None or b is None or len(a) != len(shape) or len(b) != 2:
        return None
    return None if len(a) > 2 and int_attribute(node, "transA") else node


def _addend(value: ir.Value, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in which Gemm adds `value` to a result of `shape`."""
    own = static_shape(value)
    rows = prod(shape[:-1])
    if own == shape:
        return (rows, shape[-1])
    return shape[-1:] if own == shape[-1:] else None


def _put_sum(editor: Editor, node: ir.Node, product: ir.Node, addend: ir.Value) -> None:
    """Put a Gemm in the place of `node`, the sum of `product` and `addend`."""
    out = node.outputs[0]
    shape = static_shape(out)
    assert shape is not None
    a, b = product.inputs
    left, right = (int_attribute(product, name) or None for name in ("transA", "transB"))
    alpha = float_attribute(product, "alpha", 1.0)
    scale = None if alpha == 1.0 else alpha
    if len(shape) == 2:
        editor.replace(node, "Gemm", a, b, addend, transA=left, transB=right, alpha=scale)
    else:
        assert a is not None
        c = _as_matrix(editor, addend) if static_shape(addend) == shape else addend
        inputs = [_as_matrix(editor, a), b, c]
        like = ir.val("", out.dtype, (prod(shape[:-1]), shape[-1]))
        total = editor.op("Gemm", *inputs, like=like, transA=left, transB=right, alpha=scale)
        back = editor.initializer(np.asarray(shape, np.int64), f"{out.name}_shape")
        editor.replace(node, "Reshape", total, back)
    editor.remove(product)


def _as_matrix(editor: Editor, value: ir.Value) -> ir.Value:
    """Return `value` with all axes but the last as one, before it got others if it had so."""
    shape = static_shape(value)
    assert shape is not None
    matrix = (prod(shape[:-1]), shape[-1])
    before = made_by(value, "Reshape")
    if before is not None and static_shape(before.inputs[0]) == matrix:
        assert before.inputs[0] is not None
        return before.inputs[0]
    wanted = editor.initializer(np.asarray(matrix, np.int64), f"{value.name}_matrix")
    return editor.op("Reshape", value, wanted, like=ir.val("", value.dtype, matrix))


@dataclass(frozen=True)
class AddInProducts(RulePass):
    """Let products of matrices add what is added to them."""

    name: ClassVar[str] = "add_in_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({"FusedMatMul", "MatMul"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Add": (fuse_addition,)}


def absorb_inputs(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(Transpose(A), B) -> Gemm(A, B) with the other flag."""
    inputs, flags = list(node.inputs), {}
    for index, flag in enumerate(("transA", "transB")):
        inner = made_by(inputs[index], "Transpose")
        if inner is not None and _turns(inner) and made_beside(inner.outputs[0], node):
            inputs[index] = inner.inputs[0]
            flags[flag] = 1 - int_attribute(node, flag)
    if not flags:
        return "no input is a transposed matrix"
    new = editor.replace(node, "Gemm", *inputs)
    new.attributes.update(node.attributes)
    _set(new, flags)
    return None


def absorb_result(editor: Editor, node: ir.Node) -> str | None:
    """Transpose(Gemm(A, B)) -> Gemm(B, A) with the other flags, through a Cast as well."""
    value = node.inputs[0]
    cast = made_by(value, "Cast")
    inner = value if cast is None else cast.inputs[0]
    product = made_by(inner, "Gemm")
    alone = all(each is not None and has_one_reader(each) for each in (value, inner))
    if product is None or not (_turns(node) and alone):
        return "the input is no product that nothing else reads"
    if len(product.inputs) > 2 and product.inputs[2] is not None:
        return "something is added to the product"
    turned: ir.Node | None
    operands = (product.inputs[1], product.inputs[0])
    if cast is None:
        turned = editor.replace(node, "Gemm", *operands)
    else:
        like = ir.val("", product.outputs[0].dtype, node.outputs[0].shape)
        wide = editor.op("Gemm", *operands, like=like)
        turned = wide.producer()
        editor.replace(node, "Cast", wide).attributes.update(cast.attributes)
        editor.remove(cast)
    assert turned is not None
    turned.attributes.update(product.attributes)
    flags = {name: 1 - int_attribute(product, name) for name in ("transA", "transB")}
    _set(turned, {"transA": flags["transB"], "transB": flags["transA"]})
    editor.remove(product)
    return None


def _turns(node: ir.Node) -> bool:
    """Tell whether the Transpose of a matrix swaps its axes."""
    order = node.attributes.get("perm")
    return order is None or tuple(order.as_ints()) == (1, 0)


def _set(node: ir.Node, flags: Mapping[str, int]) -> None:
    for name, flag in flags.items():
        node.attributes[name] = ir.AttrInt64(name, flag)


@dataclass(frozen=True)
class AbsorbTransposes(RulePass):
    """Let matrix products read and write transposed matrices."""

    name: ClassVar[str] = "absorb_transposes"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Transpose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gemm": (absorb_inputs,),
        "Transpose": (absorb_result,),
    }
