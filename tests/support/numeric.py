"""Which tests are numeric: they hold what a program calculates beside what PyTorch does.

The long run repeats them with other kernels of PyTorch, and with other numbers of threads: what
hangs on rounding fails there. Tests of files, messages and plans have nothing to gain from that.
"""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]

NUMERIC = (
    "ops/*",
    "unit/autodiff/*",
    "unit/device/*",
    "unit/frontend/*",
    "unit/passes/*",
    "unit/planning/test_section_breaks.py",
    "unit/training/*",
    "unit/variants/*",
    "unit/runtime/test_host_variants.py",
    "unit/runtime/test_training_*.py",
    "fuzz/test_training_fuzz.py",
    "e2e/test_absent_weights.py",
    "e2e/test_calls_that_differ.py",
    "e2e/test_files_that_train.py",
    "e2e/test_graphs_that_train.py",
    "e2e/test_log_sigmoids.py",
    "e2e/test_meters_of_calls.py",
    "e2e/test_number_*.py",
    "e2e/test_odd_kernels.py",
    "e2e/test_odd_parameters.py",
    "e2e/test_odd_training.py",
    "e2e/test_padded_pools.py",
    "e2e/test_precision.py",
    "e2e/test_reading_and_writing.py",
    "e2e/test_repeated_calls.py",
    "e2e/test_several_graphs.py",
    "e2e/test_sixteen_bits.py",
    "e2e/test_torch_training.py",
    "e2e/test_training_*.py",
    "e2e/test_written_buffers.py",
    "pybuda/test_configuration.py",
    "pybuda/test_images.py",
    "pybuda/test_networks.py",
    "pybuda/test_scripts.py",
    "pybuda/test_window_options.py",
    "samba/test_application.py",
    "samba/test_distributed.py",
    "samba/test_functional*.py",
    "samba/test_graphamp.py",
    "samba/test_kept_tensors.py",
    "samba/test_kinds_of_applications.py",
    "samba/test_lazy_*.py",
    "samba/test_multigraph*.py",
    "samba/test_narrow_types.py",
    "samba/test_onnx_graph.py",
    "samba/test_operands.py",
    "samba/test_optim*.py",
    "samba/test_quantized_linear.py",
    "samba/test_rng.py",
    "samba/test_session_*.py",
    "samba/test_shared_modules.py",
    "samba/test_slices.py",
    "samba/test_small_modules.py",
    "samba/test_special_layers.py",
    "samba/test_stir.py",
    "samba/test_tensor_*.py",
    "samba/test_training_modes.py",
)
"""Modules under `TESTS`."""


@cache
def is_numeric(module: Path) -> bool:
    """Tell whether the tests of a module are numeric."""
    name = module.relative_to(TESTS).as_posix()
    return any(fnmatch(name, pattern) for pattern in NUMERIC)
