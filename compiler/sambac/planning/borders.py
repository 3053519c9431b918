"""What each section reads and writes, copies of cloned operators included."""

from __future__ import annotations

from .plans import Border, FusionPlan, SectionPlan
from .view import DataflowView, ValueRole


def borders_of(view: DataflowView, fusion: FusionPlan, plan: SectionPlan) -> tuple[Border, ...]:
    """Return the border of every section of `plan`, all in deterministic order.

    Operators stand in topological order, inputs and weights in the order of first use, outputs in
    the order of definition. A cloned operator runs in every section that reads it, directly or
    through other cloned ones; what it reads is an input there.
    """
    position = {name: index for index, name in enumerate(view.ops)}
    members = [view.with_clones(fusion.ops_of(section.groups)) for section in plan.sections]
    ordered = [tuple(sorted(ops, key=position.__getitem__)) for ops in members]
    reads = [_reads(view, ops) for ops in ordered]
    wanted = {value for values in reads for value in values}
    wanted.update(view.outputs)
    return tuple(
        _border(view, ops, values, wanted) for ops, values in zip(ordered, reads, strict=True)
    )


def _reads(view: DataflowView, ops: tuple[str, ...]) -> dict[str, None]:
    """Return the values that `ops` read and do not define, in the order of first use."""
    defined = {value for op in ops for value in view.ops[op].outputs}
    return {value: None for op in ops for value in view.ops[op].inputs if value not in defined}


def _border(
    view: DataflowView, ops: tuple[str, ...], reads: dict[str, None], wanted: set[str]
) -> Border:
    is_weight = {name: view.values[name].role is ValueRole.WEIGHT for name in reads}
    return Border(
        ops=ops,
        inputs=tuple(name for name in reads if not is_weight[name]),
        weights=tuple(name for name in reads if is_weight[name]),
        outputs=tuple(value for op in ops for value in view.ops[op].outputs if value in wanted),
    )
