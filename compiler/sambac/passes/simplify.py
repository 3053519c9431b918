"""The passes that make a legal graph smaller without changing what it computes, in order."""

from __future__ import annotations

from .absorb_transposes import AbsorbTransposes
from .base import Pass
from .eliminate_common_subexpressions import EliminateCommonSubexpressions
from .eliminate_dead_code import EliminateDeadCode
from .fold_constants import FoldConstants
from .fold_into_conv import FoldIntoConv
from .fold_into_normalization import FoldIntoNormalization
from .infer_shapes import InferShapes
from .inline_branches import InlineBranches
from .join_pads import JoinPads
from .merge_chains import MergeChains
from .remove_no_ops import RemoveNoOps
from .scalar_ranges import ScalarRanges
from .spell_slices import SpellSlices

SIMPLIFY: tuple[Pass, ...] = (
    EliminateDeadCode(),
    FoldConstants(),
    InlineBranches(),
    SpellSlices(),
    InferShapes(),
    RemoveNoOps(),
    JoinPads(),
    EliminateDeadCode(),  # what read a piece no longer counts as its reader
    MergeChains(),
    AbsorbTransposes(),
    RemoveNoOps(),
    FoldConstants(),
    ScalarRanges(),
    FoldIntoNormalization(),
    FoldIntoConv(),
    EliminateCommonSubexpressions(),
    EliminateDeadCode(),
)
