"""GRADNORM: the global norm of the gradients, clipping to it, and balance between losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from pef.graphs import gradient_name
from pef.program import SectionType

from .step_graphs import StepGraph
from .terms import Term
from .units import UpdateUnit

GRAD_NORM = "grad_norm"
MAX_GRAD_NORM = "max_grad_norm"

_EPSILON = 1e-6


def rescale(
    graph: StepGraph, units: Sequence[UpdateUnit], largest: float | None, balanced: Sequence[str]
) -> list[UpdateUnit]:
    """Balance the gradients of the losses `balanced`, then clip to the argin `max_grad_norm`."""
    graph.editor.scope = "gradnorm/"
    terms = _balance(graph, units, balanced) if balanced else _gradients(graph, units)
    if largest is not None:
        norm = global_norm(terms)
        _publish(graph, norm, GRAD_NORM, units)
        factor = clip_factor(norm, graph.argin("", MAX_GRAD_NORM, largest))
        terms = [term * factor for term in terms]
    scaled = []
    for unit, term in zip(units, terms, strict=True):
        store = _overwrite if "" in unit.parts else _put_beside
        scaled.append(replace(unit, parts={"": store(graph, unit, term)}))
    return scaled


def _overwrite(graph: StepGraph, unit: UpdateUnit, term: Term) -> ir.Value:
    """Put a scaled gradient in the place of the gradient."""
    old = unit.gradient
    name = f"{graph.symbol(old)}__scaled"
    return graph.output(graph.stored(term, old), name, SectionType.GRADNORM, over=str(old.name))


def _put_beside(graph: StepGraph, unit: UpdateUnit, term: Term) -> ir.Value:
    """Put the gradient beside what it is made of, such as the gradients of several losses."""
    value = graph.stored(term, unit.weight)
    return graph.output(value, gradient_name(unit.members.name), SectionType.GRADNORM)


def _gradients(graph: StepGraph, units: Sequence[UpdateUnit]) -> list[Term]:
    return [graph.term(part) for unit in units for part in unit.parts.values()]


def _balance(graph: StepGraph, units: Sequence[UpdateUnit], losses: Sequence[str]) -> list[Term]:
    """Return the gradients of `units` over all losses, each loss's scaled to count the same."""
    term = graph.term
    shared = [unit for unit in units if len(unit.parts) == len(losses)]
    norms = [global_norm([term(unit.parts[loss]) for unit in shared]) for loss in losses]
    factors = dict(zip(losses, balance(norms), strict=True))
    for loss, factor in factors.items():
        _publish(graph, factor, f"{loss}__weight", units)
    sums = []
    for unit in units:
        (first, value), *others = unit.parts.items()
        total = term(value) * factors[first]
        for loss, part in others:
            total = total.plus(term(part), factors[loss])
        sums.append(total)
    return sums


def _publish(graph: StepGraph, number: Term, name: str, units: Sequence[UpdateUnit]) -> None:
    """Make `number` a public output, of float32 unless parameters are wider."""
    wide = any(unit.weight.dtype == ir.DataType.DOUBLE for unit in units)
    dtype = ir.DataType.DOUBLE if wide else ir.DataType.FLOAT
    graph.publish(number, name, SectionType.GRADNORM, dtype)


def global_norm(gradients: Sequence[Term]) -> Term:
    """Return the L2 norm over all elements of all `gradients`, a float64 scalar."""
    return _sum([gradient.squared_norm() for gradient in gradients]).sqrt()


def clip_factor(norm: Term, largest: Term) -> Term:
    """Return min(1, largest / (norm + 1e-6)), by which torch.nn.utils.clip_grad_norm_ scales.

    Where the norm is not a number, so is the factor, and with it every gradient.
    """
    return (largest / (norm + _EPSILON)).minimum(1.0)


def balance(norms: Sequence[Term]) -> list[Term]:
    """Return a factor for each loss that makes the norms of their gradients equal.

    factor_i = n / norm_i / (1 / norm_1 + ... + 1 / norm_n): the closed form of GradNorm (Chen et
    al., 2018) with equal training rates; the factors add up to n, the number of losses. A loss
    whose norm is 0 counts as absent, and its factor is 0.
    """
    present = [norm.is_positive() for norm in norms]
    inverse = [here / (norm + (1 - here)) for here, norm in zip(present, norms, strict=True)]
    count, total = _sum(present), _sum(inverse)
    scale = count / (total + (1 - count.minimum(1.0)))
    return [item * scale for item in inverse]


def _sum(terms: Sequence[Term]) -> Term:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
