"""The options that matter to the toolchain, with their types."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SNConfig:
    """The predefined options whose values decide what is compiled and how it is run.

    A schema for `SambaConfig`: names are attributes of the namespace, types those of the defaults.
    """

    command: str = "run"
    pef: str | None = None
    batch_size: int = 1
    microbatch_size: int | None = None
    inference: bool = False
    mapping: str = "section"
    num_spatial_batches: int = 1
    n_chips: int = 1
    num_tiles: int = 4
    optim_level: str = "o3"
    data_parallel: bool = False
    reduce_on_rdu: bool = False
    data_parallel_mode: str = "normal"
    world_size: int | None = None
    num_iterations: int = 100
