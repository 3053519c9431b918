"""Legalization: the passes that bring any model into the form that all later stages rely on."""

from __future__ import annotations

from .base import Pass
from .check_kernels import CheckKernels
from .check_shapes import CheckShapes
from .check_windows import CheckWindows
from .expand_functions import ExpandFunctions
from .infer_shapes import InferShapes
from .inline_functions import InlineFunctions
from .insert_casts import InsertCasts
from .lift_constants import LiftConstants
from .lower_group_normalization import LowerGroupNormalization
from .lower_opset import LowerOpset
from .own_outputs import OwnOutputs
from .sort_nodes import SortNodes
from .spell_slices import SpellSlices
from .unique_names import UniqueNames
from .widen_masks import WidenMasks

LEGALIZE: tuple[Pass, ...] = (
    InlineFunctions(),
    UniqueNames(),
    SortNodes(),
    LiftConstants(),
    OwnOutputs(),
    SpellSlices(),
    InferShapes(),
    CheckShapes(),
    CheckWindows(),
    WidenMasks(),
    LowerOpset(),
    LowerGroupNormalization(),
    ExpandFunctions(),
    InsertCasts(),
    CheckKernels(),
)
