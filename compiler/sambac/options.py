"""What a user can ask of a compilation, as one frozen dataclass."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from pef.arguments import BY_NAME, FLAG, NAME, NAMES, NUMBER, PATH, WHOLE, Kind, instance, some
from pef.program import RegionKind
from pef.wording import listed

from .errors import CompileError, require_arguments
from .optimizers import Optimizer

Level = Literal["O0", "O1", "O3"]
MappingKind = Literal["section", "spatial"]
Precision = Literal["float32", "mixed", "bfloat16"]


@dataclass(frozen=True)
class InputSpec:
    """A shape, and optionally an ONNX element type number, for one model input."""

    shape: tuple[int, ...]
    dtype: int | None = None

    def __post_init__(self) -> None:
        require_arguments(
            shape=(self.shape, some(WHOLE, "a tuple of sizes, such as (1, 3),")),
            dtype=(self.dtype, WHOLE.or_none()),
        )


_KINDS = {
    "level": NAME,
    "mapping": NAME,
    "precision": NAME,
    "arch": Kind("the name of an architecture or a path", PATH.fits),
    "inputs": BY_NAME,
    "io_host_memory": FLAG,
    "memory": BY_NAME,
    "fusion_rules": PATH.or_none(),
    "sections": WHOLE.or_none(),
    "train": FLAG,
    "loss": NAMES,
    "backward_from": NAMES,
    "input_grads": NAMES,
    "optimizers": some(instance(Optimizer, ""), "a tuple of optimizers, such as sambac.SGD(),"),
    "freeze": NAMES,
    "max_grad_norm": NUMBER.or_none(),
    "accumulate": FLAG,
    "balance": FLAG,
    "recompute": FLAG,
    "data_parallel": FLAG,
}
"""What each option may be."""


@dataclass(frozen=True)
class CompileOptions:
    """Options of `sambac compile`.

    `level`: O0 one operator a section, O1 fused by rules, O3 the fewest sections that fit.
    `mapping`: `section` gives each section the whole chip in turn, `spatial` keeps all resident.
    `precision`: `float32` computes in it throughout; `mixed` rounds what matrix products,
    convolutions and attention multiply to bfloat16, backward ones too; `bfloat16` rounds what every
    operator of the forward and backward pass reads, and its results. Sums are float32 ones, and
    what is updated stays float32: parameters, the state of optimizers, running statistics.
    `arch`: the name of a built-in architecture or the path of a TOML file.
    `inputs`: shapes that fix symbolic dimensions, by input name.
    `io_host_memory`: place the model's inputs and outputs in host memory.
    `memory`: the region (DDR, HBM or HOST) of single tensors, by the names of inputs, outputs,
    parameters and what else crosses sections; it wins over `io_host_memory` and the planner.
    `fusion_rules`: a YAML file of additional fusion rules for O1.
    `sections`: cut O3 into exactly this many sections, where the graph allows it.
    `train`: add backward sections, and those of `optimizers` if there are any.
    `loss`: the outputs to minimise, by name or as `cross_entropy:LOGITS,LABELS` or
    `mse:PREDICTION,TARGET`; none means the one scalar floating-point output.
    `backward_from`: further outputs, of any shape, from which the backward pass starts; no loss is
    needed beside them. As that of a loss, the gradient of such an output is an input,
    `<output>__grad`, with ones as its default. Outputs that are no floating-point tensors, or that
    nothing trained has an influence on, are left out as long as others remain.
    `input_grads`: floating-point inputs of which BCKWD gives the gradient too, as the result
    `<input>__grad`. It is that of one run, even where others accumulate.
    `optimizers`: what updates the parameters. `freeze`: patterns of parameters to leave alone.
    `max_grad_norm`: clip gradients to this global norm. `accumulate`: gradients add up over runs
    until a ZEROGRAD section clears them. `balance`: scale the gradients of several losses to equal
    norms before they are added up. `recompute`: compute activations again where that saves
    more memory than it costs time. `data_parallel`: a REDUCE section, in which processes that
    train together reduce their gradients.
    Raises `CompileError` for a level, a mapping or a precision that does not exist, and for bare
    shapes.
    """

    level: Level = "O3"
    mapping: MappingKind = "section"
    precision: Precision = "float32"
    arch: str = "sn40l"
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)
    io_host_memory: bool = False
    memory: Mapping[str, str] = field(default_factory=dict)
    fusion_rules: str | os.PathLike[str] | None = None
    sections: int | None = None
    train: bool = False
    loss: tuple[str, ...] = ()
    backward_from: tuple[str, ...] = ()
    input_grads: tuple[str, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    freeze: tuple[str, ...] = ()
    max_grad_norm: float | None = None
    accumulate: bool = False
    balance: bool = False
    recompute: bool = False
    data_parallel: bool = False

    def __post_init__(self) -> None:
        require_arguments(**{name: (getattr(self, name), kind) for name, kind in _KINDS.items()})
        for what, value, known in (
            ("level", self.level, get_args(Level)),
            ("mapping", self.mapping, get_args(MappingKind)),
            ("precision", self.precision, get_args(Precision)),
        ):
            if value not in known:
                raise CompileError(f"There is no {what} {value!r}; choose {' or '.join(known)}.")
        for name, spec in self.inputs.items():
            if not isinstance(spec, InputSpec):
                raise CompileError(f"Input '{name}' is given {spec!r}; give InputSpec({spec!r}).")
        self._check_regions()
        self._require_train()

    def _check_regions(self) -> None:
        kinds = tuple(kind.name for kind in RegionKind)
        problems = [
            f"memory: '{name}' is to lie in {region!r}"
            for name, region in self.memory.items()
            if str(region).upper() not in kinds
        ]
        if problems:
            raise CompileError(f"{listed(problems)}; choose {' or '.join(kinds)}.")

    def _require_train(self) -> None:
        """Raise `CompileError` for options that mean nothing without `train`."""
        if self.train:
            return
        names = (
            "loss",
            "backward_from",
            "input_grads",
            "optimizers",
            "freeze",
            "max_grad_norm",
            "accumulate",
            "balance",
            "recompute",
            "data_parallel",
        )
        given = [name for name in names if getattr(self, name)]
        if given:
            raise CompileError(f"{listed(given)}: of use only in training; add train (--train).")
