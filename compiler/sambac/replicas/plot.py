"""A plot of steps against replicas, as an SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, log2, log10

from pef.text import human_time, visible

from .simulation import MODES, ScaledStep

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 112, 56, 52
_LINES = 5
_NEAR = 15  # labels of lines are at least so many points apart
_STYLE = """
  text { font: 13px sans-serif; fill: #1a1a1a }
  .title { font-size: 15px; font-weight: 600 }
  .grid { stroke: #d8d8d8 } .axis { stroke: #666 }
  .line { fill: none; stroke-width: 2 }
  .alone { stroke: #666; stroke-dasharray: 5 4; fill: none }
  .normal { stroke: #b3412e } .inorder { stroke: #b07a00 } .optimal { stroke: #1a6fb0 }
  .normal.dot { fill: #b3412e } .inorder.dot { fill: #b07a00 } .optimal.dot { fill: #1a6fb0 }
  .paper { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e6e6 } .paper { fill: #16181b } .grid { stroke: #34383d }
    .axis, .alone { stroke: #9aa0a6 }
    .normal { stroke: #f08a78 } .inorder { stroke: #e0b04c } .optimal { stroke: #6cb6f2 }
    .normal.dot { fill: #f08a78 } .inorder.dot { fill: #e0b04c } .optimal.dot { fill: #6cb6f2 }
  }
"""


def plot(steps: Sequence[ScaledStep], title: str) -> str:
    """Return the plot of at least one step; `title` stands above it, whatever it says."""
    return "\n".join(_Plot(steps).lines(title)) + "\n"


class _Plot:
    """Steps against replicas, these on a scale of powers of two."""

    def __init__(self, steps: Sequence[ScaledStep]) -> None:
        self._steps = steps
        self._counts = sorted({step.replicas for step in steps})
        self._top = _rounded_up(max(step.seconds for step in steps))

    def lines(self, title: str) -> Iterator[str]:
        """Yield the SVG line by line."""
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'width="{_WIDTH}" height="{_HEIGHT}" role="img">'
        )
        yield f"<title>{escape(visible(title))}</title>"
        yield f"<style>{_STYLE}</style>"
        yield f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>'
        yield f'<text class="title" x="{_LEFT}" y="24">{escape(visible(title))}</text>'
        yield f'<text x="{_LEFT}" y="43">time of a step, modelled</text>'
        yield from self._axes()
        alone = self._steps[0].sections
        y = self._y(alone)
        yield f'<path class="alone" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
        yield from self._curves()
        yield from self._labels(alone)
        yield "</svg>"

    def _axes(self) -> Iterator[str]:
        for at in range(_LINES + 1):
            value = self._top * at / _LINES
            y = self._y(value)
            kind = "grid" if at else "axis"
            yield f'<path class="{kind}" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
            label = human_time(1e6 * value) if at else "0"
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        room = 0.0
        for count in self._counts:
            x = self._x(count)
            if x < room:
                continue
            room = x + 9 * len(f"{count:,}") + 8
            yield (
                f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">'
                f"{count:,}</text>"
            )
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        yield f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">replicas</text>'

    def _curves(self) -> Iterator[str]:
        for mode in MODES:
            found = [step for step in self._steps if step.mode == mode]
            points = [(self._x(step.replicas), self._y(step.seconds)) for step in found]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in sorted(points))
            yield f'<path class="line {mode}" d="M{path}"/>'
            for (x, y), step in zip(points, found, strict=True):
                told = f"{mode}, {step.replicas:,} replicas: {human_time(1e6 * step.seconds)}"
                yield (
                    f'<circle class="{mode} dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
                    f"<title>{told}</title></circle>"
                )

    def _labels(self, alone: float) -> Iterator[str]:
        """Yield the names of the lines at their ends, apart from each other."""
        ends = {
            step.mode: step.seconds for step in self._steps if step.replicas == self._counts[-1]
        }
        wanted = {"one alone": self._y(alone)}
        wanted |= {mode: self._y(value) for mode, value in ends.items()}
        below = float(_HEIGHT)
        for name, y in sorted(wanted.items(), key=lambda each: -each[1]):
            below = min(y, below - _NEAR)
            x, line = _WIDTH - _RIGHT + 10, name if name in MODES else "alone"
            yield f'<path class="line {line}" d="M{x} {below:.1f}h16"/>'
            yield f'<text x="{x + 22}" y="{below + 4:.1f}">{name}</text>'

    def _x(self, count: int) -> float:
        first, last = log2(self._counts[0]), log2(self._counts[-1])
        part = (log2(count) - first) / (last - first) if last > first else 0.5
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, value: float) -> float:
        part = value / self._top if self._top else 0.0
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)


def _rounded_up(value: float) -> float:
    """Return a number of few digits that is no less: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** (ceil(log10(value)) - 1)
    return next(unit * step for step in (1, 2, 2.5, 5, 10, 20) if unit * step >= value)
