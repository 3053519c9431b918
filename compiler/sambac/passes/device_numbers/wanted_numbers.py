"""What the rules want of each operator of a graph, and what that means for its operands.

A rule is about operators; here it is brought to a node: which of its operands are factors of a
product, which source of the multiplier each is, along which axis a device has its blocks.

    MatMul(a, b), Einsum(a, b)   a and b: blocks along the last axis, a is source B, b source A
    Gemm(a, b, c)                a and b as the product reads them, transposed where it says so
    Conv(x, w, c)                x: blocks of channels, source B; w: of output channels, source A
    Mul(a, b)                    a is source A, b source B
    ReduceSum(x), ReduceMean(x), AveragePool(x), GlobalAveragePool(x)     x is source A

Rules concern the operators and values of the passes, not those of updates (`NumberScope`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.graph.nodes import all_nodes, has_subgraphs, int_attribute, static_shape, subgraphs
from sambac.graph.origins import module_of, origins, place_of
from sambac.graph.value_types import infer_results
from sambac.number_rules import NumberRule, OperandFormats
from sambac.numerics import FIDELITIES, FLOAT32, FORMATS, FULL, Fidelity
from sambac.ops import family_of, is_random
from sambac.ops.family import qualified
from sambac.ops.names import known_names, op_types_of
from sambac.passes.rewriting import constant, present

FACTORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("MatMul", "Gemm", "Conv", "ConvTranspose", "DeformConv", "Einsum"), (0, 1)),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (0, 1, 2)),
    "Attention": (0, 1, 2, 4, 5),
    **dict.fromkeys(
        (
            "com.microsoft.Attention",
            "com.microsoft.FusedConv",
            "com.microsoft.FusedGemm",
            "com.microsoft.FusedMatMul",
            "com.microsoft.FusedMatMulActivation",
        ),
        (0, 1),
    ),
    "com.microsoft.MultiHeadAttention": (0, 1, 2),
    "com.microsoft.GroupQueryAttention": (0, 1, 2, 3, 4),
}
"""Which operands of operators that are made of matrix products are multiplied."""

PRODUCTS = frozenset(("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"))
"""Products of two operands that are linear in each, so that they can be made part by part."""

MULTIPLIED = frozenset(("Mul",))
SUMMED = frozenset(("ReduceSum", "ReduceMean", "AveragePool", "GlobalAveragePool"))

_BLOCK_AXES: Mapping[str, tuple[int, ...]] = {"Conv": (1, 0), "ConvTranspose": (1, 1)}
_PART_OF = "sambac.part_of"
_READ = ("factors", "operands", "weights")
_TURNS = ("transA", "transB")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of an operator; a field that is empty wants nothing.

    `reads` are the rules of what it reads, the later ones first of all.
    """

    reads: tuple[NumberRule, ...] = ()
    output: str = ""
    accumulate: str = ""
    fidelity: str = ""
    rounding: str = ""
    left: str = ""

    @property
    def passes(self) -> Fidelity | None:
        """The passes in which products are made, None for products that are not split."""
        return FIDELITIES[self.fidelity] if self.fidelity not in ("", FULL) else None

    def inside(self, count: int) -> bool:
        """Tell whether it matters how a kernel of `count` operands makes products inside of it."""
        names = [self.format_of(i, True, weight) for i in range(count) for weight in (False, True)]
        short = self.accumulate not in ("", FLOAT32.name)
        return short or self.passes is not None or any(FORMATS[n].block for n in names if n)

    def format_of(self, index: int, factor: bool, weight: bool) -> str:
        """Return the name of the format of an operand, or nothing."""
        for rule in reversed(self.reads):
            found = _by_number(rule.weights, index) if weight else ""
            found = found or (rule.factors if factor else "") or _by_number(rule.operands, index)
            if found:
                return found
        return ""

    def __str__(self) -> str:
        """Say it in a phrase, for the log."""
        read = [(name, getattr(rule, name)) for rule in self.reads for name in _READ]
        rest = [(name, getattr(self, name)) for name in self.__slots__ if name != "reads"]
        return ", ".join(f"{name} {value}" for name, value in (*read, *rest) if value)


NOTHING = Wanted()


