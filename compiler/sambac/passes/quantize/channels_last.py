"""Convolutions of bytes whose images have their channels last, where tokens come or go.

    QLinearConv(q, W, ..)      ->  Transpose(QLinearConv(Transpose(q), W, .., channels_last))
    Transpose(Quantize(x))     ->  Quantize(Transpose(x))            where x was moved just before

if the image is reshaped from tokens, [N, tokens, channels], or its convolution to them. The kernel
works with channels last either way: otherwise onnxruntime puts the transposes itself, when a
program is loaded, and does not see that they and those of the tokens move nothing together.
`merge_chains`, which runs behind this, does. Measured on SegFormer, whose every block mixes pixels
this way: 84 transposes of bytes and floats, a tenth of its time, all but those of the attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape
from sambac.passes.base import Pass
from sambac.passes.rewriting import made_by

DOMAIN = "com.microsoft"
_MOVES = ("Reshape", "Transpose")
_LEAST_AXES = 3


@dataclass(frozen=True)
class ChannelsLast(Pass):
    """Put the channels of images last for convolutions of bytes between tokens."""

    name: ClassVar[str] = "channels_last"
    operators: ClassVar[frozenset[str] | None] = frozenset({"QLinearConv"})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the convolutions of the main graph."""
        editor = Editor(model)
        found = [node for node in model.graph if _is_between_tokens(node)]
        for node in found:
            _turn(editor, node)
        return ir.passes.PassResult(model, modified=bool(found))


def _is_between_tokens(node: ir.Node) -> bool:
    """Tell whether `node` is a convolution of bytes whose image or result moves to other axes."""
    if node.op_type != "QLinearConv" or node.domain != "":
        return False
    image, result = node.inputs[0], node.outputs[0]
    shape = static_shape(image)
    if shape is None or len(shape) < _LEAST_AXES or static_shape(result) is None:
        return False
    quantize = made_by(image, "QuantizeLinear")
    source = image if quantize is None else quantize.inputs[0]
    moved = any(made_by(reader.outputs[0], *_MOVES) for reader in result.consumers())
    return moved or made_by(source, *_MOVES) is not None


def _turn(editor: Editor, node: ir.Node) -> None:
    """Let `node` convolve an image whose channels are last."""
    shape = static_shape(node.outputs[0])
    assert shape is not None
    last = (0, *range(2, len(shape)), 1)
    first = (0, len(shape) - 1, *range(1, len(shape) - 1))
    editor.rewrite(node)
    conv = editor.op(
        "QLinearConv",
        _turned(editor, node.inputs[0], last),
        *node.inputs[1:],
        domain=DOMAIN,
        like=ir.val("", node.outputs[0].dtype, [shape[axis] for axis in last]),
        **{key: attr.value for key, attr in node.attributes.items()},
        channels_last=1,
    )
    maker = conv.producer()
    assert maker is not None
    maker.metadata_props.update(node.metadata_props)
    editor.replace(node, "Transpose", conv, perm=first)


def _turned(editor: Editor, image: ir.Value | None, order: tuple[int, ...]) -> ir.Value:
    """Return the codes `image`, axes in `order`: of what moved before, move that instead."""
    assert image is not None
    shape, quantize = static_shape(image), made_by(image, "QuantizeLinear")
    assert shape is not None
    sizes = [shape[axis] for axis in order]
    like = ir.val("", image.dtype, sizes)
    moved = made_by(quantize.inputs[0], *_MOVES) if quantize is not None else None
    if quantize is None or moved is None:
        return editor.op("Transpose", image, like=like, perm=order)
    exact = ir.val("", ir.DataType.FLOAT, sizes)
    turned = editor.op("Transpose", quantize.inputs[0], like=exact, perm=order)
    return editor.op("QuantizeLinear", turned, *quantize.inputs[1:], like=like)
