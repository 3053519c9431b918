"""The configuration of the compiler: one for all devices of a program.

What says something of results or of sections takes effect. What tells hardware how to place and to
move is taken, and a warning says what it does there: results here do not depend on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any, TypeAlias

from pef.arguments import bound, shown
from pef.warned import warn
from pef.wording import did_you_mean
from sambac import NumberRule
from sambahost.golden import GoldenRule
from sambahost.known_operators import KnownOperators
from sambahost.predicates import NodePredicateBuilder

from ._C import DataFormat
from .errors import PyBudaError, listed, require_kind
from .number_config import CHECKS, NumberConfig

Chosen: TypeAlias = str | NodePredicateBuilder
"""An operator, by its name, or those for which a predicate holds."""
Break: TypeAlias = tuple[Chosen, ...]
"""Operators of which the first that runs begins a section."""

PerfTraceLevel = Enum("PerfTraceLevel", "NONE LIGHT VERBOSE", start=0)
"""How much hardware is to record of its own speed."""
CompileDepth = Enum(
    "CompileDepth",
    "INIT_COMPILE GENERATE_INITIAL_GRAPH POST_INITIAL_GRAPH_PASS CONSTEVAL_GRAPH "
    "POST_PATTERN_MATCHER OPTIMIZED_GRAPH AUTOGRAD POST_AUTOGRAD_PASS PRE_LOWERING_PASS "
    "BUDA_GRAPH_PRE_PLACER BALANCER_PASS PRE_NETLIST_PASS GENERATE_NETLIST BACKEND_GOLDEN_VERIFY "
    "FULL",
    start=0,
)
"""Stages of the original's compilation, in order."""


@dataclass(frozen=True)
class CompileSettings:
    """What is asked of a compilation.

    `intermediates` are the operators whose results are kept, `passes` says how those of the
    compiler are verified, if they are, `threads` how many an operator has, None one per core.
    """

    number_rules: tuple[NumberRule, ...] = ()
    breaks: tuple[Break, ...] = ()
    chip_breaks: tuple[Break, ...] = ()
    recompute: bool = False
    intermediates: tuple[str, ...] = ()
    passes: GoldenRule | None = None
    threads: int | None = None


UNSET = CompileSettings()
"""What is asked for where a program sets nothing."""

_IDLE_GROUPS: Mapping[str, str] = {
    "its runtime reads or writes files there": "backend_cluster_descriptor_path "
    "backend_device_descriptor_path backend_output_dir backend_runtime_params_path",
    "its runtime is told by it": "backend_opt_level backend_runtime_args store_backend_db_to_yaml",
    "operators get their cores by it": "balancer_op_overrides balancer_policy harvested_rows "
    "enable_auto_transposing_placement enable_enumerate_u_kt harvesting_mask place_on_one_row "
    "placer_op_overrides scheduler_constraints scheduler_policy use_interactive_placer",
    "compilation ends after that stage": "compile_depth",
    "chips are chosen by it": "chip_placement_policy device_config",
    "memory is laid out by it": "default_dram_parameters dram_placement_algorithm "
    "enable_forked_dram_inputs enable_link_past_cache_ios enable_pt2_fx_graph_link "
    "enable_single_buffer_fallback graph_solver_self_cut_type input_queues_on_host insert_queues "
    "manual_dram_queue_placement output_queues_on_host tti_dump_format",
    "operators give their results in slices by it": "enable_t_streaming manual_t_streaming",
    "operators are rewritten or not": "buffering_nops_to_insert enable_auto_fusing "
    "conv_multi_op_fracture_factor_override enable_broadcast_splitting enable_consteval "
    "enable_conv_prestride enable_device_tilize enable_stable_softmax fracture_groups "
    "match_subgraph_patterns max_pool_add_sub_surround max_pool_add_sub_surround_value "
    "op_names_dont_fuse op_names_manual_fuse paddings",
    "operators run on the host or not": "cpu_fallback_ops enable_tm_cpu_fallback "
    "enable_tvm_cpu_fallback tm_cpu_fallback_max_depth",
    "TVM is told by it": "compile_tvm_to_python convert_framework_params_to_tvm enable_tvm_dropout "
    "enable_tvm_constant_prop enable_tvm_jax_freeze_large_model enable_tvm_unsupported_ops "
    "enable_xla_jax_convert framework_model_output_names retain_tvm_python_files "
    "tvm_constnat_prop_mask tvm_graph_load_path tvm_graph_store_path tvm_module_to_num_patterns",
    "every operator is compared": "enable_op_level_comparision",
    "it says whether modules train, as calls do here": "enable_training",
    "modules are compiled or run alone, in several programs": "_device_mode compile_subgraphs "
    "device_mode",
    "devices get processes by it": "mp_context",
    "records of its speed are kept": "_perf_trace performance_trace",
}
_IDLE = {name: says for says, names in _IDLE_GROUPS.items() for name in names.split()}
"""Attributes and arguments without an effect here, and what hardware does by them."""

