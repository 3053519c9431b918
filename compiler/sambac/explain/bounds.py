"""How near the sections of a graph are to what no plan can go below."""

from __future__ import annotations

from collections.abc import Iterator

from sambac.planning.resources import limits_of, value_use
from sambac.planning.sections import fewest_sections, lower_bound, traffic_of
from sambac.planning.view import contracted
from sambac.reconstruct.rebuilt import Rebuilt

from .facts import Fact, human_bytes, quoted, share

_BOUNDS = "How near it is to what no plan can go below"


def bound_facts(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield the gaps between a graph's sections, and their traffic, and lower bounds of both.

    That of the sections asks what operators and values take of the chip, stage by stage. That of
    the traffic holds for as many sections as there are. A bound is seldom reached: it does not ask
    in which order operators can run.
    """
    limits = limits_of(rebuilt.arch)
    sections = fewest = traffic = least = 0
    for stage in rebuilt.stages:
        view = stage.plan.view
        if stage.graph != number or not view.placed:
            continue
        values = value_use(view, limits)
        parts = [stage.plan.fusion.ops_of(s.groups) for s in stage.plan.sections.sections]
        sections += len(parts)
        fewest += fewest_sections(view, limits, values)
        traffic += traffic_of(view, contracted(view.placed, parts, view.sizes))
        least += lower_bound(view, len(parts), limits, values)
    name = quoted(rebuilt.program.graphs[number].name)
    if 0 < fewest <= sections:
        yield Fact(
            _BOUNDS,
            f"Sections: graph {name} has {sections}; what it takes of the chip is in no fewer than "
            f"{fewest}, whatever is fused.",
            {"sections": sections, "least": fewest},
        )
    if traffic:
        gap = f" than {human_bytes(least)}, {share(traffic - least, traffic)} less"
        yield Fact(
            _BOUNDS,
            f"Traffic: its sections pass on {human_bytes(traffic)} through memory; of as many "
            f"sections no plan passes on less{gap if least < traffic else ''}.",
            {"bytes": traffic, "least": least},
        )
