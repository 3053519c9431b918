"""The passes that training adds around differentiation, in order."""

from __future__ import annotations

from dataclasses import replace

from .base import Pass
from .check_kernels import CheckKernels
from .eliminate_dead_code import EliminateDeadCode
from .expand_functions import ExpandFunctions
from .fold_constants import FoldConstants
from .infer_shapes import InferShapes
from .inline_branches import InlineBranches
from .legalize import LEGALIZE
from .lower_cross_entropy import LowerCrossEntropy
from .pool_before_relu import PoolBeforeRelu
from .spell_slices import SpellSlices

# Operators with a gradient rule stay whole; whether all run is only known after differentiation.
LEGALIZE_TRAINING: tuple[Pass, ...] = tuple(
    replace(step, keep_differentiable=True) if isinstance(step, ExpandFunctions) else step
    for step in LEGALIZE
    if not isinstance(step, CheckKernels)
)

# What differentiation wants: no dead code, no arithmetic on constants, no branches.
BEFORE_GRADIENTS: tuple[Pass, ...] = (
    EliminateDeadCode(),
    FoldConstants(),
    InlineBranches(),
    SpellSlices(),
    InferShapes(),
    PoolBeforeRelu(),
)

# What has a gradient rule as one operator, and runs faster as several.
AFTER_GRADIENTS: tuple[Pass, ...] = (LowerCrossEntropy(),)
