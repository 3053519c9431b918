"""The questions that a model asks, the hottest first, and what this host answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from sambac.facts import ChosenForm
from sambac.models import Progress
from sambac.ops.gradients.choice_points import CHOICE_POINTS
from sambac.ops.gradients.formulations import DTYPES, AnyPoint, parse_sizes
from sambac.tuning_file import HostTuning, Measured

from .host import block_of_channels, this_host
from .measuring import Bench, measure

_SECONDS = 60.0  # how long all measurements take, about
_WORTH = 0.95  # a guess stays, unless another formulation takes less of its time
_LIBRARIES = ("onnxruntime", "sambaflow")


@dataclass(frozen=True)
class _HotQuestion:
    """A question of the model: a problem that comes up `count` times."""

    point: AnyPoint
    problem: Any
    count: int

    @property
    def heat(self) -> float:
        """How much time is guessed to depend on the answer."""
        return float(self.count * self.point.guess(self.problem).cost(self.problem))


def tune_choices(
    choices: Iterable[ChosenForm], threads: int | None, seconds: float | None, report: Progress
) -> HostTuning:
    """Measure the formulations that there are to choose; see `sambac.tune`."""
    asked = sorted(_questions(choices), key=lambda each: -each.heat)
    working = threads or os.cpu_count() or 1
    bench = Bench(working, block_of_channels())
    answers, left = answered(asked, partial(_measured, bench=bench), seconds or _SECONDS, report)
    libraries = {name: version(name) for name in _LIBRARIES}
    return HostTuning(tuple(answers), this_host(working), libraries, left)


def _questions(choices: Iterable[ChosenForm]) -> list[_HotQuestion]:
    found = []
    for choice in choices:
        point = CHOICE_POINTS[choice.operator]
        problem = point.pose(parse_sizes(choice.sizes), DTYPES[choice.dtype])
        found.append(_HotQuestion(point, problem, len(choice.of)))
    return found


def answered(
    asked: list[_HotQuestion],
    answer: Callable[[_HotQuestion, float], Measured | None],
    seconds: float,
    report: Progress,
) -> tuple[list[Measured], int]:
    """Return the answers that `seconds` suffice for, and how many questions are left.

    The hotter ones have more of the time.
    """
    begin, left = time.perf_counter(), sum(each.heat for each in asked)
    answers: list[Measured] = []
    for number, each in enumerate(asked, 1):
        rest = seconds - (time.perf_counter() - begin)
        if rest <= 0:
            return answers, len(asked) - number + 1
        report(f"measure {number} of {len(asked)}")
        found = answer(each, rest * each.heat / left if left else rest)
        left -= each.heat
        if found is not None:
            answers.append(found)
    return answers, 0


def _measured(asked: _HotQuestion, seconds: float, bench: Bench) -> Measured | None:
    """Return the answer to one question; None where there is nothing to choose."""
    point, problem = asked.point, asked.problem
    if len(point.fitting(problem)) < 2:
        return None
    times = measure(point, problem, bench, seconds)
    if not times:
        return None
    guess, best = point.guess(problem).name, min(times, key=lambda name: times[name])
    keeps = guess in times and times[best] > _WORTH * times[guess]
    return Measured(
        point.question(problem), guess if keeps else best, guess, times, count=asked.count
    )
