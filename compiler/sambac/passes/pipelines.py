"""Which passes run, in order: a tuple for each stage of a compilation.

    LEGALIZE                   any model comes into the form that all later stages rely on
    SIMPLIFY                   a legal graph gets smaller, and computes the same
    SPARE_ARITHMETIC           linear operators move to where they are the least work
    WORKAROUNDS                operators that onnxruntime computes as ONNX says
    SELECT_KERNELS             a simple graph is rewritten to the operators that run fastest
    SELECT_TRAINING_KERNELS    the same for a training step
    SELECT_LEAN_KERNELS        the same where activations are computed again

and around differentiation, in this order:

    LEGALIZE_TRAINING          as LEGALIZE, but operators with a gradient rule stay whole
    CHOSEN_BRANCHES            a branch that a constant chooses takes the place of the choice
    BEFORE_GRADIENTS           gradients become simpler or cheaper
    WHOLE_FOR_GRADIENTS        several operators become one, whose gradient is one operator too
    KEEP_FOR_GRADIENTS         forward operators give out what their gradients are to read
    LOWER_KEPT                 these become ONNX again
    AFTER_GRADIENTS            what has a gradient rule as one operator runs faster as several
"""

from __future__ import annotations

from dataclasses import replace

from .base import Pass
from .differentiation.keep_gates import KeepGates, LowerKeptGates
from .differentiation.keep_statistics import KeepStatistics, LowerKeptStatistics
from .differentiation.lower_cross_entropy import LowerCrossEntropy
from .differentiation.lower_own_gradients import LowerOwnGradients
from .legalize.check_kernels import CheckKernels
from .legalize.check_operands import CheckRanks, CheckShapes, CheckWindows
from .legalize.exact_casts import ExactCasts
from .legalize.exact_integers import ExactIntegers
from .legalize.exact_transforms import ExactTransforms
from .legalize.finite_masks import FiniteMasks
from .legalize.infer_shapes import InferShapes
from .legalize.inline_functions import ExpandFunctions, InlineFunctions
from .legalize.insert_casts import InsertCasts
from .legalize.lift_constants import LiftConstants
from .legalize.lower_normalization import LowerGroupNormalization, LowerLrn, LowerMeanVariance
from .legalize.lower_opset import LowerOpset
from .legalize.names_and_order import SortNodes, UniqueNames
from .legalize.ownership import OwnOutputs, OwnStatistics
from .legalize.spell_defaults import GatherStrings, GiveBias, SpellResizing, StepsFirst
from .legalize.spell_letters import SpellLetters
from .legalize.spell_neighbours import SpellNeighbours
from .legalize.spell_operands import (
    ScalarRanges,
    SpellAxes,
    SpellMargins,
    SpellPads,
    SpellSides,
    SpellSignals,
    SpellSlices,
)
from .legalize.unsigned_weights import UnsignedWeights
from .legalize.widen_masks import WidenMasks
from .select_kernels.additions import ChooseAdditions, FuseGatedAdditions
from .select_kernels.convolve_first import ConvolveFirst
from .select_kernels.convolve_rows import ConvolveRows
from .select_kernels.fuse_attention import FuseAttention
from .select_kernels.fuse_products import AbsorbTransposes, AddInProducts, FuseProducts
from .select_kernels.fuse_rms_normalization import FuseRmsNormalization
from .select_kernels.fuse_rotary import FuseRotary
from .select_kernels.join_linears import JoinLinears
from .select_kernels.lower_activations import LowerActivations
from .select_kernels.multiply_pixels import MultiplyPixels
from .select_kernels.pool_first import PoolBeforeConv, PoolBeforeRelu
from .select_kernels.reduce_strength import ReduceStrength
from .select_kernels.share_activations import ShareErrorFunctions, ShareSigmoids
from .select_kernels.sum_products import SumProducts
from .simplify.batch_first import BatchFirst
from .simplify.eliminate_common_subexpressions import EliminateCommonSubexpressions
from .simplify.eliminate_dead_code import EliminateDeadCode
from .simplify.fold_affine import FoldIntoConv, FoldIntoNormalization
from .simplify.fold_constants import FoldConstants, InlineBranches
from .simplify.fold_expands import FoldExpands
from .simplify.join_pads import JoinPads
from .simplify.log_sigmoids import LogSigmoids
from .simplify.lower_einsum import LowerEinsum
from .simplify.merge_chains import CastBeforeProducts, GatherShuffles, MergeChains
from .simplify.remove_no_ops import RemoveNoOps
from .simplify.share_heads import ShareHeads
from .simplify.split_parts import SplitParts
from .simplify.spread_heads import SpreadHeads
from .workarounds.empty_results import EmptyResults, EmptySums, OpenProducts
from .workarounds.full_dropouts import FullDropouts
from .workarounds.keep_deviations import KeepDeviations
from .workarounds.keep_layouts import KeepLayouts, SpellSizes
from .workarounds.keep_pads import KeepPads
from .workarounds.keep_scales import KeepScales
from .workarounds.make_scatters_deterministic import MakeScattersDeterministic
from .workarounds.order_letters import OrderLetters
from .workarounds.refuse_empty import RefuseEmpty
from .workarounds.spell_limits import SpellLimits
from .workarounds.spell_ranks import SpellRanks
from .workarounds.vectors_first import VectorsFirst