_HINTS: Mapping[str, tuple[Callable[..., None], str]] = {
    "_set_pybuda_override_veto": (lambda *given, **named: None, "tests set others in vain"),
    "add_cpu_fallback_ops": (lambda op_types: None, "operators of these types run on the host"),
    "add_schedule_constraint": (lambda op_names: None, "operators run in that order"),
    "balancer_op_override": (lambda op_name, attribute, value: None, "operators get other grids"),
    "dont_fuse": (lambda op_name: None, "an operator stays out of fused ones"),
    "insert_fracture_group": (lambda nodes, chip_ids=None: None, "several chips share operators"),
    "insert_buffering_nop": (lambda src_op, dest_ops, **how: None, "a copy is between operators"),
    "insert_nop": (lambda src_op, dest_ops, **options: None, "a copy stands between operators"),
    "manual_fuse": (lambda op_names: None, "operators become one"),
    "override_dram_parameters": (lambda op_name, force_dram_parameters: None, "weights stay there"),
    "override_dram_queue_placement": (lambda queue_name, **place: None, "a queue lies there"),
    "override_fracture_factor": (lambda op_name, fracture_factor: None, "an operator is split"),
    "override_input_buffer_multiplier": (
        lambda op_name, operand_index, *, multiplier: None,
        "what comes to an operator has longer buffers",
    ),
    "override_multi_op_fracture_factor": (
        lambda op_name, multi_op_fracture_factor: None,
        "an operator becomes several",
    ),
    "override_op_placement": (lambda op_name, **place: None, "an operator lies on those cores"),
    "override_op_size": (lambda op_name, grid_size: None, "an operator gets a grid of that size"),
    "override_t_stream_dir": (lambda op_name, direction: None, "results come in slices, that way"),
    "override_t_stream_shape": (lambda op_name, shape: None, "results come in so many slices"),
    "override_u_kt": (lambda op_name, u_kt: None, "a product sums blocks of that size"),
}
"""Functions without an effect here: what they take, and what hardware does by them."""


def __getattr__(name: str) -> Callable[..., None] | None:
    """Return the function of `_HINTS` that is called `name`, which warns."""
    if name == "LAST_SUCCESSFUL_STAGE":
        warn(f"{name} is None: there are not the original's stages; errors say where")
        return None
    if name not in _HINTS:
        known = (*_HINTS, *globals())
        raise AttributeError(f"pybuda.config has no '{name}'{did_you_mean(name, known)}")
    taken, says = _HINTS[name]
    taken.__qualname__ = name  # what errors of Python's call it

    def hinted(*args: object, **kwargs: object) -> None:
        bound(name, inspect.signature(taken), args, kwargs)
        warn(f"{name}: on hardware {says}; it has no effect here")

    return hinted


def warn_of_idle(**given: object) -> None:
    """Warn of what is without an effect here, unless it is None."""
    for name, value in given.items():
        if value is not None:
            warn(f"{name}={shown(value)}: on hardware {_IDLE[name]}; it has no effect here")


