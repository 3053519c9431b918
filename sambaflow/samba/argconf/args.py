"""Options as pydantic models, for applications that are configured by files.

Applications with such configurations bring pydantic; it is no dependency of this package.
"""

from __future__ import annotations

try:
    from pydantic import BaseModel, ConfigDict, Field
except ImportError as error:  # pragma: no cover  # pydantic is there wherever tests run
    raise ImportError(
        "sambaflow.samba.argconf.args has pydantic models, and pydantic is not installed; "
        "pip install pydantic"
    ) from error


class CommonArgs(BaseModel):
    """What compiling and running have in common; further fields are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    batch_size: int | None = 1
    microbatch_size: int | None = None
    inference: bool = False
    mapping: str | None = "section"
    num_spatial_batches: int | None = 1
    data_parallel: bool = False
    arch: str | None = None
    log_level: str | None = None
    debug: bool = False
    verbose: bool = False


class CompileArgs(CommonArgs):
    """What compiling takes; further fields are kept."""

    pef_name: str | None = None
    output_folder: str | None = "./out"
    n_chips: int | None = 1
    num_tiles: int | None = 4
    world_size: int | None = None
    optim_level: str | None = "o3"
    optimization_rules: str | None = None
    compiler_mode: str | None = None
    graphamp_preset: str | None = None
    enable_mixed_precision_ops: bool | list[str] = False
    compiler_configs_file: str | None = None
    mac_human_decision: str | None = None
    resources_scaling_factors: list[float] | None = None
    target_sambaflow_version: str | None = None
    # Switches for the mapper of hardware, without effect here. They are fields and not further
    # ones, as applications look them up in `model_fields`.
    all_regions_hbm: bool | str | None = None
    enable_coe: bool | str | None = None
    enable_distribution_pass: bool | str | None = None
    enable_multi_input_broadcast: bool | str | None = None
    enable_pcu_scaling: bool | str | None = None
    enable_safe_stochastic_rounding: bool | str | None = None
    hbm_auto_alloc: bool | str | None = None
    loop_conversion: bool | str | None = None
    o1_experimental_opts: bool | str | None = None
    optimize_concat_split: bool | str | None = None
    run_early_tp: bool | str | None = None
    skip_pnr_aware: bool | str | None = None
    tiling_accum: bool | str | None = None
    use_air_ce: bool | str | None = None
    use_o1_default_rules: bool | str | None = None
    weight_grad_reduce: bool | str | None = None


class RunArgs(CommonArgs):
    """What running takes; further fields are kept."""

    pef: str | None = None
    reduce_on_rdu: bool = False
    data_parallel_mode: str | None = "normal"
    num_iterations: int | None = 100
    run_graph_only: bool = False
    min_duration: float | None = 0.0
    min_throughput: float | None = 0.0
    samba_runtime_profile: bool = False


class FlattenSambaArgsAllowExtra(CompileArgs, RunArgs):
    """What compiling and running take, as one object that `session.setup` takes too.

    `command` says which of both is meant; further fields are kept.
    """

    command: str | None = None


class HydraSambaArgs(BaseModel):
    """What compiling and running take, each as an object of its own; further fields are kept.

    `session.setup` takes that of the `command`.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    command: str | None = None
    samba_compile: CompileArgs = Field(default_factory=CompileArgs)
    samba_run: RunArgs = Field(default_factory=RunArgs)
