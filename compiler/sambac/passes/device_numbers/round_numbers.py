"""Numbers rounded as a device holds, multiplies and sums them, and kept in float32.

    R(x)  =  x in a format, and of that some digits    operators: `number_ops`
    R(w)  =  the numbers, rounded now                  w a constant

    MatMul(a, b)  ->  MatMul(R(a), R(b))               factors, of Gemm, Conv, ConvTranspose,
                                                       attention and others too, backward ones
                                                       as well; sums and what is added: float32
    Op(a, b)      ->  Op(R(a), R(b))                   operands, of every operator but the settings
    y = Op(a)     ->  R(y)                             outputs, where they are read or given out
    MatMul(Transpose(a), b)  ->  MatMul(Transpose(R(a)), R(b))
    MatMul(a, b)  ->  a sum of several                 fidelity, accumulate: `product_parts`

The rules say which of it for which operator (`wanted_numbers`). A factor of ones and zeros makes a
sum of a product, as gradients of biases are written: it is not rounded, nor is what it adds up. Not
rounded are also what depends on shapes and constants alone, constants of one element, which are
part of an operator, and what only the outputs in `apart` need: that is computed in float32 from
rounded results. What is rounded already, or moved only after it was, is not rounded again.

Rounding is part of what is computed: it is decided on the legal graph, so that numbers depend on
neither the simplifications nor the sections that follow. No pass may cancel R: a cast to bfloat16
loses digits, so `remove_no_ops` and `merge_chains` leave it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of
from sambac.graph.nodes import all_nodes, subgraphs
from sambac.number_rules import NumberRule
from sambac.numerics import FLOAT32, FORMATS, SOURCE_A, SOURCE_B, NumberFormat, SourceRegister
from sambac.ops.family import qualified
from sambac.passes.base import Pass
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.rewriting import combine, constant, derived_name, made_by, present
from sambac.passes.simplify.fold_constants import FoldConstants

from .number_ops import NumberSpec, first_part, put, second_part
from .product_parts import STEPWISE, Pair, accumulated, added, expand_products
from .wanted_numbers import (
    FACTORS,
    MULTIPLIED,
    NOTHING,
    PRODUCTS,
    SUMMED,
    MatchedRules,
    NumberScope,
    Wanted,
    axis_of,
    depends_on_constants,
    find_sizes,
    is_float32,
    is_move,
    is_number,
    is_weight,
    needed,
    needs_sizes,
    require_splittable,
    selects,
)

_SETTINGS: dict[str, tuple[int, ...]] = {
    "DequantizeLinear": (),
    "QuantizeLinear": (0,),
    "Range": (),
    "Resize": (0,),
    "Upsample": (0,),
}
"""Operators with operands that say what is done, not to what: the others are listed."""

_CHOOSE = frozenset(("Abs", "Max", "MaxPool", "Min", "Neg", "ReduceMax", "ReduceMin", "Relu",
                     "Where", "GlobalMaxPool"))  # fmt: skip
_MAKE = frozenset(("Dropout", "EyeLike", "Range", "ConstantOfShape", "Pad"))

_SIZES = (FoldConstants(), InferShapes())  # find the sizes that a model computes

_Known = MutableMapping[tuple[ir.Value, NumberSpec], ir.Value]
_Held = tuple[NumberFormat, str, int]


@dataclass(frozen=True)
class RoundNumbers(Pass):
    """Round numbers as `rules` say.

    `weights` names the inputs of the graph that are parameters. `apart` names outputs that are left
    in float32, `backward` those of the backward pass and `later` those of stages behind it.
    """

    name: ClassVar[str] = "round_numbers"
    rules: tuple[NumberRule, ...] = ()
    weights: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    backward: frozenset[str] = frozenset()
    later: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert the operators in `model`, subgraphs included."""
        matched = MatchedRules(self.rules)
        expand_products(model, matched)
        if any(map(needs_sizes, self.rules)):
            for step in _SIZES:
                step(model)
        _Rounding(Editor(model), matched, self.scope(model), self.weights).run(model.graph)
        return ir.passes.PassResult(model, modified=True)

    def scope(self, model: ir.Model) -> NumberScope:
        """Return which operators of `model` are concerned."""

        def without(*names: frozenset[str]) -> frozenset[ir.Node]:
            left = frozenset().union(*names)
            return needed(out for out in model.graph.outputs if out.name not in left)

        return NumberScope(
            without(self.backward, self.later), without(self.later), set(without(self.apart))
        )

    def report(self, model: ir.Model) -> tuple[list[str], list[str]]:
        """Return lines that say what the rules want of `model`, and warnings."""
        scope = self.scope(model)
        matched = MatchedRules(self.rules)
        nodes = [
            node
            for node in all_nodes(model.graph)
            if node in scope.computing and any(map(is_float32, node.outputs))
        ]
        wanted = []
        for node in nodes:
            weights = frozenset(
                number
                for number, value in enumerate(node.inputs)
                if value is not None and is_weight(value, self.weights)
            )
            wanted.append((node, scope.stage_of(node), weights))
        return matched.report(wanted, _tensors(model.graph))


