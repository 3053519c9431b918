"""What applications use around a session: measuring, comparing, seeds, processes."""

from __future__ import annotations

from sambaflow.submodules import on_demand

from .comparing import assert_close
from .environment import (
    fix_rdu_affinity,
    get_file_dir,
    get_rank,
    get_world_size,
    is_main_process,
    set_seed,
)
from .measuring import measure_performance
from .resources import create_mac_resource_report
from .sections import measure_sections
from .sntype import SNType
from .tracing import init_output_grads, trace_graph, trace_multigraph
from .weight_norm import weight_norm_

__all__ = [
    "SNType",
    "assert_close",
    "create_mac_resource_report",
    "fix_rdu_affinity",
    "get_file_dir",
    "get_rank",
    "get_world_size",
    "init_output_grads",
    "is_main_process",
    "measure_performance",
    "measure_sections",
    "set_seed",
    "trace_graph",
    "trace_multigraph",
    "weight_norm_",
]

__getattr__ = on_demand(
    __name__,
    "argparser",
    "benchmark_acc",
    "checkpoint",
    "common",
    "dataset",
    "numeric",
    "pef_utils",
    "tensorboard_debug",
    "trainer",
    "utils",
    compile="samba.session.compile(model, inputs, optimizers, ...) writes the PEF",
)
