"""The operators chosen to work on blocks are those with which the least is reordered."""

from __future__ import annotations

import itertools
import random

import pytest

from sambac.variants.assignment import ALWAYS, LIKELY, RARELY, Choice, on_blocks

SIZES = {f"v{index}": 1 + index % 3 for index in range(9)}


def cost(choices: list[Choice], results: list[str], blocks: list[bool]) -> float:
    """Return what reordering costs, and what operators in order lose, for one choice."""
    made, blocked, ordered = dict.fromkeys(SIZES, False), set(), set(results)
    lost = 0.0
    for choice, inside in zip(choices, blocks, strict=True):
        made.update(dict.fromkeys(choice.makes, inside))
        ordered.update(choice.ordered)
        (blocked if inside else ordered).update(choice.images)
        if choice.gain not in (None, ALWAYS):
            lost += max(choice.gain, 0) if not inside else max(-choice.gain, 0)
    moved = (name for name, inside in made.items() if name in (ordered if inside else blocked))
    return lost + sum(SIZES[name] for name in moved)


def drawn(seed: int) -> tuple[list[Choice], list[str]]:
    """Return operators, each of which makes a value of those before it, and the results."""
    rng = random.Random(seed)
    choices = []
    for index in range(1, len(SIZES)):
        reads = [f"v{rng.randrange(index)}" for _ in range(rng.randrange(1, 3))]
        gain = rng.choice([None, ALWAYS, LIKELY, LIKELY, RARELY, 2])
        rest = reads if gain is None else reads[1:] if rng.random() < 0.3 else []
        images = [name for name in reads if name not in rest]
        choices.append(Choice([f"v{index}"], rest, images, gain))
    return choices, rng.sample(sorted(SIZES), 2)


@pytest.mark.parametrize("seed", range(40))
def test_no_other_choice_is_cheaper(seed: int) -> None:
    choices, results = drawn(seed)
    chosen = on_blocks(choices, results, SIZES.__getitem__)
    ways = itertools.product(
        *({None: [False], ALWAYS: [True]}.get(choice.gain, [False, True]) for choice in choices)
    )
    least = min(cost(choices, results, list(way)) for way in ways)
    assert cost(choices, results, chosen) == least


@pytest.mark.parametrize(("gain", "expected"), [(LIKELY, True), (RARELY, False)])
def test_equal_costs_leave_it_to_the_operator(gain: float, expected: bool) -> None:
    choices = [Choice(["v3"], [], ["v0"], ALWAYS), Choice(["v6"], [], ["v3"], gain)]
    assert on_blocks(choices, ["v6"], SIZES.__getitem__) == [True, expected]
