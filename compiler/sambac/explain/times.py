"""What limits the time of a section, term by term of its estimate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pef.program import SectionType
from pef.text import human_bytes, human_count, plural
from sambac.planning.estimate import CostModel, Move, limits
from sambac.reconstruct.rebuilt import Rebuilt

from .facts import Fact, Number, quoted, seconds, share, value_text

_TOPIC = "What its time is made of"
_TERMS = ("launch", "fill", "held", "compute", "streams", "link")


def called(limit: str) -> str:
    """Return what limits a section, in words; of memory, what it is made of."""
    return "memory (held and streams)" if limit == "memory" else limit


def time_facts(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield how the modelled time of section `number` comes about, and what is slowest in it."""
    section = rebuilt.program.sections[number]
    estimate = section.estimate
    if section.type is SectionType.REDUCE:
        yield Fact(
            _TOPIC,
            "It counts as no time: what reduces gradients between processes is up to the host "
            "(`sambac scale` models it).",
            {"latency": 0.0},
        )
        return
    yield Fact(
        _TOPIC,
        f"launch {seconds(estimate.launch)} + fill {seconds(estimate.fill)} + held "
        f"{seconds(estimate.held)} + max(compute {seconds(estimate.compute)}, streams "
        f"{seconds(estimate.streams)}) + link {seconds(estimate.link)} = "
        f"{seconds(estimate.latency)}.",
        {"latency": estimate.latency, **{name: getattr(estimate, name) for name in _TERMS}},
    )
    if limit := estimate.limited_by:
        took = limits(estimate)[limit]
        yield Fact(
            _TOPIC,
            f"It is limited by {called(limit)}: {seconds(took)}, {share(took, estimate.latency)}.",
            {"limited_by": limit, "seconds": took},
        )
    yield from _slowest(rebuilt, number)
    yield from _moved(rebuilt, number)


def _slowest(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield which operator takes longest on its share of the chip."""
    section = rebuilt.program.sections[number]
    rate = rebuilt.arch.flops_per_pcu
    found = [op for group in section.groups for op in group.operators if op.pcus]
    if not found:
        return
    slowest = max(found, key=lambda op: op.flops / op.pcus)
    took = slowest.flops / (slowest.pcus * rate)
    text = (
        f"The slowest operator is {quoted(slowest.name)} ({slowest.op_type}): "
        f"{human_count(slowest.flops)}FLOP on {slowest.pcus} of the "
        f"{plural(section.estimate.pcus, 'PCU')} that the section uses take {seconds(took)}."
    )
    yield Fact(_TOPIC, text, {"slowest": slowest.name, "pcus": slowest.pcus, "seconds": took})


def _moved(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    stage, at = rebuilt.place[number]
    plan = stage.plan
    model = CostModel(plan.view, rebuilt.arch, rebuilt.homes, rebuilt.plans.persistent.states)
    held, streams = model.moves(plan.sections.sections[at], plan.live_sets[at])
    for term, what, found in (
        ("held", "What is kept on chip as a whole", held),
        ("streams", "What streams", streams),
    ):
        for move in found:
            yield _move(move, term, what, value_text(rebuilt, plan.view, move.largest))


def _move(move: Move, term: str, what: str, largest: str) -> Fact:
    numbers: Mapping[str, Number] = {
        "term": term,
        "region": move.region.name,
        "bytes": move.nbytes,
        "together": move.together,
        "alone": move.alone,
        "largest": move.largest,
        "largest_bytes": move.largest_nbytes,
    }
    text = f"{what} to and from {move.region.name} is {human_bytes(move.nbytes)}"
    together, alone = seconds(move.together), seconds(move.alone)
    if not move.seconds:
        return Fact(_TOPIC, f"{text}; no speed of it is known, so it counts as no time.", numbers)
    if move.alone > move.together:
        text += (
            f": its largest value, {largest} of {human_bytes(move.largest_nbytes)}, "
            f"takes {alone} at the speed of its streams"
        )
        rest = f", all bytes at that of the region {together}" if move.together else ""
        return Fact(_TOPIC, f"{text}{rest}.", numbers)
    rest = f", its largest value at that of its streams {alone}" if move.alone else ""
    return Fact(_TOPIC, f"{text}: at the speed of the region {together}{rest}.", numbers)
