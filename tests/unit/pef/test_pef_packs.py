"""Packs: what spans several states or gradients, and the rules about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from training_builder import Part, Tensor, node
from training_programs import linear_regression

import pef
from pef import SectionType, SymbolKind
from pef.rules import check_program
from pef.states import states_of

NAMES = list(linear_regression().tensors)
INDEX = {name: number for number, name in enumerate(NAMES)}


def packed(**members: int) -> pef.Program:
    """The regression with `w` and `b` in a pack of 4 numbers, at these offsets."""
    spec = linear_regression()
    tensors = {**spec.tensors, "flat": Tensor(SymbolKind.WEIGHT, (4,))}
    for name, offset in members.items():
        tensors[name] = replace(tensors[name], inside=("flat", offset))
    return replace(spec, tensors=tensors).program()


def test_packs_are_found_and_have_no_content_of_their_own() -> None:
    program = packed(w=0, b=12)
    assert check_program(program) == []
    states, flat = states_of(program), len(NAMES)
    assert dict(states.packs) == {flat: (INDEX["w"], INDEX["b"])}
    assert states.flat == (flat,)
    assert flat not in states.own
    assert {INDEX["w"], INDEX["b"], flat} <= states.all


def test_a_part_may_have_no_numbers() -> None:
    spec = linear_regression()
    none = Tensor(SymbolKind.WEIGHT, (0,), inside=("flat", 0))
    flat = {"flat": Tensor(SymbolKind.WEIGHT, (3,)), "none": none}
    tensors = {**spec.tensors, **flat, "w": replace(spec.tensors["w"], inside=("flat", 0))}
    assert check_program(replace(spec, tensors=tensors).program()) == []


def test_a_pack_may_have_one_part_of_its_own_size() -> None:
    spec = linear_regression()
    tensors = {**spec.tensors, "flat": Tensor(SymbolKind.WEIGHT, (3,))}
    tensors["w"] = replace(tensors["w"], inside=("flat", 0))
    program = replace(spec, tensors=tensors).program()
    assert check_program(program) == []
    assert states_of(program).flat == (len(NAMES),)


def test_parts_of_a_pack_lie_inside() -> None:
    program = packed(w=0, b=12)
    symbols = list(program.symbols)
    symbols[-1] = replace(symbols[-1], shape=(3,), size=12)
    problems = check_program(replace(program, symbols=tuple(symbols)))
    assert problems == ["the parts of the pack 'flat' end at 16, the pack at 12"]


def test_parts_of_a_pack_leave_no_gaps() -> None:
    assert check_program(packed(w=4, b=0)) == []
    gap = "'w' begins at byte 8 of the pack 'flat', the parts before it end at 4"
    assert gap in check_program(packed(w=8, b=0))


def test_parts_of_a_pack_lie_apart() -> None:
    assert "'w' and 'b' overlap in their allocation" in check_program(packed(w=0, b=8))


def test_a_pack_of_gradients_is_written_with_its_parts() -> None:
    spec = linear_regression()
    tensors = {**spec.tensors, "flat__grad": Tensor(SymbolKind.GRADIENT, (4,))}
    for name, offset in (("w__grad", 0), ("b__grad", 12)):
        tensors[name] = replace(tensors[name], inside=("flat__grad", offset))
    forward, backward, update, evaluation = spec.parts
    clip = Part(
        "clip",
        SectionType.GRADNORM,
        [node("Mul", "flat__grad half", "clipped")],
        ["flat__grad"],
        {"flat__grad": "clipped"},
        constants={"half": np.asarray(np.float32(0.5))},
    )
    parts = [forward, backward, clip, update, evaluation]
    assert check_program(replace(spec, tensors=tensors, parts=parts).program()) == []
    parts = [forward, clip, backward, update, evaluation]
    problems = check_program(replace(spec, tensors=tensors, parts=parts).program())
    assert any("reads 'flat__grad', which nothing has written" in p for p in problems)
    mixed = replace(clip, inputs=["flat__grad", "w__grad"])
    parts = [forward, backward, mixed, update, evaluation]
    problems = check_program(replace(spec, tensors=tensors, parts=parts).program())
    assert "section 'clip' writes 'flat__grad' and uses what shares its memory" in problems
