"""What a user can ask of a compilation, as one frozen dataclass."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from pef.arguments import BY_NAME, FLAG, NAME, NAMES, NUMBER, PATH, WHOLE, instance, some
from pef.wording import listed

from .errors import CompileError, require_arguments
from .input_specs import InputSpec, by_name, no_specs, parse_input
from .number_rules import NumberRule, read_number_rules, recorded
from .optimizers import Optimizer, parse_optimizer
from .option import (
    Scope,
    Spelling,
    file_name,
    file_option,
    noting_given,
    option,
    options_of,
    regions,
    wrong_values,
)
from .quantized_precisions import (
    BLOCKS,
    DEFAULT_BLOCK,
    OF_QUANTIZED,
    QUANTIZED,
    Observer,
    misplaced,
)

Level = Literal["O0", "O1", "O3"]
MappingKind = Literal["section", "spatial"]
Precision = Literal[
    "float32", "mixed", "bfloat16",
    "int8", "int8-weights", "int4-weights",
    "Float16", "Float16_b", "TF32", "Lf8", "Bfp8", "Bfp4", "Bfp2", "Bfp8_b", "Bfp4_b", "Bfp2_b",
]  # fmt: skip


def _shapes(inputs: Mapping[str, InputSpec]) -> dict[str, object]:
    return {name: {"shape": list(s.shape), "dtype": s.dtype} for name, s in inputs.items()}


def _settings(optimizers: Iterable[Optimizer]) -> list[dict[str, object]]:
    return [{"kind": optimizer.kind, **asdict(optimizer)} for optimizer in optimizers]


@noting_given
@dataclass(frozen=True)
class CompileOptions:
    """Options of `sambac compile`.

    What the program is planned for:

    - `level`: O0 one operator per section, O1 fused by rules, O3 the fewest sections that fit.
    - `mapping`: `section` gives each section the whole chip in turn, `spatial` keeps all resident.
    - `arch`: the name of a built-in architecture or the path of a TOML file.
    - `num_tiles`: the tiles of a chip to plan and estimate for; None means all. `n_chips`: chips
      that share the work of each operator (tensor parallelism), to plan and estimate for.
    - `io_host_memory`: place the model's inputs and outputs in host memory. `memory`: the region
      (DDR, HBM or HOST) of single tensors, by the names of inputs, outputs, parameters and what
      else crosses sections; it wins over `io_host_memory` and the planner.
    - `fusion_rules`: a YAML file of additional fusion rules for O1.
    - `sections`: cut O3 into exactly this many sections, where the graph allows it.
    - `section_breaks`: patterns, each for the whole name of an operator, of its result or of its
      module; the first operator of the forward pass that fits one begins a section. `chip_breaks`
      are such patterns, too; what follows is for the next chip of a pipeline (`pef.chips_of`).

    What it computes:

    - `inputs`: shapes that fix symbolic dimensions, by input name.
    - `precision`: `float32` computes in it throughout; `mixed` rounds what matrix products,
      convolutions and attention multiply to bfloat16, backward ones too; `bfloat16` rounds what
      every operator of the forward and backward pass reads, and its results; a format (`Bfp8_b`
      ...) is that of what products multiply. Sums are float32 ones, and what is updated stays
      float32: parameters, the state of optimizers, running statistics.
      Of inference alone are `int4-weights` and `int8-weights`, constant weights of matrix products
      in so many bits, and `int8`, matrix products with constant weights that multiply bytes, and
      with `calibrate` convolutions, too.
    - `weight_block`: how many weights share a scale (32, 64 or 128; None: 64).
    - `calibrate`: an .npz file with batches of inputs. An `observer` finds ranges in it: all that
      was seen (`minmax`, None), means of each batch's extremes (`average`), all but one number in
      ten thousand at each end (`percentile`), what loses the least information (`entropy`) or has
      the least squared error (`histogram`); three go by torch's names, too.
    - `max_error`: layers stay in float32 until the relative error of outputs on these batches is at
      most this, those first that gain least for their error. `expect`: an .npz file with what
      outputs should be there, labels for one with an axis of classes, or its numbers; `max_error`
      is then by how much more of them may be wrong than in float32.
    - `number_rules`: formats and fidelities of single operators; they win over `precision`.
    - `tuning`: a file of `sambac tune`: which formulations of operators were measured to be faster
      than those that are taken without it.

    Training:

    - `train`: add backward sections, and those of `optimizers` if there are any.
    - `loss`: the outputs to minimise, by name or as `cross_entropy:LOGITS,LABELS` or
      `mse:PREDICTION,TARGET`; none means the one scalar floating-point output.
    - `backward_from`: further outputs, of any shape, from which the backward pass starts; no loss
      is needed beside them. As that of a loss, the gradient of such an output is an input,
      `<output>__grad`, with ones as its default. Outputs that are no floating-point tensors, or
      that nothing trained has an influence on, are left out as long as others remain.
    - `input_grads`: floating-point inputs of which BCKWD gives the gradient too, as the result
      `<input>__grad`. It is that of one run, even where others accumulate.
    - `optimizers`: what updates the parameters. `freeze`: patterns of parameters to leave alone.
    - `max_grad_norm`: clip gradients to this global norm. `accumulate`: gradients add up over runs
      until a ZEROGRAD section clears them. `balance`: scale the gradients of several losses to
      equal norms before they are added up.
    - `recompute`: compute activations again where that saves more memory than it costs time.
    - `data_parallel`: a REDUCE section, in which processes that train together reduce their
      gradients.

    Raises `CompileError` for a value that does not exist or does not go with another, and for bare
    shapes.
    """

    level: Level = option(
        "O3",
        NAME,
        Scope.PROGRAM,
        Spelling(
            "-O",
            "-O0: one operator per section; -O1: operators fused by rules; "
            "-O3 (default): as few sections as fit.",
            words=("0", "1", "3"),
            read="O{}".format,
        ),
        choices=get_args(Level),
    )
    mapping: MappingKind = option(
        "section",
        NAME,
        Scope.PROGRAM,
        Spelling(
            "--mapping", "Give each section the chip in turn, or keep all of them on it at once."
        ),
        choices=get_args(MappingKind),
    )
    precision: Precision = option(
        "float32",
        NAME,
        Scope.MODEL,
        Spelling(
            "--precision",
            "Compute in float32; round the operands of matrix products (mixed) or all numbers "
            "(bfloat16) to bfloat16; round the operands of products to a format of the device "
            "(Bfp8_b ...); multiply bytes (int8); or store weights in 4 or 8 bits (int4-weights, "
            "int8-weights).",
            "float32|mixed|bfloat16|int8|int4-weights|...",
        ),
        choices=get_args(Precision),
    )
    arch: str = option(
        "sn40l",
        PATH._replace(words="the name of an architecture or a path"),
        Scope.PROGRAM,
        Spelling("--arch", "The device: sn10, sn30, sn40l, or a TOML file.", "NAME|FILE"),
        record=file_name,
    )
    inputs: Mapping[str, InputSpec] = option(
        {},
        BY_NAME,
        Scope.MODEL,
        Spelling(
            "--input",
            "Fix the shape of an input. May be repeated.",
            "NAME=1x3x224x224[:DTYPE]",
            read=parse_input,
            collect=by_name,
        ),
        record=_shapes,
    )
    io_host_memory: bool = option(
        False,
        FLAG,
        Scope.PROGRAM,
        Spelling("--io-host-memory", "Keep inputs and outputs in host memory."),
    )
    memory: Mapping[str, str] = option({}, BY_NAME, Scope.PROGRAM, record=regions, brief=True)
    fusion_rules: str | os.PathLike[str] | None = file_option(
        Scope.PROGRAM, "--fusion-rules", "More fusion rules (YAML) for -O1."
    )
    sections: int | None = option(None, WHOLE.above(0).or_none(), Scope.PROGRAM)
    train: bool = option(
        False,
        FLAG,
        Scope.TRAINING,
        Spelling(
            "--train", "Compile a training step: backward sections, and what the options below add."
        ),
    )
    loss: tuple[str, ...] = option(
        (),
        NAMES,
        Scope.TRAINING,
        Spelling(
            "--loss",
            "What to minimise: an output, or cross_entropy:LOGITS,LABELS or "
            "mse:PREDICTION,TARGET, whose second name becomes an input. Default: the one scalar "
            "output. May be repeated; losses add up.",
            "NAME",
            collect=tuple,
        ),
    )
    backward_from: tuple[str, ...] = option((), NAMES, Scope.TRAINING)
    input_grads: tuple[str, ...] = option((), NAMES, Scope.TRAINING)
    optimizers: tuple[Optimizer, ...] = option(
        (),
        some(instance(Optimizer, ""), "a tuple of optimizers, such as sambac.SGD(),"),
        Scope.TRAINING,
        Spelling(
            "--optimizer",
            "Compile updates: sgd, adam, adamw, rmsprop, adagrad, lamb or lars, with torch's "
            "settings; params=PATTERN limits it to some parameters. May be repeated.",
            "KIND:lr=1e-3,...",
            read=parse_optimizer,
            collect=tuple,
        ),
        record=_settings,
    )
    freeze: tuple[str, ...] = option(
        (),
        NAMES,
        Scope.TRAINING,
        Spelling(
            "--freeze",
            "Leave these parameters as they are: 'encoder.*'. May be repeated.",
            "PATTERN",
            collect=tuple,
        ),
    )
    max_grad_norm: float | None = option(
        None,
        NUMBER.above(0).or_none(),
        Scope.TRAINING,
        Spelling(
            "--max-grad-norm", "Clip gradients to this global norm, above 0.", "X", read=float
        ),
    )
    accumulate: bool = option(
        False,
        FLAG,
        Scope.TRAINING,
        Spelling("--accumulate", "Let a step accumulate gradients over several batches."),
    )
    balance: bool = option(
        False,
        FLAG,
        Scope.TRAINING,
        Spelling("--balance", "Scale the gradients of several losses so that they count alike."),
    )
    recompute: bool = option(
        False,
        FLAG,
        Scope.TRAINING,
        Spelling(
            "--recompute",
            "Compute activations again where that saves more memory than it costs time.",
        ),
    )
    data_parallel: bool = option(
        False,
        FLAG,
        Scope.TRAINING,
        Spelling(
            "--data-parallel",
            "Let processes that train together reduce their gradients (in REDUCE sections).",
        ),
    )

    number_rules: tuple[NumberRule, ...] = option(
        (),
        some(instance(NumberRule, ""), "a tuple of sambac.NumberRule"),
        Scope.MODEL,
        Spelling(
            "--number-rules",
            "Formats and fidelities of single operators (YAML).",
            "FILE",
            read=read_number_rules,
            path=True,
        ),
        record=recorded,
        brief=True,
    )

    weight_block: int | None = option(
        None,
        WHOLE.or_none(),
        Scope.MODEL,
        Spelling(
            "--weight-block",
            "How many weights of int4-weights and int8-weights share a scale: "
            f"{', '.join(map(str, BLOCKS))} (default: {DEFAULT_BLOCK}).",
            "N",
            read=int,
        ),
        brief=True,
    )
    calibrate: str | os.PathLike[str] | None = file_option(
        Scope.MODEL,
        "--calibrate",
        "Batches of inputs (.npz) to measure ranges and errors on; int8 convolutions need them.",
        brief=True,
    )
    observer: Observer | None = option(
        None,
        NAME.or_none(),
        Scope.MODEL,
        Spelling(
            "--observer",
            "How ranges are found in these batches (default: minmax), or a torch observer.",
            "minmax|average|percentile|entropy|...",
        ),
        choices=get_args(Observer),
        brief=True,
    )
    max_error: float | None = option(
        None,
        NUMBER.above(0).or_none(),
        Scope.MODEL,
        Spelling(
            "--max-error",
            "Leave layers in float32 until the relative error of the outputs on these batches is "
            "at most X.",
            "X",
            read=float,
        ),
        brief=True,
    )
    expect: str | os.PathLike[str] | None = file_option(
        Scope.MODEL,
        "--expect",
        "Expected outputs for the --calibrate batches (.npz): labels, or numbers. --max-error is "
        "then how much worse than in float32 the outputs may be.",
        brief=True,
    )

    tuning: str | os.PathLike[str] | None = file_option(
        Scope.MODEL,
        "--tuning",
        "Formulations of operators that `sambac tune` measured to be fastest.",
        brief=True,
    )

    section_breaks: tuple[str, ...] = option((), NAMES, Scope.MODEL, brief=True)
    chip_breaks: tuple[str, ...] = option((), NAMES, Scope.MODEL, brief=True)

    num_tiles: int | None = option(
        None,
        WHOLE.above(0).or_none(),
        Scope.PROGRAM,
        Spelling(
            "--num-tiles",
            "Plan and estimate for N tiles of the chip. Default: all.",
            "N",
            read=int,
        ),
        brief=True,
    )
    n_chips: int | None = option(
        None,
        WHOLE.above(0).or_none(),
        Scope.PROGRAM,
        Spelling(
            "--n-chips",
            "Plan and estimate for N chips that share the work of each operator. Default: 1.",
            "N",
            read=int,
        ),
        brief=True,
    )

    def __post_init__(self) -> None:
        known = options_of(self)
        values = {name: getattr(self, name) for name in known}
        require_arguments(**{name: (values[name], each.kind) for name, each in known.items()})
        for name, each in known.items():
            if each.choices and values[name] not in (None, *each.choices):
                raise CompileError(
                    f"There is no {name} {values[name]!r}; choose {' or '.join(each.choices)}."
                )
        bare = no_specs(self.inputs) if self.inputs else ()
        for problem in (*bare, *wrong_values(values)):
            raise CompileError(problem)
        if self.precision in QUANTIZED or any(values[name] is not None for name in OF_QUANTIZED):
            for problem in misplaced(self.precision, values):
                raise CompileError(problem)
        of_training = [name for name, each in known.items() if each.scope is Scope.TRAINING]
        given = [name for name in of_training if values[name]]
        if given and not self.train:
            raise CompileError(f"{listed(given)}: of use only in training; add train (--train).")
        if self.fusion_rules is not None and self.level != "O1":
            raise CompileError(
                "fusion_rules (--fusion-rules) are for level O1 (-O1); choose it, or drop them."
            )