def _tensors(graph: ir.Graph) -> list[ir.Value]:
    """Return the inputs and constants of `graph` that may be rounded."""
    return [value for value in (*graph.inputs, *graph.initializers.values()) if is_float32(value)]


@dataclass
class _Rounding:
    """Rounds in one model, each value once in a graph.

    `held` says which values are in which formats already, `digits` how many of them have not all,
    and `pending` what results are to become where they are read. `fixed` values depend on
    constants and shapes alone.
    """

    editor: Editor
    matched: MatchedRules
    scope: NumberScope
    weights: frozenset[str]
    held: dict[ir.Value, set[_Held]] = field(default_factory=dict)
    digits: dict[ir.Value, int] = field(default_factory=dict)
    pending: dict[ir.Value, tuple[NumberSpec, ...]] = field(default_factory=dict)
    fixed: set[ir.Value] = field(default_factory=set)

    def run(self, graph: ir.Graph) -> None:
        """Round in `graph` and its subgraphs."""
        for value in _tensors(graph):
            wanted = self.matched.of_tensor(value)
            if wanted.output:
                self.pending[value] = (_in_format(wanted.output, wanted, -1),)
        self._graph(graph, {})

    def _graph(self, graph: ir.Graph, known: _Known) -> None:
        for node in tuple(graph):
            find_sizes(node, self.editor.model.opset_imports)
            fixed = depends_on_constants(node, self.fixed)
            wanted = NOTHING if fixed else self._wanted(node)
            self.editor.rewrite(node)
            for index, value in self._data(node):
                for spec in (*self.pending.get(value, ()), *self._specs(node, index, wanted)):
                    value = self._rounded(value, spec, known)
                node.replace_input_with(index, value)
            self._note_moves(node)
            if fixed:
                self.fixed.update(node.outputs)
                continue
            for inner in subgraphs(node):
                self._graph(inner, ChainMap({}, known))
            self._await(self._made_of_parts(node, wanted, known), wanted)
        self._outputs(graph, known)

    def _wanted(self, node: ir.Node) -> Wanted:
        if node not in self.scope.computing:
            return NOTHING
        wanted = self.matched.of(node, self.scope.stage_of(node))
        require_splittable(node, wanted)
        return wanted

    def _data(self, node: ir.Node) -> Iterator[tuple[int, ir.Value]]:
        """Yield the operands of `node` that may be rounded, by number."""
        chosen = _SETTINGS.get(qualified(node.domain, node.op_type), range(len(node.inputs)))
        for index, value in enumerate(node.inputs):
            if index in chosen and value is not None and is_float32(value):
                yield index, value

    def _specs(self, node: ir.Node, index: int, wanted: Wanted) -> tuple[NumberSpec, ...]:
        """Return what operand `index` of `node` is to become."""
        value = node.inputs[index]
        if wanted == NOTHING or value is None or not self._takes_part(node, value):
            return ()
        factors = _factors(node)
        factor = index in factors
        if not factor and is_number(value):
            return ()
        name = wanted.format_of(index, factor, is_weight(value, self.weights))
        return (_in_format(name, wanted, axis_of(node, index)),) if name else ()

    def _takes_part(self, node: ir.Node, value: ir.Value) -> bool:
        if node in self.scope.members or value.producer() in self.scope.members:
            return True
        return node in self.scope.computing and node.op_type in PRODUCTS

    def _rounded(self, value: ir.Value, spec: NumberSpec, known: _Known) -> ir.Value:
        """Return R(value), for where the editor is and what lies behind that in its graph."""
        if self._is_so(value, spec):
            return value
        if (value, spec) not in known:
            made = self._make(value, spec, known)
            known[value, spec] = made
            self.held.setdefault(made, set()).add(_key(spec, value))
            self.digits[made] = min(spec.digits, spec.form.digits)
        return known[value, spec]

    def _is_so(self, value: ir.Value, spec: NumberSpec) -> bool:
        if spec.form is FLOAT32:
            return self._digits_of(value, spec.digits) <= spec.digits
        empty = value.shape is not None and 0 in value.shape
        return empty or _key(spec, value) in self.held.get(value, ())

    def _digits_of(self, value: ir.Value, wanted: int) -> int:
        """Return how many digits a value has at most; of constants, whether as many as `wanted`."""
        array = constant(value)
        if value not in self.digits and array is not None and (wanted < FLOAT32.digits):
            same = np.array_equal(combine(NumberSpec(digits=wanted).of, array), array)
            return wanted if same else FLOAT32.digits
        return self.digits.get(value, FLOAT32.digits)

    def _make(self, value: ir.Value, spec: NumberSpec, known: _Known) -> ir.Value:
        array = constant(value)
        if array is not None:
            name = derived_name(value, spec.suffix)
            return self.editor.initializer(combine(spec.of, array), name, origin=[value])
        turn = made_by(value, "Transpose")
        if turn is None or turn.inputs[0] is None:
            return put(self.editor, value, spec)
        perm = turn.attributes["perm"].as_ints() if "perm" in turn.attributes else None
        order = perm if perm is not None else [*reversed(range(rank_of(value)))]
        before = replace(spec, axis=order[spec.axis]) if spec.form.block else spec
        straight = self._rounded(turn.inputs[0], before, known)
        name = f"{value.name}_rounded"
        return self.editor.op("Transpose", straight, like=value, name=name, perm=perm)

    def _note_moves(self, node: ir.Node) -> None:
        """Note what the results of `node` are if it only gives out, but for signs, what it read."""
        moves = node.domain == "" and (
            node.op_type in _CHOOSE or (is_move(node) and node.op_type not in _MAKE)
        )
        read = [value for value in present(node.inputs) if value.dtype == ir.DataType.FLOAT]
        if not moves or "reduction" in node.attributes or node.op_type == "Col2Im" or not read:
            return
        held = {key for key in self.held.get(read[0], ()) if not key[0].block}
        common = held.intersection(*(self.held.get(value, set()) for value in read[1:]))
        digits = max(self.digits.get(value, FLOAT32.digits) for value in read)
        for value in node.outputs:
            self.held[value] = set(common)
            self.digits[value] = digits

    def _made_of_parts(self, node: ir.Node, wanted: Wanted, known: _Known) -> ir.Node:
        """Let `node` multiply and sum as wanted; return what stands in its place then."""
        sources, passes = self._sources(node, wanted), wanted.passes
        if not sources:
            return node
        self.editor.rewrite(node)
        operands = dict(zip(sources, present(node.inputs[index] for index in sources), strict=True))
        if passes:
            for index, source in sources.items():
                cut = self._cut(operands[index], passes.digits(source), known)
                node.replace_input_with(index, cut)
        if len(sources) < 2:
            return node
        left, right = present(node.inputs[:2])
        pairs = [(left, right)]
        if passes and passes.has_more:
            pairs += self._second_pair(operands, sources)
        form = FORMATS[wanted.accumulate or FLOAT32.name]
        if form is not FLOAT32 and node.op_type in STEPWISE:
            new = accumulated(self.editor, node, pairs, form)
            if new.op_type == "Identity":
                self.held[new.outputs[0]] = {_key(NumberSpec(form), new.outputs[0])}
        elif pairs[1:]:
            new = added(self.editor, node, pairs)
        else:
            return node
        if node in self.scope.members:
            self.scope.members.add(new)
        return new

    def _sources(self, node: ir.Node, wanted: Wanted) -> Mapping[int, SourceRegister]:
        """Return which source of the multiplier operands are, if it matters to what is wanted."""
        if not (wanted.passes or wanted.accumulate) or node.domain:
            return {}
        found = self._roles(node, wanted)
        read = [node.inputs[index] for index in found]
        return found if all(value is not None and is_float32(value) for value in read) else {}

    def _roles(self, node: ir.Node, wanted: Wanted) -> Mapping[int, SourceRegister]:
        if node.op_type in PRODUCTS and node in self.scope.computing:
            selecting = [index for index in (0, 1) if selects(node.inputs[index])]
            if selecting:
                return {1 - selecting[0]: SOURCE_A}
            turned = wanted.left == "SrcA"
            return dict(enumerate((SOURCE_A, SOURCE_B) if turned else (SOURCE_B, SOURCE_A)))
        if node not in self.scope.members:
            return {}
        if node.op_type in MULTIPLIED:
            return {0: SOURCE_A, 1: SOURCE_B}
        return {0: SOURCE_A} if node.op_type in SUMMED else {}

    def _cut(self, value: ir.Value, digits: int, known: _Known) -> ir.Value:
        return self._rounded(value, NumberSpec(digits=digits), known)

    def _second_pair(
        self, operands: Mapping[int, ir.Value], sources: Mapping[int, SourceRegister]
    ) -> list[Pair]:
        """Return the first part of source A and the second of B, as operands; none if it is 0."""
        found = []
        for index, source in sources.items():
            value = operands[index]
            if source is SOURCE_B:
                if self._is_so(value, NumberSpec(digits=source.first)):
                    return []
                found.append(second_part(self.editor, value, source))
            else:
                found.append(first_part(self.editor, value, source))
        return [(found[0], found[1])]

    def _await(self, node: ir.Node, wanted: Wanted) -> None:
        """Note what the results of `node` are to become."""
        if node not in self.scope.members:
            return
        specs = [
            _in_format(name, wanted, -1) for name in (wanted.accumulate, wanted.output) if name
        ]
        for value in node.outputs:
            if specs and is_float32(value):
                self.pending[value] = tuple(specs)

    def _outputs(self, graph: ir.Graph, known: _Known) -> None:
        """Let `graph` give out rounded results, under their names."""
        for index, value in enumerate(graph.outputs):
            better = value
            for spec in self.pending.get(value, ()):
                if (better, spec) not in known and not self._is_so(better, spec):
                    self.editor.rewrite(graph[-1])
                    self.editor.go_to_end(graph)
                better = self._rounded(better, spec, known)
            if better is not value:
                graph.outputs[index] = better
                value.name, better.name = better.name, value.name


def _in_format(name: str, wanted: Wanted, axis: int) -> NumberSpec:
    """Return the spec of a format; of those without blocks there is one."""
    form = FORMATS[name]
    return NumberSpec(form, wanted.rounding or "host", axis) if form.block else NumberSpec(form)


def _key(spec: NumberSpec, value: ir.Value) -> _Held:
    """Return the format of a spec for `value`, its axis counted from the front."""
    if not spec.form.block:
        return spec.form, "", 0
    return spec.form, spec.rule, spec.axis % (len(value.shape or ()) or 1)


def _factors(node: ir.Node) -> tuple[int, ...]:
    """Return which operands of `node` are factors of a product that is no mere sum."""
    name = qualified(node.domain, node.op_type)
    several = name == "Einsum" and node.inputs[1:]
    found = tuple(range(len(node.inputs))) if several else FACTORS.get(name, ())
    there = [index for index in found if index < len(node.inputs)]
    if name == "Einsum" and not several:
        return ()
    return () if any(selects(node.inputs[index]) for index in there) else tuple(there)