class MatchedRules:
    """What `rules`, the later ones first of all, want of nodes. Unknown types are refused."""

    def __init__(self, rules: Sequence[NumberRule]) -> None:
        self._rules = rules
        self._types = [_types_of(rule.op_type) for rule in rules]

    def of(self, node: ir.Node, stage: str) -> Wanted:
        """Return what is wanted of `node`, which belongs to a `stage`: `fwd` or `bwd`."""
        return _wanted(node, [self._rules[index] for index in self._fitting(node, stage)])

    def of_tensor(self, value: ir.Value) -> Wanted:
        """Return what is wanted of `value`, an input or a constant: a format that it lies in."""
        wanted = NOTHING
        for index in self._naming(value):
            rule = self._rules[index]
            wanted = Wanted(output=rule.output, rounding=rule.rounding or wanted.rounding)
        return wanted

    def _naming(self, value: ir.Value) -> Iterator[int]:
        """Yield the rules that name `value`, an input or a constant."""
        names = (str(value.name), *origins(value))
        for index, rule in enumerate(self._rules):
            of_tensors = rule.name and rule.output and not rule.op_type and not rule.stage
            if of_tensors and any(re.fullmatch(rule.name, name) for name in names):
                yield index

    def report(
        self, nodes: Iterable[tuple[ir.Node, str, frozenset[int]]], tensors: Iterable[ir.Value]
    ) -> tuple[list[str], list[str]]:
        """Return lines that say what is wanted of how many nodes, and warnings.

        With each of `nodes` come its stage and the numbers of operands that are parameters. Warned
        of are rules that fit none of them and no one of `tensors`, inputs and constants, and those
        for some operators that say nothing of them.
        """
        used: Counter[int] = Counter()
        fitting: set[int] = set()
        wanted: Counter[tuple[str, str]] = Counter()
        for value in tensors:
            used.update(self._naming(value))
            if (told := self.of_tensor(value)) != NOTHING:
                wanted[("tensor", str(told))] += 1
        for node, stage, weights in nodes:
            fits = [*self._fitting(node, stage)]
            matter = [index for index in fits if _matters(node, self._rules[index], weights)]
            fitting.update(fits)
            used.update(matter)
            told = _wanted(node, [self._rules[index] for index in matter])
            if (told := _without_weights(told, bool(weights))) != NOTHING:
                wanted[(node.op_type, str(told))] += 1
        lines = [f"{count} {kind}: {told}" for (kind, told), count in sorted(wanted.items())]
        return lines, [
            f"the number rule {rule.record()} says nothing of what it fits: it has no effect"
            if index in fitting
            else f"no operator fits the number rule {rule.record()}"
            for index, rule in enumerate(self._rules)
            if not used[index] and not (index in fitting and _is_for_all(rule))
        ]

    def _fitting(self, node: ir.Node, stage: str) -> Iterator[int]:
        kinds, names = _kinds_and_names(node)
        for index, (rule, types) in enumerate(zip(self._rules, self._types, strict=True)):
            if types and types.isdisjoint(kinds):
                continue
            called = not rule.name or any(re.fullmatch(rule.name, name) for name in names)
            if called and rule.stage in ("", stage):
                yield index


def _wanted(node: ir.Node, rules: Sequence[NumberRule]) -> Wanted:
    """Return what `rules`, all of which fit `node`, want of it."""
    if not rules:
        return NOTHING
    found: dict[str, str] = {}
    for rule in rules:
        said = rule.settings().items()
        found.update({name: str(value) for name, value in said if name not in _READ})
    reads = tuple(rule for rule in rules if any(getattr(rule, name) for name in _READ))
    return _that_matters(node, Wanted(reads, **found))


def _matters(node: ir.Node, rule: NumberRule, weights: Iterable[int]) -> bool:
    """Tell whether `rule` says something of `node`, whose operands `weights` are parameters."""
    wanted = _wanted(node, [rule])
    if replace(wanted, reads=()) != NOTHING or any(each.factors for each in wanted.reads):
        return True
    read = range(len(node.inputs))
    return any(
        _by_number(said, number)
        for each in wanted.reads
        for said, numbers in ((each.operands, read), (each.weights, weights))
        for number in numbers
    )


def _is_for_all(rule: NumberRule) -> bool:
    """Tell whether `rule` is a default: for every operator, whatever operands it has."""
    by_number = any(isinstance(said, Mapping) for said in (rule.operands, rule.weights))
    return not (rule.op_type or rule.name or rule.stage or by_number)


def _without_weights(wanted: Wanted, weighs: bool) -> Wanted:
    """Return `wanted` without what is for parameters alone, of a node that reads none."""
    if weighs:
        return wanted
    return replace(
        wanted, reads=tuple(each for each in wanted.reads if each.factors or each.operands)
    )


def _that_matters(node: ir.Node, wanted: Wanted) -> Wanted:
    """Return `wanted` without what means nothing to an operator of this type."""
    name = qualified(node.domain, node.op_type)
    if name in FACTORS:
        return wanted
    others = [rule for rule in wanted.reads if rule.operands or rule.weights]
    wanted = replace(wanted, reads=tuple(replace(rule, factors="") for rule in others))
    if name in MULTIPLIED or name in SUMMED:
        return wanted
    return replace(wanted, fidelity="", left="")


def needs_sizes(rule: NumberRule) -> bool:
    """Tell whether what `rule` wants is written with the sizes of values."""
    words = [*rule.settings().values()]
    several = [(word,) if isinstance(word, str) else word.values() for word in words]
    names = {name for each in several for name in each}
    blocks = any(name in FORMATS and FORMATS[name].block for name in names)
    return blocks or rule.accumulate not in ("", FLOAT32.name)


def axis_of(node: ir.Node, index: int) -> int:
    """Return the axis along which operand `index` has its blocks."""
    if node.op_type == "Gemm" and index < len(_TURNS):
        return -2 if int_attribute(node, _TURNS[index]) else -1
    axes = _BLOCK_AXES.get(node.op_type, ())
    return axes[index] if index < len(axes) else -1


