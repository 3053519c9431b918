"""What is in the golden files of formats since 0.4, which state what older ones said by names."""

from __future__ import annotations

from dataclasses import replace

from pef_formats import format_0_2_several_models, format_0_3

import pef


def format_0_4() -> pef.Program:
    """A model that trains beside one that does not, whose names say nothing of it."""
    program = format_0_2_several_models()
    train, judge, serve = program.graphs
    kinds = pef.Duration
    symbols = {symbol.name: index for index, symbol in enumerate(program.symbols)}

    def facts(name: str, duration: pef.Duration, **related: str) -> pef.Symbol:
        found = {field: symbols[other] for field, other in related.items()}
        before = replace(program.symbols[symbols[name]], parameter=None, pack=None)
        return replace(before, duration=duration, **found)

    said = (
        facts("w", kinds.STATE, pack="flat"),
        facts("b", kinds.STATE, pack="flat"),
        facts("w__exp_avg", kinds.STATE, parameter="w"),
        facts("w__grad", kinds.TRANSIENT, parameter="w", pack="flat__grad"),
        facts("b__grad", kinds.TRANSIENT, parameter="b", pack="flat__grad"),
    )
    names = {"w__grad": "slope", "b__grad": "slant", "w__exp_avg": "mean of w"}
    renamed = {
        symbol.name: replace(symbol, name=names.get(symbol.name, symbol.name)) for symbol in said
    }
    loss = pef.Port("loss", symbols["loss"], symbols["loss__grad"])
    return replace(
        program,
        allocations=tuple(replace(place, name="") for place in program.allocations),
        symbols=tuple(renamed.get(symbol.name, symbol) for symbol in program.symbols),
        graphs=(
            replace(train, name="learn", outputs=(loss,), model="fit", role=pef.GraphRole.TRAIN),
            replace(judge, name="judge", model="fit", role=pef.GraphRole.EVAL),
            replace(serve, model="serve"),
        ),
    )


def format_0_5() -> pef.Program:
    """Argins whose names do not say what they are."""
    program = format_0_4()
    said = {"sgd.lr": ("speed", "all of it", "lr"), "drop.p": ("holes", "drop", "p")}
    return replace(
        program,
        argins=tuple(
            replace(argin, **dict(zip(("name", "group", "option"), said[argin.name], strict=True)))
            if argin.name in said
            else argin
            for argin in program.argins
        ),
    )


def format_0_6() -> pef.Program:
    """Sections whose time comes with its terms, on a device whose numbers the program has."""
    program = format_0_5()
    timed = pef.Estimate(
        9e-6, 512, 4, 2, 1024, 64, 64, 64, "compute", 1e-6, 2e-6, 5e-7, 5e-6, 3e-6, 5e-7
    )
    group = pef.FusionGroup("half", (pef.Operator("mm", "MatMul", 0, 512, 4),))
    first, *others = program.sections
    return replace(
        program,
        sections=(replace(first, groups=(group,), estimate=timed), *others),
        device=(
            pef.DeviceNumber("pcus", 640.0, "units", "specified", "a paper"),
            pef.DeviceNumber("launch", 1e-6, "s", "assumed"),
        ),
    )


def format_0_7() -> pef.Program:
    """Regions chosen by cost: two allocations say what another place would cost, a third whose."""
    program, why = format_0_3(), pef.PlacementReason
    first, weights, last = program.allocations
    return replace(
        program,
        allocations=(
            replace(first, reason=why.USER),
            replace(weights, reason=why.COST, cost=2.5e-9),
            replace(last, reason=why.COST, cost=1.5e-10),
        ),
        graphs=tuple(replace(graph, policy_latency=3e-5) for graph in program.graphs),
    )


def format_0_8() -> pef.Program:
    """A pipeline of two chips: the second one begins with the second call."""
    program = format_0_3()
    (graph,) = program.graphs
    return replace(program, graphs=(replace(graph, chip_calls=(1,)),))


def format_0_9() -> pef.Program:
    """An operator of two results, of which the model has the first in fewer bits than the host."""
    program = format_0_6()
    first, *others = program.sections
    operator = replace(first.groups[0].operators[0], declared=(16, 0))
    group = replace(first.groups[0], operators=(operator,))
    symbol = {each.name: each for each in program.symbols}["x"]
    return replace(
        program,
        sections=(replace(first, groups=(group,)), *others),
        symbols=tuple(
            replace(each, declared=16) if each is symbol else each for each in program.symbols
        ),
    )


def format_0_10() -> pef.Program:
    """Two sections of one type, the second of which was planned by itself."""
    program = format_0_3()
    (graph,) = program.graphs
    return replace(program, graphs=(replace(graph, stage_calls=(1,)),))


def format_0_7_chips() -> pef.Program:
    """The same pipeline, which the record of the compilation told until 0.7."""
    program = format_0_8()
    made_by = replace(program.producer, options='{"chip_calls": [1]}')
    return replace(program, producer=made_by)
