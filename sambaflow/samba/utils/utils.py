"""The helpers of this package, under the module that the API pages name."""

from __future__ import annotations

from . import (
    SNType,
    assert_close,
    create_mac_resource_report,
    fix_rdu_affinity,
    get_file_dir,
    get_rank,
    get_world_size,
    init_output_grads,
    is_main_process,
    measure_performance,
    measure_sections,
    set_seed,
    trace_graph,
    trace_multigraph,
    weight_norm_,
)

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