@dataclass(init=False)
class CompilerConfig(NumberConfig):
    """What is set for all compilations, beside formats and fidelities.

    `enable_recompute` lets training compute activations again where that saves memory.
    `op_intermediates_to_save` names operators whose results in inference
    `pybuda.get_intermediates_queue()` gets. Another attribute is one without an effect here, or
    `PyBudaError`. A new configuration takes them as keywords.
    """

    enable_recompute: bool = False
    op_intermediates_to_save: Sequence[str] = ()
    _breaks: tuple[Break, ...] = ()
    _chip_breaks: tuple[Break, ...] = ()
    _known: KnownOperators = field(default_factory=KnownOperators, repr=False, compare=False)
    _settled: dict[DataFormat | None, CompileSettings] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __init__(self, **options: object) -> None:
        for each in fields(self):
            made = each.default if each.default_factory is MISSING else each.default_factory()
            object.__setattr__(self, each.name, made)
        self._set(options)

    def _set(self, options: Mapping[str, object]) -> None:
        odd = []
        for name, value in options.items():
            try:
                if value is not None:
                    setattr(self, _RENAMED.get(name, name), value)
            except PyBudaError as error:
                odd.append(str(error))
        if odd:
            raise PyBudaError("\n".join(odd))

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _IDLE and name not in _ATTRIBUTES:
            if name in _INSTEAD:
                raise PyBudaError(f"no '{name}': {_INSTEAD[name]}")
            known = [each for each in (*_IDLE, *_ATTRIBUTES) if not each.startswith("_")]
            raise PyBudaError(f"the configuration has no '{name}'{did_you_mean(name, known)}")
        require_kind(**{name: (value, _TYPES.get(name, object))})
        if name in CHECKS:
            CHECKS[name](value, name)
        if name == "op_intermediates_to_save":
            value = tuple(listed(name, [] if value is None else value, str, "names of operators"))
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_settled", {})  # a copy of this keeps what it shared so far
        if name in _IDLE:
            warn_of_idle(**{name: value})

    def __getattr__(self, name: str) -> Any:
        if name in _HINTS:
            return __getattr__(name)
        if name not in _IDLE:
            raise AttributeError(f"the configuration has no '{name}'{did_you_mean(name, _IDLE)}")
        return {"cpu_fallback_ops": set(), "conv_multi_op_fracture_factor_override": {}}.get(name)

    def place_on_new_epoch(self, op_names: Chosen | list[Chosen]) -> None:
        """Let the first of these operators that runs begin a section."""
        self._breaks = (*self._breaks, _break(op_names))

    def place_on_new_chip(self, op_names: Chosen | list[Chosen]) -> None:
        """Let the first of these operators that runs begin a section on the device's next chip."""
        self._chip_breaks = (*self._chip_breaks, _break(op_names))

    def tell_idle(self) -> None:
        """Warn of names and predicates that were given, and that fit no operator so far."""
        chosen = [each for found in (*self._breaks, *self._chip_breaks) for each in found]
        names = [
            each for each in (*chosen, *self.op_intermediates_to_save) if isinstance(each, str)
        ]
        predicates = [each for each in chosen if not isinstance(each, str)]
        patterns = [rule.name for rule in self._rules if rule.name]
        self._known.tell(names, patterns, predicates)
        self._known.tell_rules(rule for rule in self._rules if not rule.name)

    def settings(self, fallback: DataFormat | None = None) -> CompileSettings:
        """Return what is asked of a compilation; `fallback` is held where no format is set.

        Raises `PyBudaError` for what is wrong.
        """
        found = self._settled.get(fallback)  # each call that runs something asks for it
        if found is None:
            breaks = (self._breaks, self._chip_breaks)
            kept = tuple(self.op_intermediates_to_save)
            found = CompileSettings(self.rules(fallback), *breaks, self.enable_recompute, kept)
            self._settled[fallback] = found
        return found


_ATTRIBUTES = tuple(each.name for each in fields(CompilerConfig))
_TYPES = {"enable_recompute": bool, "amp_level": int}
_RENAMED = {"accumulate_df": "default_accumulate_df", "math_fidelity": "default_math_fidelity"}
"""Options that attributes have other names for."""
_INSTEAD = {
    "amp_properties": "call configure_mixed_precision",
    "loopback_outputs": "push outputs as inputs of the next call, by hand",
    "op_names_to_chip_break": "call place_on_new_chip",
    "op_names_to_epoch_break": "call place_on_new_epoch",
}
"""Attributes of the original's that are none here, and what there is instead."""
_config = CompilerConfig()
"""Programs set options before they name a device: there is one configuration."""


def _get_global_compiler_config() -> CompilerConfig:
    """Return the configuration of all compilations from now on; its attributes can be set."""
    return _config


compiler = _get_global_compiler_config
configure_mixed_precision = _config.configure_mixed_precision


def set_configuration_options(**options: object) -> None:
    """Set options of all compilations from now on; None leaves one as it is.

    Raises `PyBudaError` that tells all that is wrong; nothing is set then.
    """
    found = copy(_config)
    found._set(options)
    vars(_config).update(vars(found))


def set_epoch_break(op_names: Chosen | list[Chosen]) -> None:
    """Let the first of these operators that runs begin a section: a name, a predicate, or some."""
    _config.place_on_new_epoch(op_names)


def set_chip_break(op_names: Chosen | list[Chosen]) -> None:
    """Let the first of these operators that runs begin a section on the device's next chip."""
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
