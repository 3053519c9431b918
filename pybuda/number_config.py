"""What a program asks of the numbers of its devices, as rules for the compiler.

By default devices compute in float32 with all digits, whatever the original's defaults are: what a
program sets takes effect, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pef.arguments import shown
from pef.warned import warn
from pef.wording import did_you_mean
from sambac import CompileError, NumberRule
from sambac.number_rules import OperandFormats
from sambac.numerics import FORMATS

from ._C import DataFormat, MathFidelity, NodeEpochType
from .errors import PyBudaError, counted, require_kind
from .formats import block_format, fidelity_name, held_as

InputFormats = DataFormat | Mapping[int, tuple[DataFormat, bool]]
"""A format for all operands, or by their numbers formats and whether activations are meant too."""

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Attention")
_SAME = (
    "abs add clip exp gelu leaky_relu log log_softmax pad reciprocal reduce_max reduce_sum relu "
    "reshape sigmoid softmax sqrt tanh transpose where"
)
_OPERATORS: Mapping[str, tuple[str, ...]] = {
    **{name: (name.title().replace("_", ""),) for name in _SAME.split()},
    "avg_pool2d": ("AveragePool", "GlobalAveragePool"),
    "batchnorm": ("BatchNormalization",),
    "concatenate": ("Concat",),
    "conv2d": ("Conv",),
    "conv2d_transpose": ("ConvTranspose",),
    "cosine": ("Cos",),
    "divide": ("Div",),
    "embedding": ("Gather",),
    "layernorm": ("LayerNormalization",),
    "matmul": _PRODUCTS,
    "max_pool2d": ("MaxPool",),
    "maximum": ("Max",),
    "minimum": ("Min",),
    "multiply": ("Mul",),
    "power": ("Pow",),
    "reduce_avg": ("ReduceMean",),
    "resize2d": ("Resize",),
    "sine": ("Sin",),
    "subtract": ("Sub",),
}
"""What operators become in a graph. The original multiplies matrices for convolutions, too."""

_EPOCHS = dict(zip(NodeEpochType, ("fwd", "bwd", "opt"), strict=True))
_LIGHT = {1: (8, "HiFi2"), 2: (4, "HiFi2"), 3: (4, "LoFi")}


@dataclass
class NumberConfig:
    """What is set: formats and fidelities of all operators, and rules for some.

    `default_df_override` is the format of what operators read and give, `default_accumulate_df`
    that in which they sum, `default_math_fidelity` how much of their operands products take.
    `amp_level` is 1 (formats with exponents of 8 bits), 2 (of 5 bits) or 0; the family of a
    `default_df_override` decides between the two.
    """

    default_df_override: DataFormat | None = None
    default_accumulate_df: DataFormat | None = None
    default_math_fidelity: MathFidelity | None = None
    amp_level: int | None = None
    _light: tuple[NumberRule, ...] = ()
    _rules: tuple[NumberRule, ...] = ()

    def enable_amp_light(self, level: int = 1) -> None:
        """Hold parameters of matrix products in 8 bits, in 4, or in 4 with one pass (1 to 3)."""
        if level not in _LIGHT:
            raise PyBudaError(f"enable_amp_light got {shown(level)}; levels are 1, 2 and 3")
        bits, fidelity = _LIGHT[level]
        form = block_format(bits, self.default_df_override).name
        self._light = (NumberRule(op_type=_PRODUCTS, weights={1: form}, fidelity=fidelity),)

    def configure_mixed_precision(
        self,
        *,
        op_type: str | None = None,
        epoch_type: NodeEpochType | str | None = None,
        output_df: DataFormat | None = None,
        intermediate_df: DataFormat | None = None,
        accumulate_df: DataFormat | None = None,
        math_fidelity: MathFidelity | None = None,
        name_regex: str | None = None,
        input_df: InputFormats | None = None,
        is_gradient_op: bool | None = None,
        input_parameter_indices_to_optimize: Iterable[tuple[int, int]] | None = None,
    ) -> None:
        """Say what the operators that fit all of the given selectors do to numbers.

        Later calls win over earlier ones, and over the levels of automatic mixed precision.
        Selectors are `op_type`, `epoch_type` ("fwd" or "bwd"), `name_regex` (of the whole name, of
        parameters too) and `is_gradient_op`; one is needed. `input_df` is a format for all
        operands, or by their numbers formats and whether activations are meant besides parameters.
        `input_parameter_indices_to_optimize` holds parameters in block formats of so many bits.
        """
        if all(each is None for each in (op_type, epoch_type, name_regex, is_gradient_op)):
            raise PyBudaError(
                "configure_mixed_precision needs an op_type, epoch_type, name_regex or "
                "is_gradient_op; default_df_override and default_math_fidelity are for all"
            )
        if intermediate_df is not None:
            warn("intermediate_df: on hardware partial sums lie in it; it has no effect here")
        require_kind(is_gradient_op=(is_gradient_op, bool))
        operands, weights = _inputs(input_df)
        for index, bits in _pairs(input_parameter_indices_to_optimize or ()):
            weights = {**weights, index: block_format(bits, self.default_df_override).name}
        selectors = {
            "op_type": _types(op_type),
            "stage": _stage(epoch_type, is_gradient_op),
            "name": name_regex or "",
        }
        said = {
            "operands": operands,
            "weights": weights or "",
            "output": held_as(output_df, "output_df"),
            "accumulate": _accumulator(accumulate_df, "accumulate_df"),
            "fidelity": fidelity_name(math_fidelity, "math_fidelity"),
        }
        if any(said.values()):
            self._rules = (*self._rules, _rule({**selectors, **said}))
        elif intermediate_df is None:
            warn("configure_mixed_precision got no format and no fidelity; it has no effect")

    def rules(self, fallback: DataFormat | None = None) -> tuple[NumberRule, ...]:
        """Return what is set as rules, later ones win; raise `PyBudaError` for what is wrong.

        `fallback` is the format of all where none is set.
        """
        return (*self._defaults(fallback), *self._automatic(), *self._light, *self._rules)

    def _defaults(self, fallback: DataFormat | None) -> Iterable[NumberRule]:
        form = fallback if self.default_df_override is None else self.default_df_override
        if form is not None and form is not DataFormat.Float32:
            name = held_as(form, "default_df_override")
            yield NumberRule(operands=name, output=name)
        if accumulate := _accumulator(self.default_accumulate_df, "default_accumulate_df"):
            yield NumberRule(accumulate=accumulate)
        if fidelity := fidelity_name(self.default_math_fidelity, "default_math_fidelity"):
            yield NumberRule(fidelity=fidelity)

    def _automatic(self) -> tuple[NumberRule, ...]:
        level = self.amp_level or 0
        if level not in (0, 1, 2):
            warn(f"amp_level is {shown(level)}; levels are 1 and 2, none is used")
            return ()
        if level and self.default_df_override is not None:
            level = 1 if block_format(8, self.default_df_override) is DataFormat.Bfp8_b else 2
        return _LADDER[level]


_LADDER: tuple[tuple[NumberRule, ...], ...] = (
    (),
    (
        NumberRule(
            op_type=("Softmax", "LayerNormalization"), output="Float16_b", accumulate="Float16_b"
        ),
        NumberRule(
            op_type=_PRODUCTS,
            output="Bfp8_b",
            accumulate="Float16_b",
            fidelity="HiFi2",
            weights={1: "Bfp8_b", 2: "Bfp8_b"},
        ),
    ),
    (
        NumberRule(
            op_type=_PRODUCTS,
            output="Bfp8",
            accumulate="Float16",
            operands=dict.fromkeys(range(3), "Bfp8"),
        ),
    ),
)
"""What the levels of automatic mixed precision mean."""


def _rule(settings: Mapping[str, object]) -> NumberRule:
    try:
        return NumberRule(**settings)  # type: ignore[arg-type]  # of its fields
    except CompileError as error:
        said = str(error).removeprefix("number rule: ")
        raise PyBudaError(f"configure_mixed_precision: {said}") from error


def _types(op_type: object) -> tuple[str, ...]:
    if op_type is None:
        return ()
    if not isinstance(op_type, str) or op_type not in _OPERATORS:
        hint = did_you_mean(str(op_type), _OPERATORS) or f"; known are {', '.join(_OPERATORS)}"
        raise PyBudaError(f"there are no operators of type {shown(op_type)}{hint}")
    return _OPERATORS[op_type]


def _stage(given: NodeEpochType | str | None, is_gradient_op: bool | None) -> str:
    """Return the pass that selectors of epochs and gradients mean, or nothing."""
    epoch_type = _EPOCHS[given] if isinstance(given, NodeEpochType) else given
    if epoch_type not in (None, *_EPOCHS.values()):
        raise PyBudaError(f"epoch_type is {shown(given)}; choose {', '.join(_EPOCHS.values())}")
    if epoch_type == "opt":
        raise PyBudaError(
            "epoch_type 'opt' has no formats of its own: optimizers compute in float32 here; "
            "leave the rule out"
        )
    if is_gradient_op is None:
        return epoch_type or ""
    stage = "bwd" if is_gradient_op else "fwd"
    if epoch_type not in (None, stage):
        raise PyBudaError(
            f"is_gradient_op is {is_gradient_op} and epoch_type {epoch_type!r}, which no operator "
            "is; leave one of them out"
        )
    return stage


def _inputs(input_df: InputFormats | None) -> tuple[OperandFormats, dict[int, str]]:
    """Return the formats of operands, and those of parameters among them."""
    if not isinstance(input_df, Mapping):
        return held_as(input_df, "input_df"), {}
    operands: dict[int, str] = {}
    weights: dict[int, str] = {}
    for index, said in input_df.items():
        counted("an operand of input_df", index)
        match said:
            case (form, bool(activations)):
                name = held_as(form, f"input_df[{index}]")
                (operands if activations else weights)[index] = name
            case _:
                raise PyBudaError(
                    f"input_df[{index}] is {shown(said)}; a format and whether activations are "
                    "meant too were expected, such as (DataFormat.Bfp8_b, True)"
                )
    return operands or "", weights


def _pairs(given: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Yield numbers of operands, and how many bits parameters there are to have."""
    name = "input_parameter_indices_to_optimize"
    try:
        return [(counted(f"an operand of {name}", index), bits) for index, bits in given]
    except (TypeError, ValueError):
        raise PyBudaError(f"{name} is {shown(given)}; [(1, 8)] was expected, or such") from None


def _accumulator(form: object, what: str) -> str:
    name = held_as(form, what)
    if (name and FORMATS[name].block) or name == "Lf8":
        raise PyBudaError(f"{what} is {name}; sums are kept as Float32, Float16_b or Float16")
    return name


CHECKS: Mapping[str, Callable[[object, str], str]] = {
    "default_df_override": held_as,
    "default_accumulate_df": _accumulator,
    "default_math_fidelity": fidelity_name,
}
"""What raises `PyBudaError` for a setting, with its name, that is wrong."""
