"""What is nearly a normalisation, so that onnxruntime does not take it for one.

With any p and e, and n that Sqrt(ReduceMean(Pow(d, p)) + e) divides, or that divides it,

    ReduceMean(Pow(d, p))  ->  ReduceMean(Concat(Pow(d, p)))
    ReduceMean(Pow(d, p))  ->  ReduceMean(Reshape(Pow(d, p), its shape))    of any number of axes

but for what is one, over the last axes, but not all: with constant p = 2 and float32 e, and n = d,

    x / Sqrt(ReduceMean(Pow(x, 2)) + e)
    d / Sqrt(ReduceMean(Pow(d, 2)) + e)    d = x - ReduceMean(x)
    e + ReduceMean(..)                     ->  ReduceMean(..) + e

where the factor and the summand behind it give the result no axes or sizes of their own, and are of
one type. n * (1 / Sqrt(..)) is a division too. onnxruntime makes a LayerNormalization of it,
whatever p is, which way the division and the subtraction go, if means keep their axis or not, and
of what they are. It takes an e that stands first, that only a run tells, or of another type, for
1e-5, and one of several numbers for its first; where all axes are the last ones it may take the
quotient for the factor. Through these it does not look.

    Cast(x)  ->  Concat(Cast(x))

where that is normalised, and its factor is not of the type of x: onnxruntime would leave out the
Cast, and then refuse its own operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute
from sambac.passes.rewriting import Rule, RulePass, integers, made_by, scalar


@dataclass(frozen=True)
class _Divisor:
    """Sqrt(mean of Pow(x, p) + e): what adds, means and takes the power, and e."""

    total: ir.Node
    mean: ir.Node
    power: ir.Node
    epsilon: ir.Value | None


def keep_deviation(editor: Editor, node: ir.Node) -> str | None:
    """Hide the power behind a division that is no normalisation."""
    for numerator, root in _quotients(node):
        for divisor in _divisors(root):
            whole = numerator is not None and _is_normalisation(numerator, divisor)
            if whole and _stays(node.outputs[0]):
                _hide_cast(editor, node.outputs[0], divisor)
                return _put_last(divisor)
            power = divisor.power.outputs[0]
            if power.shape is not None and not power.shape:
                return "it has no axes"  # nor has a Concat
            editor.go_before(divisor.mean)
            divisor.mean.replace_input_with(0, _hidden(editor, power))
            return None
    return "it is no division by, or of, a root of a mean of powers"


def _hidden(editor: Editor, power: ir.Value) -> ir.Value:
    """Return `power` as onnxruntime does not look through it; without axes it has no Concat."""
    if power.shape is None:
        return editor.op("Reshape", power, editor.op("Shape", power), like=power)
    return editor.op("Concat", power, like=power, axis=0)


def _quotients(node: ir.Node) -> Iterator[tuple[ir.Value | None, ir.Value | None]]:
    """Yield what may be divided by what; None where a root may be the numerator."""
    first, second = node.inputs
    if node.op_type == "Div":
        if scalar(first) != 1:  # its product is a division
            yield first, second
        yield None, first
        return
    for x, factor in ((first, second), (second, first)):
        inverse = made_by(factor, "Div")
        if inverse is not None and scalar(inverse.inputs[0]) == 1:
            yield x, inverse.inputs[1]


def _divisors(root: ir.Value | None) -> Iterator[_Divisor]:
    """Yield what `root` is the root of, once for each operand that may be the mean."""
    outer = _behind(root, "Sqrt")
    total = _behind(outer.inputs[0], "Add") if outer is not None else None
    for at in (0, 1) if total is not None else ():
        mean = _behind(total.inputs[at], "ReduceMean") if total is not None else None
        power = _behind(mean.inputs[0], "Pow") if mean is not None else None
        if total is not None and mean is not None and power is not None:
            yield _Divisor(total, mean, power, total.inputs[1 - at])


def _behind(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """Return what makes `value`, perhaps before a Cast, if it is one of these operators."""
    return made_by(_cast(value), *op_types)


def _cast(value: ir.Value | None) -> ir.Value | None:
    """Return what `value` is cast from, or itself."""
    cast = made_by(value, "Cast")
    return value if cast is None else cast.inputs[0]


def _is_normalisation(numerator: ir.Value, divisor: _Divisor) -> bool:
    """Tell whether the quotient is what onnxruntime makes of it."""
    means, squared = [divisor.mean], _cast(divisor.power.inputs[0])
    if scalar(divisor.power.inputs[1]) != 2 or not _is_epsilon(divisor.epsilon):
        return False
    if _cast(numerator) is not squared:
        one, other = _behind(numerator, "Sub"), made_by(squared, "Sub")
        if one is None or other is None or tuple(one.inputs) != tuple(other.inputs):
            return False
    deviation = made_by(squared, "Sub")
    middle = _behind(deviation.inputs[1], "ReduceMean") if deviation is not None else None
    if deviation is not None and middle is not None:
        if _cast(middle.inputs[0]) is not _cast(deviation.inputs[0]):
            return False
        means.append(middle)
    elif deviation is not None and _behind(deviation.inputs[0], "ReduceMean") is not None:
        return False
    axes = {_last_axes(mean) for mean in means}
    return len(axes) == 1 and None not in axes


def _is_epsilon(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == ir.DataType.FLOAT and scalar(value) is not None


def _last_axes(mean: ir.Node) -> int | None:
    """Return over how many last axes a mean is that keeps its axes, None for all and any other."""
    x, attribute = mean.inputs[0], mean.attributes.get("axes")
    given = integers(input_at(mean, 1)) if attribute is None else tuple(attribute.as_ints())
    if not given or x is None or x.shape is None or not int_attribute(mean, "keepdims", 1):
        return None
    rank = len(x.shape)
    counted = sorted(axis % rank for axis in given)
    first = rank - len(counted)
    return len(counted) if first > 0 and counted == [*range(first, rank)] else None


def _stays(quotient: ir.Value) -> bool:
    """Tell whether what scales and moves a quotient leaves its axes, and is of one type."""
    value, others = quotient, []
    for op_type in ("Mul", "Add"):
        readers = [_through_cast(reader) for reader in value.consumers()]
        found = [reader for reader in readers if reader.op_type == op_type]
        if len(readers) != 1 or not found:
            break
        reader = found[0]
        others += [other for other in reader.inputs if _cast(other) is not value]
        if _differ(reader.outputs[0].shape, quotient.shape):
            return False
        value = reader.outputs[0]
    return len({other.dtype for other in others if other is not None}) <= 1


def _hide_cast(editor: Editor, quotient: ir.Value, divisor: _Divisor) -> None:
    """Put a Concat behind the Cast of what is normalised, where a factor has another type."""
    deviation = made_by(_cast(divisor.power.inputs[0]), "Sub")
    source = divisor.power.inputs[0] if deviation is None else deviation.inputs[0]
    narrow = _cast(source)
    factors = [
        value
        for reader in map(_through_cast, quotient.consumers())
        for value in reader.inputs
        if reader.op_type == "Mul" and _cast(value) is not quotient
    ]
    if source is None or narrow is None or narrow is source:
        return
    if all(factor is None or factor.dtype == narrow.dtype for factor in factors):
        return
    uses, cast = tuple(source.uses()), source.producer()
    assert cast is not None
    editor.go_behind(cast)
    hidden = editor.op("Concat", source, like=source, axis=0)
    for use in uses:
        use.node.replace_input_with(use.idx, hidden)


def _through_cast(node: ir.Node) -> ir.Node:
    """Return the one reader of a Cast, or else the node itself."""
    readers = tuple(node.outputs[0].consumers()) if node.op_type == "Cast" else ()
    return readers[0] if len(readers) == 1 else node


def _differ(sizes: ir.Shape | None, others: ir.Shape | None) -> bool:
    """Tell whether two shapes are not known to be of one rank, or known to have other sizes."""
    if sizes is None or others is None or len(sizes) != len(others):
        return True
    pairs = zip(sizes, others, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def _put_last(divisor: _Divisor) -> str | None:
    """Let the number that is added to a mean of squares stand behind it."""
    if divisor.total.inputs[1] is divisor.epsilon:
        return "it is a normalisation"
    mean = divisor.total.inputs[1]
    divisor.total.replace_input_with(1, divisor.epsilon)
    divisor.total.replace_input_with(0, mean)
    return None


@dataclass(frozen=True)
class KeepDeviations(RulePass):
    """Keep onnxruntime from taking divisions for normalisations that they are not."""

    name: ClassVar[str] = "keep_deviations"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Sqrt"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Div": (keep_deviation,),
        "Mul": (keep_deviation,),
    }
