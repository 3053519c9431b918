"""What a user can ask of a compilation, as one frozen dataclass."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from .errors import CompileError

Level = Literal["O0", "O1", "O3"]
MappingKind = Literal["section", "spatial"]


@dataclass(frozen=True)
class InputSpec:
    """A shape, and optionally an ONNX element type number, for one model input."""

    shape: tuple[int, ...]
    dtype: int | None = None


@dataclass(frozen=True)
class CompileOptions:
    """Options of `sambac compile`.

    `level`: O0 one operator a section, O1 fused by rules, O3 the fewest sections that fit.
    `mapping`: `section` gives each section the whole chip in turn, `spatial` keeps all resident.
    `arch`: the name of a built-in architecture or the path of a TOML file.
    `inputs`: shapes that fix symbolic dimensions, by input name.
    `io_host_memory`: place the model's inputs and outputs in host memory.
    `fusion_rules`: a YAML file of additional fusion rules for O1.
    `sections`: cut O3 into exactly this many sections, where the graph allows it.
    Raises `CompileError` for a level or a mapping that does not exist, and for bare shapes.
    """

    level: Level = "O3"
    mapping: MappingKind = "section"
    arch: str = "sn40l"
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    io_host_memory: bool = False
    fusion_rules: str | os.PathLike[str] | None = None
    sections: int | None = None

    def __post_init__(self) -> None:
        for what, value, known in (
            ("level", self.level, get_args(Level)),
            ("mapping", self.mapping, get_args(MappingKind)),
        ):
            if value not in known:
                raise CompileError(f"There is no {what} {value!r}; choose {' or '.join(known)}.")
        for name, spec in self.inputs.items():
            if not isinstance(spec, InputSpec):
                raise CompileError(f"Input '{name}' is given {spec!r}; give InputSpec({spec!r}).")
