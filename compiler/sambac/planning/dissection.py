"""Addresses without a gap at any moment, for spans that could fill a rectangle of time and bytes.

Draw addresses from left to right and time upwards. Where nothing is ever free, spans that end leave
their addresses to spans that begin then: a seam, with ends below and begins above it of the same
bytes together. With seams as vertices and spans as edges, a plan is a drawing of a graph in which
no edges cross. And whatever drawing there is, with the first seam next to the last one, is a plan:
each seam has its edges from below side by side, and hands on as many bytes as it is given (Brooks,
Smith, Stone and Tutte, 1940, on rectangles cut into squares). Whether there is a drawing is
answered at once, for hundreds of spans.

What has to be guessed is which spans meet at one seam where several end and begin at a moment: a
few with the same sum are taken to, as that is seldom chance. Guesses that cannot be drawn together
are changed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import networkx as nx
import numpy as np

from .pressure import Ints, Spans

# Of how many spans at most a seam may be that is taken for one beside others; best guess first.
_LARGEST_SEAMS = (3, 2, 4, 5, 0)

_MOST_SUMS = 10_000  # of some of the spans that end or begin at a moment

_WORK = 40_000  # edges drawn in all attempts together: some seconds


@dataclass(frozen=True)
class _Seam:
    """Spans that end, and those that begin at their addresses."""

    ending: tuple[int, ...]
    beginning: tuple[int, ...]


_Way = tuple[_Seam, ...]  # which seams there may be at a moment
_Vertex = int | _Seam
_Drawing = Mapping[_Seam, list[int]]  # the spans around each seam, clockwise


def plan_without_gaps(spans: Spans) -> Ints | None:
    """Return addresses whose peak is the bytes alive at any moment; None if none were found.

    All sizes have to be positive. There are none where less is alive at one moment than at another.
    """
    moments: list[int] = np.union1d(spans.first, spans.last + 1).tolist()
    ending, beginning = _by_moment(spans.last + 1, moments), _by_moment(spans.first, moments)
    first, *inner, last = map(_Seam, ending, beginning)
    sizes = spans.sizes.tolist()
    if any(_sum(sizes, seam.ending) != _sum(sizes, seam.beginning) for seam in inner):
        return None
    ways = [list(dict.fromkeys(_ways(sizes, seam))) for seam in inner]
    drawing = _drawn_together([[(first,)], *ways, [(last,)]], _WORK // len(spans))
    return None if drawing is None else _addresses(spans, drawing)


def _by_moment(moment_of: Ints, moments: Sequence[int]) -> list[tuple[int, ...]]:
    """Return for each of the `moments` which spans have it as theirs."""
    members: dict[int, list[int]] = {moment: [] for moment in moments}
    for index, moment in enumerate(moment_of.tolist()):
        members[moment].append(index)
    return [tuple(some) for some in members.values()]


def _sum(sizes: Sequence[int], members: Sequence[int]) -> int:
    return sum(sizes[index] for index in members)


def _ways(sizes: Sequence[int], seam: _Seam) -> Iterator[_Way]:
    """Return ways in which what ends and begins at a moment can be seams, the likeliest first."""
    for largest in _LARGEST_SEAMS:
        way, rest = [], seam
        while found := _part_of(sizes, rest, largest):
            way.append(found)
            rest = _Seam(
                tuple(index for index in rest.ending if index not in found.ending),
                tuple(index for index in rest.beginning if index not in found.beginning),
            )
        yield (*way, rest)


def _part_of(sizes: Sequence[int], seam: _Seam, largest: int) -> _Seam | None:
    """Return the fewest spans, `largest` at most, that may be a seam beside the rest."""
    for count in range(2, largest + 1):
        for ends in range(max(1, count - len(seam.beginning) + 1), min(count, len(seam.ending))):
            begins = count - ends
            if math.comb(len(seam.ending), ends) > _MOST_SUMS:
                continue
            if math.comb(len(seam.beginning), begins) > _MOST_SUMS:
                continue
            sums = {_sum(sizes, some): some for some in combinations(seam.beginning, begins)}
            for some in combinations(seam.ending, ends):
                if (same := sums.get(_sum(sizes, some))) is not None:
                    return _Seam(some, same)
    return None


def _drawn_together(moments: Sequence[list[_Way]], attempts: int) -> _Drawing | None:
    """Return a drawing with one way for each moment, in at most so many attempts.

    Ways are tried for as many moments at once as can be; what there is no doubt about goes first.
    """
    chosen = list(chain.from_iterable(ways[0] for ways in moments if len(ways) == 1))
    drawing: _Drawing | None = None
    open_questions = [sorted((ways for ways in moments if len(ways) > 1), key=len)]
    while open_questions:
        attempts -= 1
        questions = open_questions.pop()
        guess = [*chosen, *chain.from_iterable(ways[0] for ways in questions)]
        drawn = _drawing(guess)
        if drawn is not None:
            chosen, drawing = guess, drawn
        elif attempts <= 0:
            return None
        elif len(questions) > 1:
            middle = len(questions) // 2
            open_questions += [questions[middle:], questions[:middle]]
        elif questions and len(questions[0]) > 1:
            open_questions.append([questions[0][1:]])
        else:
            return None
    return drawing


def _drawing(seams: Sequence[_Seam]) -> _Drawing | None:
    """Return a drawing without crossings, if there is any, with an edge from first to last seam.

    Spans are vertices between seams, as two may join the same ones. That edge is -1.
    """
    first = next(seam for seam in seams if not seam.ending)
    last = next(seam for seam in seams if not seam.beginning)
    graph: nx.Graph[_Vertex] = nx.Graph([(first, -1), (-1, last)])
    for seam in seams:
        graph.add_edges_from((seam, index) for index in (*seam.ending, *seam.beginning))
    _, embedding = nx.check_planarity(graph)
    if not isinstance(embedding, nx.PlanarEmbedding):
        return None
    return {seam: list(embedding.neighbors_cw_order(seam)) for seam in seams}


def _addresses(spans: Spans, drawing: _Drawing) -> Ints:
    """Return the addresses from left to right at each seam, from below upwards."""
    addresses = np.zeros(len(spans), dtype=np.int64)
    seams = [seam for seam in drawing if seam.beginning]
    for seam in sorted(seams, key=lambda seam: int(spans.first[seam.beginning[0]])):
        around = drawing[seam]
        above = [index in seam.beginning for index in around]
        leftmost = next(at for at, is_above in enumerate(above) if is_above > above[at - 1])
        order = [*around[leftmost:], *around[:leftmost]][: len(seam.beginning)]
        address = min((int(addresses[index]) for index in seam.ending), default=0)
        addresses[order] = address + np.cumsum([0, *spans.sizes[order[:-1]]])
    return addresses
