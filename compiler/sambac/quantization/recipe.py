"""Which layers of a model can be quantised, and by which passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir
from onnx import defs

from sambac.arch import Arch
from sambac.errors import CompileError
from sambac.graph.nodes import all_nodes
from sambac.numerics.integers import ByteScale
from sambac.ops import flops_of
from sambac.passes.base import Pass
from sambac.passes.quantize.channels_last import ChannelsLast
from sambac.passes.quantize.coarse_gelus import CoarseGelus
from sambac.passes.quantize.convolve_tokens import ConvolveTokens
from sambac.passes.quantize.join_quantized import JoinQuantized, scaled
from sambac.passes.quantize.quantize_convolutions import QuantizeConvolutions, convolutions, settled
from sambac.passes.quantize.quantize_products import QuantizeProducts
from sambac.passes.quantize.quantize_weights import QuantizeWeights, RoundData
from sambac.passes.quantize.quantized_layers import IN_FLOAT32, Way, Ways, in_float32, products
from sambac.passes.simplify.eliminate_common_subexpressions import EliminateCommonSubexpressions
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode
from sambac.passes.simplify.merge_chains import MergeChains
from sambac.passes.simplify.remove_no_ops import RemoveNoOps
from sambac.quantized_precisions import Quantized

FIRST_OPSET = 12
"""The first opset whose operators work on bytes wherever these passes put them."""

IMAGES_OF_TOKENS: tuple[Pass, ...] = (ConvolveTokens(), MergeChains(), EliminateDeadCode())
"""What brings more layers under those whose ranges are known; it comes before ranges are found."""


@dataclass(frozen=True)
class LayerRecipe:
    """How layers are quantised: as `chosen`, in blocks of weights, images by their `scales`."""

    chosen: Quantized
    block: int
    scales: Mapping[str, ByteScale] = field(default_factory=dict)

    def passes(self, ways: Ways) -> tuple[Pass, ...]:
        """Return the passes that quantise all layers, some in the `ways` of their nodes."""
        but = in_float32(ways)
        if self.chosen.weights_only:
            return (QuantizeWeights(self.chosen.bits, self.block, but), EliminateDeadCode())
        images = (
            QuantizeConvolutions(self.scales, but),
            JoinQuantized(self.scales),
            ChannelsLast(),
            MergeChains(),
            RemoveNoOps(),
        )
        return (
            QuantizeProducts(ways),
            *(images if self.scales else ()),
            CoarseGelus(),
            EliminateCommonSubexpressions(),
            EliminateDeadCode(),
        )

    def measured(self, ways: Ways) -> tuple[Pass, ...]:
        """Return the passes for a model that measures errors: those of all hosts."""
        return (*self.passes(ways), RoundData())


@dataclass(frozen=True)
class FoundLayer:
    """A layer that can be quantised: the node that computes it, and its result.

    Behind a convolution that is what an activation makes of it. `work` is its arithmetic, `costs`
    what each way that it can have beside bytes loses of what these gain.
    """

    node: ir.Node
    result: ir.Value
    work: int
    costs: Mapping[Way, float]

    @property
    def name(self) -> str:
        """The name of the node."""
        return str(self.node.name)

    @property
    def value(self) -> str:
        """The name of the result."""
        return str(self.result.name)


def layers_of(model: ir.Model, recipe: LayerRecipe) -> list[FoundLayer]:
    """Return the layers of `model` that `recipe` quantises, in the order of the graph."""
    multiplied = {product.node: product for product in products(model.graph)}
    found = {node: node.outputs[0] for node in multiplied}
    if recipe.scales:
        found |= {node: settled(node) for node in convolutions(model.graph)}
    costs: dict[ir.Node, Mapping[Way, float]] = {}
    if not recipe.chosen.weights_only:
        costs = {node: product.costs() for node, product in multiplied.items()}
    return [
        FoundLayer(node, found[node], flops_of(node), costs.get(node, IN_FLOAT32))
        for node in model.graph
        if node in found
    ]


def work_of(model: ir.Model) -> int:
    """Return the arithmetic operations of one run of `model`."""
    return sum(flops_of(node) for node in all_nodes(model.graph))


def time_shares(model: ir.Model, arch: Arch) -> dict[ir.Node, float]:
    """Return what each operator of the main graph takes of the time of all of them.

    Each is by itself on the whole of `arch`, and takes as long as its arithmetic or as reading its
    constants from memory does, whichever is longer.
    """
    rate = arch.peak_flops.value * arch.compute_efficiency.value
    speed = arch.speed(arch.main_memory)

    def seconds(node: ir.Node) -> float:
        tensors = [value.const_value for value in {*node.inputs} if value is not None]
        read = sum(tensor.nbytes for tensor in tensors if tensor is not None)
        return max(flops_of(node) / rate, read / speed if speed else 0.0)

    found = {node: seconds(node) for node in model.graph}
    together = sum(found.values()) or 1.0
    return {node: time / together for node, time in found.items()}


def images_of(model: ir.Model) -> Iterator[str]:
    """Yield the names of values around convolutions whose ranges are to be known."""
    for node in convolutions(model.graph):
        yield str(node.inputs[0].name)  # type: ignore[union-attr]  # it has an image
        yield str(settled(node).name)
    for node in model.graph:
        if node.domain == "" and scaled(node.op_type) and is_float(node.outputs[0]):
            yield str(settled(node).name)


def is_float(value: ir.Value) -> bool:
    """Tell whether `value` is of float32."""
    return value.dtype == ir.DataType.FLOAT


def raise_opset(model: ir.Model, name: str) -> None:
    """Let `model` be of an opset that works on bytes.

    Raises `CompileError` where an operator of the model means something else there.
    """
    opset = model.opset_imports.get("", FIRST_OPSET)
    if opset >= FIRST_OPSET:
        return
    changed = sorted(
        {
            node.op_type
            for node in all_nodes(model.graph)
            if node.domain == "" and not _is_the_same(node)
        }
    )
    if changed:
        raise CompileError(
            f"{name} is of opset {opset}, in which {', '.join(changed)} means something else than "
            f"in opset {FIRST_OPSET}, the first that works on bytes; export the model with opset "
            f"{FIRST_OPSET} or later, or compile it in float32"
        )
    model.opset_imports[""] = FIRST_OPSET


def _is_the_same(node: ir.Node) -> bool:
    """Tell whether `node`, written for an opset from 7 on, is valid in the first that is wanted.

    Until then operators that took another meaning took other inputs or attributes with it, but for
    `Scan`.
    """
    try:
        schema = defs.get_schema(node.op_type, FIRST_OPSET)
    except defs.SchemaError:
        return False
    fits = schema.min_input <= len(node.inputs) <= schema.max_input
    known = set(node.attributes) <= set(schema.attributes)
    return fits and known and not schema.deprecated and node.op_type != "Scan"
