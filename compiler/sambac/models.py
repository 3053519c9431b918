"""What a caller hands in: a model, example inputs for it, and which of its sizes are open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pef.arguments import NAME, instance

from .errors import require_arguments
from .options import CompileOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import onnx
    import onnx_ir as ir
    import torch

Model: TypeAlias = (
    "str | os.PathLike[str] | onnx.ModelProto | ir.Model | torch.nn.Module"
    " | torch.export.ExportedProgram"
)
Inputs: TypeAlias = "tuple[object, ...] | Mapping[str, object] | torch.Tensor"
Shapes: TypeAlias = "dict[str, object] | tuple[object, ...] | list[object]"
Progress: TypeAlias = "Callable[[str], None]"
"""What is called with the name of each stage as it begins."""


@dataclass(frozen=True)
class GraphSource:
    """A model that becomes the graph `name` of a program.

    `inputs` and `dynamic_shapes` are those of `compile`. `options` are those of this model, where
    not all are compiled alike: whether and how it trains, its precision, the shapes of its inputs.
    Those of the program, such as the level, are the same for all: what `options` do not give is as
    the program has it. A model that trains becomes two graphs, `name/train` and `name/eval`.
    """

    name: str
    model: Model
    inputs: Inputs | None = None
    options: CompileOptions | None = None
    dynamic_shapes: Shapes | None = None

    def __post_init__(self) -> None:
        options = instance(CompileOptions, "sambac.CompileOptions").or_none()
        require_arguments(name=(self.name, NAME), options=(self.options, options))
