"""The configuration of the compiler: one for all devices of a program.

What says something of results or of sections takes effect. What tells hardware how to place and to
move is taken, and a warning says what it does there: results here do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, TypeAlias

from pef.arguments import shown
from pef.warned import warn
from pef.wording import did_you_mean
from sambac import NumberRule

from ._C import DataFormat
from .errors import PyBudaError
from .number_config import NumberConfig
from .query import NodePredicateBuilder

Chosen: TypeAlias = str | NodePredicateBuilder
"""An operator, by its name, or those for which a predicate holds."""
Break: TypeAlias = tuple[Chosen, ...]
"""Operators of which the first that runs begins a section."""


class PerfTraceLevel(Enum):
    """How much hardware is to record of its own speed."""

    NONE = 0
    LIGHT = 1
    VERBOSE = 2


@dataclass(frozen=True)
class CompileSettings:
    """What the configuration asks of a compilation."""

    number_rules: tuple[NumberRule, ...] = ()
    breaks: tuple[Break, ...] = ()
    recompute: bool = False


UNSET = CompileSettings()
"""What is asked for where a program sets nothing."""

_IDLE: Mapping[str, tuple[object, str]] = {
    "backend_cluster_descriptor_path": ("", "it reads there how chips are connected"),
    "backend_device_descriptor_path": ("", "it reads there what the chip is like"),
    "backend_opt_level": (4, "its runtime optimizes that much"),
    "backend_output_dir": ("", "its runtime writes its files there"),
    "backend_runtime_args": ("", "its runtime gets these"),
    "backend_runtime_params_path": ("", "its runtime reads there how it is configured"),
    "balancer_policy": ("default", "it decides by that how many cores operators get"),
    "chip_placement_policy": ("MMIO_LAST", "it takes chips in that order"),
    "compile_tvm_to_python": (True, "models go through Python"),
    "cpu_fallback_ops": (frozenset({"embedding"}), "these operators run on the host"),
    "default_dram_parameters": (None, "it keeps parameters in DRAM by that"),
    "device_config": ("", "it compiles for that arrangement of chips"),
    "dram_placement_algorithm": (None, "it places queues in DRAM by that"),
    "enable_auto_fusing": (True, "small operators become one"),
    "enable_auto_transposing_placement": (True, "it turns operators on the grid of cores"),
    "enable_consteval": (True, "it folds constants; they are always folded here"),
    "enable_conv_prestride": (True, "the host rearranges images for strided convolutions"),
    "enable_device_tilize": (False, "its own cores cut tensors into tiles"),
    "enable_enumerate_u_kt": (True, "it tries several sizes of blocks"),
    "enable_forked_dram_inputs": (False, "operators read their inputs from each other"),
    "enable_link_past_cache_ios": (False, "it keeps caches of keys and values on the chip"),
    "enable_stable_softmax": (True, "softmax subtracts the largest; it always does here"),
    "enable_t_streaming": (True, "operators give their results in slices"),
    "enable_tm_cpu_fallback": (False, "operators that move data run on the host"),
    "enable_tvm_constant_prop": (False, "TVM folds constants"),
    "enable_tvm_cpu_fallback": (True, "operators that it does not have run on the host"),
    "enable_tvm_dropout": (False, "TVM keeps dropouts"),
    "harvested_rows": ((), "it leaves these rows of cores out"),
    "input_queues_on_host": (True, "inputs wait in memory of the host"),
    "manual_t_streaming": (False, "only operators that were named give slices"),
    "op_intermediates_to_save": ((), "it returns the results of these operators too"),
    "output_queues_on_host": (True, "results wait in memory of the host"),
    "performance_trace": (PerfTraceLevel.NONE, "it records how long operators take"),
    "place_on_one_row": (False, "it places operators on one row of cores"),
    "retain_tvm_python_files": (False, "it keeps the Python that models become"),
    "scheduler_policy": ("ModuleInputsBFS", "it orders operators by that"),
    "store_backend_db_to_yaml": (False, "its runtime writes how it is configured"),
    "tvm_graph_load_path": ("", "it reads a graph of TVM from there"),
    "tvm_graph_store_path": ("", "it writes the graph of TVM there"),
    "use_interactive_placer": (True, "it places operators while it decides on their cores"),
}
"""Attributes without an effect here: what they are at first, and what hardware does by them."""


_HINTS: Mapping[str, tuple[Callable[..., None], str]] = {
    "add_cpu_fallback_ops": (lambda op_types: None, "operators of these types run on the host"),
    "add_schedule_constraint": (lambda op_names: None, "operators run in that order"),
    "balancer_op_override": (lambda op_name, attribute, value: None, "operators get other grids"),
    "dont_fuse": (lambda op_name: None, "an operator stays out of fused ones"),
    "insert_fracture_group": (lambda nodes, chip_ids=None: None, "several chips share operators"),
    "insert_nop": (lambda src_op, dest_ops, **options: None, "a copy stands between operators"),
    "manual_fuse": (lambda op_names: None, "operators become one"),
    "override_dram_queue_placement": (
        lambda queue_name, chip_id=None, channel=None: None,
        "a queue lies on that channel of DRAM",
    ),
    "override_op_placement": (
        lambda op_name, start=None, transpose_op=False, chip_id=None, **breaks: None,
        "an operator lies on those cores",
    ),
    "override_op_size": (lambda op_name, grid_size: None, "an operator gets a grid of that size"),
    "override_t_stream_dir": (lambda op_name, direction: None, "results come in slices, that way"),
    "override_t_stream_shape": (lambda op_name, shape: None, "results come in so many slices"),
    "override_u_kt": (lambda op_name, u_kt: None, "a product sums blocks of that size"),
}
"""Functions without an effect here: what they take, and what hardware does by them."""


def __getattr__(name: str) -> Callable[..., None]:
    """Return the function of `_HINTS` that is called `name`, which warns."""
    if name not in _HINTS:
        raise AttributeError(f"pybuda.config has no '{name}'{did_you_mean(name, _HINTS)}")
    taken, says = _HINTS[name]

    def hinted(*args: object, **kwargs: object) -> None:
        taken(*args, **kwargs)
        warn(f"{name}: on hardware {says}; it has no effect here")

    return hinted


@dataclass
class CompilerConfig(NumberConfig):
    """What is set for all compilations, beside formats and fidelities.

    `enable_recompute` lets training compute activations again where that saves memory. Another
    attribute is one without an effect here, or `PyBudaError`.
    """

    enable_recompute: bool = False
    _breaks: tuple[Break, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _IDLE and name not in _ATTRIBUTES:
            known = [each for each in (*_IDLE, *_ATTRIBUTES) if not each.startswith("_")]
            raise PyBudaError(f"the configuration has no '{name}'{did_you_mean(name, known)}")
        object.__setattr__(self, name, value)
        default, says = _IDLE.get(name, (value, ""))
        if value not in (default, None):
            warn(f"{name}={shown(value)}: on hardware {says}; it has no effect here")

    def __getattr__(self, name: str) -> Any:
        if name in _HINTS:
            return __getattr__(name)
        if name not in _IDLE:
            raise AttributeError(f"the configuration has no '{name}'{did_you_mean(name, _IDLE)}")
        default = _IDLE[name][0]
        return {*default} if isinstance(default, frozenset) else default

    def place_on_new_epoch(self, op_names: Chosen | list[Chosen]) -> None:
        """Let the first of these operators that runs begin a section."""
        self._breaks = (*self._breaks, _break(op_names))

    def place_on_new_chip(self, op_names: Chosen | list[Chosen]) -> None:
        """Let the first of these operators begin a section: the device here is one chip."""
        self.place_on_new_epoch(op_names)

    def settings(self, fallback: DataFormat | None = None) -> CompileSettings:
        """Return what is asked of a compilation; `fallback` is held where no format is set.

        Raises `PyBudaError` for what is wrong.
        """
        return CompileSettings(self.rules(fallback), self._breaks, self.enable_recompute)


_ATTRIBUTES = tuple(each.name for each in fields(CompilerConfig))
_RENAMED = {"accumulate_df": "default_accumulate_df", "math_fidelity": "default_math_fidelity"}
"""Options that attributes have other names for."""
_config = CompilerConfig()
"""Programs set options before they name a device: there is one configuration."""


def _get_global_compiler_config() -> CompilerConfig:
    """Return the configuration of all compilations from now on; its attributes can be set."""
    return _config


compiler = _get_global_compiler_config


def set_configuration_options(**options: object) -> None:
    """Set options of all compilations from now on; None leaves one as it is.

    Raises `PyBudaError` for an option that there is not.
    """
    for name, value in options.items():
        if value is not None:
            setattr(_config, _RENAMED.get(name, name), value)


def set_epoch_break(op_names: Chosen | list[Chosen]) -> None:
    """Let the first of these operators that runs begin a section: a name, a predicate, or some."""
    _config.place_on_new_epoch(op_names)


def set_chip_break(op_names: Chosen | list[Chosen]) -> None:
    """Let the first of these operators begin a section: the device here is one chip."""
    _config.place_on_new_chip(op_names)


def reset_configuration() -> None:
    """Forget all that was set: programs may hold the one object that there is."""
    vars(_config).clear()
    vars(_config).update(vars(CompilerConfig()))


def _break(op_names: Chosen | list[Chosen]) -> Break:
    found = tuple(op_names) if isinstance(op_names, list | tuple) else (op_names,)
    for each in found:
        if not isinstance(each, str | NodePredicateBuilder):
            raise PyBudaError(
                f"{shown(each)} came; the name of an operator, or a predicate of pybuda.query, was "
                "expected"
            )
    return found