LEGALIZE: tuple[Pass, ...] = (
    InlineFunctions(),
    UniqueNames(),
    SortNodes(),
    LiftConstants(),
    OwnOutputs(),
    SpellSlices(),
    SpellSides(),
    InferShapes(),
    SpellSignals(),
    SpellLetters(),  # not for speed: the operator gives wrong shapes
    SpellResizing(),  # likewise
    GatherStrings(),  # not for speed: the operator leaves results unwritten
    SpellNeighbours(),  # not for speed: the kernel takes images and odd windows alone
    GiveBias(),  # not for speed: the operator ends the process
    StepsFirst(),  # likewise
    CheckRanks(),
    CheckShapes(),
    CheckWindows(),
    FiniteMasks(),  # not for speed: the kernel gives wrong results
    WidenMasks(),
    LowerOpset(),
    LowerGroupNormalization(),
    ExpandFunctions(),
    InsertCasts(),
    ExactIntegers(),  # not for speed: kernels give wrong results
    ExactTransforms(),  # likewise, of few digits
    ExactCasts(),  # likewise, at the ends of types of few bits
    UnsignedWeights(),  # likewise, on some processors
    CheckKernels(),
)

SIMPLIFY: tuple[Pass, ...] = (
    EliminateDeadCode(),
    LowerEinsum(),
    FoldConstants(),
    InlineBranches(),
    SpellSlices(),
    InferShapes(),
    RemoveNoOps(),
    LogSigmoids(),  # not for speed: onnxruntime's sigmoids are 0 too soon
    JoinPads(),
    EliminateDeadCode(),  # what read a piece no longer counts as its reader
    MergeChains(),
    SplitParts(),
    EliminateDeadCode(),  # likewise
    BatchFirst(),
    SpreadHeads(),
    MergeChains(),
    AbsorbTransposes(),
    RemoveNoOps(),
    FoldConstants(),
    ScalarRanges(),
    FoldIntoNormalization(),
    FoldIntoConv(),
    FoldExpands(),
    ShareHeads(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
)

_MOVE_LINEAR: tuple[Pass, ...] = (PoolBeforeConv(), ConvolveFirst(), JoinLinears())

# Before layers are quantised: afterwards they can no longer be moved.
SPARE_ARITHMETIC: tuple[Pass, ...] = (
    *_MOVE_LINEAR,
    MultiplyPixels(),
    MergeChains(),
    RemoveNoOps(),
    EliminateDeadCode(),
)

# Not for speed, but for what onnxruntime gives without: whatever runs a model needs them, and so
# does what measures it before its layers are quantised.
WORKAROUNDS: tuple[Pass, ...] = (
    SpellAxes(),  # the operators give wrong shapes
    SpellLimits(),  # onnxruntime refuses some, and what it makes of others
    SpellMargins(),  # onnxruntime refuses what comes out
    SpellPads(),  # the operators give wrong shapes between others
    EmptyResults(),  # some operators fail
    EmptySums(),  # the operators give wrong results
    OpenProducts(),  # the operators leave results unwritten
    FullDropouts(),  # onnxruntime refuses some, and takes others out
    KeepPads(),  # onnxruntime gives wrong results
    SpellSizes(),  # onnxruntime refuses what comes out
    KeepLayouts(),  # likewise
    SpellRanks(),  # the operators that it makes of some have other axes
    KeepDeviations(),  # onnxruntime gives wrong results
    KeepScales(),  # likewise
    CastBeforeProducts(),  # the operators end the process
    OrderLetters(),  # likewise
    VectorsFirst(),  # the operators give wrong results
    LowerMeanVariance(),  # the operator divides by zero
)

# Each of these rewrites is here because it was measured against onnxruntime's own optimisation of
# the same graph. Measured without gain, and so not here: one matrix product for queries, keys and
# values (1.01x), Gemm for MatMul and Add of constant weights (1.00x: onnxruntime does it), masks
# added instead of selected (0.995).
SELECT_KERNELS: tuple[Pass, ...] = (
    *WORKAROUNDS,
    *_MOVE_LINEAR,
    ConvolveRows(),
    LowerLrn(),
    GatherShuffles(),
    FuseRmsNormalization(),
    FuseRotary(),
    ReduceStrength(),
    LowerActivations(),
    ChooseAdditions(),
    FuseAttention(),
    FuseProducts(),
    MakeScattersDeterministic(),  # not for speed: the operator gives wrong results
    RefuseEmpty(),  # not for speed: the operators end the process
    OwnStatistics(),  # not for speed: the fastest kernel has a side effect
    EliminateDeadCode(),
)

# Not for inference: where nothing else reads the parts, onnxruntime makes larger operators of them
# (FastGelu, BiasGelu, attention), which it would no longer recognise.
SELECT_TRAINING_KERNELS: tuple[Pass, ...] = (
    *SELECT_KERNELS,
    ShareErrorFunctions(),
    ShareSigmoids(),
    SumProducts(),
    FuseGatedAdditions(),
    AddInProducts(),
    EliminateDeadCode(),
)

# Where activations are computed again to save memory, none are kept to save time.
SELECT_LEAN_KERNELS: tuple[Pass, ...] = tuple(
    step
    for step in SELECT_TRAINING_KERNELS
    if not isinstance(step, ShareErrorFunctions | ShareSigmoids)
)

# Operators with a gradient rule stay whole; whether all run is only known after differentiation.
LEGALIZE_TRAINING: tuple[Pass, ...] = tuple(
    replace(step, keep_differentiable=True)
    if isinstance(step, LowerOpset | ExpandFunctions)
    else step
    for step in LEGALIZE
    if not isinstance(step, CheckKernels)
)

# Branches that constants choose, in the place of the choice, and sizes that constants tell.
CHOSEN_BRANCHES: tuple[Pass, ...] = (
    FoldConstants(),
    InlineBranches(),
    EliminateDeadCode(),
    SpellSlices(),
    InferShapes(),
)

# What differentiation wants: no dead code, no arithmetic on constants, no branches.
BEFORE_GRADIENTS: tuple[Pass, ...] = (
    EliminateDeadCode(),
    FoldConstants(),
    InlineBranches(),
    SpellSlices(),
    InferShapes(),
    LogSigmoids(),
    PoolBeforeRelu(),
)

# One operator whose gradient is one operator, too, and reads nothing of what the parts would keep.
# For where numbers are not rounded: it would round once where the parts round each.
WHOLE_FOR_GRADIENTS: tuple[Pass, ...] = (FuseRotary(),)

# The two halves of one rewriting around differentiation: between them operators have outputs that
# ONNX does not know. For where time counts more than memory, and numbers are not rounded.
KEEP_FOR_GRADIENTS: tuple[Pass, ...] = (KeepGates(), KeepStatistics())
LOWER_KEPT: tuple[Pass, ...] = (LowerKeptGates(), LowerKeptStatistics(), LowerOwnGradients())

# What has a gradient rule as one operator, and runs faster as several.
AFTER_GRADIENTS: tuple[Pass, ...] = (LowerCrossEntropy(),)
