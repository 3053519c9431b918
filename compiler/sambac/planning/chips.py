"""Whether several chips are of use: collectives can take longer than what the chips share."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from pef.costs import Estimate
from pef.text import human_time
from sambac.arch import load_device
from sambac.errors import CompileError
from sambac.options import CompileOptions

from .estimate import calls_of, estimate
from .plans import CostReport, ProgramPlan
from .program import plan_program


def compared_with_one(plan: ProgramPlan, costs: CostReport, options: CompileOptions) -> CostReport:
    """Return the costs of several chips with a warning where one is modelled to be faster."""
    together = _calls(plan, costs)
    try:
        alone = _on_one_chip(plan, options)
    except CompileError:  # it has no room for this
        return costs
    times = [sum(call.latency for call in calls) for calls in (alone, together)]
    if times[0] >= times[1]:
        return costs
    one, several, links = (
        human_time(1e6 * seconds) for seconds in (*times, sum(call.link for call in together))
    )
    told = (
        f"{options.n_chips} chips are modelled to take {several} for a run of all graphs, {links} "
        f"of it for collectives between them, and one chip {one}; leave out n_chips (--n-chips) "
        "for that"
    )
    return replace(costs, warnings=(*costs.warnings, told))


def _on_one_chip(plan: ProgramPlan, options: CompileOptions) -> list[Estimate]:
    alone = replace(options, n_chips=None)
    other = plan_program(plan.lowered, alone, lambda _: None)
    return _calls(other, estimate(other, load_device(alone.arch, alone.num_tiles)))


def _calls(plan: ProgramPlan, costs: CostReport) -> list[Estimate]:
    return [*chain.from_iterable(calls_of(plan, costs.sections))]
