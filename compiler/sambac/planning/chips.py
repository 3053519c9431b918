"""Whether several chips are of use: collectives can take longer than what the chips share."""

from __future__ import annotations

from collections.abc import Iterator
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


def slower_together(plan: ProgramPlan, costs: CostReport, options: CompileOptions) -> Iterator[str]:
    """Say where one chip is modelled to be faster than those that the options ask for."""
    if (options.n_chips or 1) == 1:
        return
    together = _calls(plan, costs)
    try:
        alone = _on_one_chip(plan, options)
    except CompileError:  # it has no room for this
        return
    times = [sum(call.latency for call in calls) for calls in (alone, together)]
    if times[0] < times[1]:
        one, all_chips, links = (
            human_time(1e6 * seconds) for seconds in (*times, sum(call.link for call in together))
        )
        yield (
            f"{options.n_chips} chips are modelled to take {all_chips} for a run of all graphs, "
            f"{links} of it for collectives between them, and one chip {one}; leave out n_chips "
            "(--n-chips) for that"
        )


def _on_one_chip(plan: ProgramPlan, options: CompileOptions) -> list[Estimate]:
    alone = replace(options, n_chips=None)
    other = plan_program(plan.lowered, alone, lambda _: None)
    return _calls(other, estimate(other, load_device(alone.arch, alone.num_tiles)))


def _calls(plan: ProgramPlan, costs: CostReport) -> list[Estimate]:
    return [*chain.from_iterable(calls_of(plan, costs.sections))]
