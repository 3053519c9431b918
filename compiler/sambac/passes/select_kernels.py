"""The passes that rewrite a simple graph to the operators that run fastest, in order.

Each rewrite is here because it was measured against onnxruntime's own optimisation of the same
graph. Measured without gain, and so not here: one matrix product for queries, keys and values
(1.01x), Gemm for MatMul and Add of constant weights (1.00x: onnxruntime does it), masks added
instead of selected (0.995).
"""

from __future__ import annotations

from .add_in_products import AddInProducts
from .base import Pass
from .choose_additions import ChooseAdditions
from .eliminate_dead_code import EliminateDeadCode
from .empty_results import EmptyResults
from .empty_sums import EmptySums
from .fuse_gated_additions import FuseGatedAdditions
from .fuse_products import FuseProducts
from .gather_shuffles import GatherShuffles
from .lower_lrn import LowerLrn
from .make_scatters_deterministic import MakeScattersDeterministic
from .own_statistics import OwnStatistics
from .pool_before_conv import PoolBeforeConv
from .reduce_strength import ReduceStrength
from .share_error_functions import ShareErrorFunctions

SELECT_KERNELS: tuple[Pass, ...] = (
    EmptyResults(),  # not for speed: some operators fail
    EmptySums(),  # not for speed: the operators give wrong results
    PoolBeforeConv(),
    LowerLrn(),
    GatherShuffles(),
    ReduceStrength(),
    ChooseAdditions(),
    FuseProducts(),
    MakeScattersDeterministic(),  # not for speed: the operator gives wrong results
    OwnStatistics(),  # not for speed: the fastest kernel has a side effect
    EliminateDeadCode(),
)

# Not for inference: where nothing else reads the parts, onnxruntime makes larger operators of them
# (FastGelu, BiasGelu, attention), which it would no longer recognise.
SELECT_TRAINING_KERNELS: tuple[Pass, ...] = (
    *SELECT_KERNELS,
    ShareErrorFunctions(),
    FuseGatedAdditions(),
    AddInProducts(),
    EliminateDeadCode(),
)

# Where activations are computed again to save memory, none are kept to save time.
SELECT_LEAN_KERNELS: tuple[Pass, ...] = tuple(
    step for step in SELECT_TRAINING_KERNELS if not isinstance(step, ShareErrorFunctions)
)