def require_splittable(node: ir.Node, wanted: Wanted) -> None:
    """Raise `CompileError` if products inside of `node` cannot be made as its fidelity says."""
    name = qualified(node.domain, node.op_type)
    several = node.op_type == "Einsum" and len(node.inputs) != 2
    if wanted.passes and name in FACTORS and (name not in PRODUCTS or several):
        raise CompileError(
            f"'{node.name}'{place_of(node)} makes its products inside of one kernel "
            f"({node.op_type}), which knows no fidelity; leave it out with a further number rule "
            f"(op_type: {node.op_type}, fidelity: {FULL})"
        )


def _by_number(formats: OperandFormats, index: int) -> str:
    return formats if isinstance(formats, str) else formats.get(index, "")


def _types_of(names: Sequence[str]) -> frozenset[str]:
    types = {name: op_types_of(name) for name in names}
    unknown = [f"{name!r}{did_you_mean(name, known_names())}" for name, each in types.items()
               if not each]  # fmt: skip
    if unknown:
        raise CompileError(f"number rules: no known operator: {listed(unknown)}.")
    return frozenset().union(*types.values())


def note_parts(node: ir.Node, body: ir.Function) -> None:
    """Let the operators of `body`, which is to stand for `node`, remember what it is."""
    note = json.dumps(_kinds_and_names(node))
    for part in all_nodes(body):
        part.metadata_props[_PART_OF] = note


def _kinds_and_names(node: ir.Node) -> tuple[list[str], list[str]]:
    """Return the types of operators that `node` is or is a part of, and what it is called."""
    kinds, names = json.loads(node.metadata_props.get(_PART_OF, "[[], []]"))
    own = (node.name, node.outputs[0].name if node.outputs else "", module_of(node))
    return (
        [qualified(node.domain, node.op_type), *kinds],
        list(dict.fromkeys(filter(None, (*own, *names)))),
    )


_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Expand", "Cast")


@dataclass
class NumberScope:
    """The operators of a model, by what they are for.

    The forward pass needs `forward`, and both passes together need `computing`. Some output that
    is not kept exact needs `members`.
    """

    forward: frozenset[ir.Node]
    computing: frozenset[ir.Node]
    members: set[ir.Node] = field(default_factory=set)

    def stage_of(self, node: ir.Node) -> str:
        """Return the pass that `node` belongs to: `fwd` or `bwd`."""
        return "fwd" if node in self.forward else "bwd"


def needed(outputs: Iterable[ir.Value]) -> frozenset[ir.Node]:
    """Return the nodes that `outputs` need, with those inside of them."""
    pending = [node for out in outputs if (node := out.producer()) is not None]
    found: set[ir.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += [maker for value in _read(node) if (maker := value.producer())]
    return frozenset(found)


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """Yield what a node reads, and what the graphs inside of it do."""
    yield from present(node.inputs)
    for inner in subgraphs(node):
        yield from inner.outputs
        for step in inner:
            yield from _read(step)


def is_stored(value: ir.Value) -> bool:
    """Tell whether `value` is a constant that no caller can override."""
    return value.is_initializer() and not value.is_graph_input()


def is_weight(value: ir.Value, names: frozenset[str]) -> bool:
    """Tell whether `value` is a weight, or one that was only moved; `names` are those of states."""
    maker = value.producer()
    while maker is not None and maker.op_type in _MOVES and maker.inputs[0] is not None:
        value = maker.inputs[0]
        maker = value.producer()
    return is_stored(value) or value.name in names


def depends_on_constants(node: ir.Node, fixed: set[ir.Value]) -> bool:
    """Tell whether a node computes from constants, `fixed` values and shapes alone."""
    if is_random(node) or has_subgraphs(node):
        return False
    if node.domain == "" and node.op_type in ("Shape", "Size"):
        return True
    return all(value in fixed or is_stored(value) for value in present(node.inputs))


def find_sizes(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Find the sizes that `node` makes of known ones, with constants from around a branch, too."""
    open_ = any(static_shape(value) is None for value in node.outputs if value.name)
    known = all(static_shape(value) is not None for value in present(node.inputs))
    if open_ and known and not node.domain and not has_subgraphs(node):
        infer_results(node, opsets)


def is_move(node: ir.Node) -> bool:
    """Tell whether `node` only moves data."""
    family = family_of(node.domain, node.op_type)
    return family is not None and family.name == "movement"


def is_float32(value: ir.Value) -> bool:
    """Tell whether `value` is a tensor of float32."""
    return isinstance(value.type, ir.TensorType) and value.dtype == ir.DataType.FLOAT


def selects(value: ir.Value | None) -> bool:
    """Tell whether a factor consists of ones and zeros, so that the product is a sum."""
    array = constant(value)
    if array is None or array.size < 2 or array.flat[0] not in (0, 1):
        return False
    return bool(((array == 0) | (array == 1)).all())


def is_number(value: ir.Value) -> bool:
    """Tell whether `value` is a constant of one element, which is part of an operator."""
    array = constant(value)
    return array is not None and array.size == 1
