"""What programs state of graphs and symbols is what older formats said by names and kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest

import sambac
from pef import Duration, GraphRole, PefError, Port, Program, SectionType, check_program
from pef.older import stated
from sambac import AdamW, CompileOptions, GraphSource

FIT = """
    <ir_version: 8, opset_import: ["" : 13]>
    g (float[4, 6] x, int64[4] t) => (float loss)
    <float[6, 8] w1, float[8] b1, float[8, 3] w2>
    {
      a = MatMul (x, w1)  b = Add (a, b1)  c = Relu (b)  d = MatMul (c, w2)
      loss = SoftmaxCrossEntropyLoss (d, t)
    }
"""
SERVE = """
    <ir_version: 8, opset_import: ["" : 13]>
    g (float[4, 6] x) => (float[4, 8] c, float[4, 8] same)
    <float[6, 8] w1, float[8] b1>
    { a = MatMul (x, w1)  b = Add (a, b1)  c = Relu (b)  same = Identity (a) }
"""
READ = """
    <ir_version: 8, opset_import: ["" : 13]>
    g (float[4, 8] old) => (float[4, 8] new) { new = Exp (old) }
"""
TRAIN = CompileOptions(train=True, optimizers=(AdamW(lr=0.1),))


def model(text: str) -> onnx.ModelProto:
    made = onnx.parser.parse_model(text)
    for name, shape in {"w1": (6, 8), "b1": (8,), "w2": (8, 3)}.items():
        if name in text:
            content = np.ones(shape, np.float32)
            made.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return made


def together(*sources: tuple[str, str], fit: CompileOptions, **shared: str) -> Program:
    graphs = [
        GraphSource(name, model(text), options=fit if text is FIT else None)
        for name, text in sources
    ]
    return sambac.compile_graphs(graphs, shared={k.replace("_", "."): v for k, v in shared.items()})


PROGRAMS = {
    "inference": lambda: sambac.compile(model(SERVE)),
    "training, packs of all": lambda: sambac.compile(model(FIT), TRAIN),
    "no packs": lambda: sambac.compile(model(FIT), replace(TRAIN, level="O0")),
    "gradients that add up, of inputs too": lambda: sambac.compile(
        model(FIT), replace(TRAIN, accumulate=True, input_grads=("x",), max_grad_norm=1.0)
    ),
    "several that train": lambda: together(
        ("fit", FIT), ("more", FIT), ("serve", SERVE), fit=TRAIN
    ),
    "regions": lambda: together(
        ("fill", SERVE), ("read", READ), fit=TRAIN, fill_c="cache", read_old="cache"
    ),
}


def without_facts(program: Program) -> Program:
    """Return what an older compiler would have written."""

    def ports(found: Sequence[Port]) -> tuple[Port, ...]:
        return tuple(replace(port, gradient=None) for port in found)

    plain = {"duration": Duration.TRANSIENT, "parameter": None, "pack": None}
    return replace(
        program,
        allocations=tuple(replace(place, shared=False) for place in program.allocations),
        symbols=tuple(replace(symbol, **plain) for symbol in program.symbols),
        graphs=tuple(
            replace(
                graph,
                inputs=ports(graph.inputs),
                outputs=ports(graph.outputs),
                model="",
                role=GraphRole.INFERENCE,
            )
            for graph in program.graphs
        ),
        argins=tuple(replace(argin, group="", option="") for argin in program.argins),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_old_names_say_what_is_stated_today(name: str) -> None:
    program = PROGRAMS[name]()
    found = stated(without_facts(program), (0, 3))
    differing = [(a, b) for a, b in zip(found.symbols, program.symbols, strict=True) if a != b]
    assert not differing
    assert found == program


def test_a_norm_of_each_batch_is_not_one_of_their_sum() -> None:
    """A GRADNORM section called BCKWD would clip what has been added up, batch after batch."""
    program = PROGRAMS["gradients that add up, of inputs too"]()
    types = {SectionType.GRADNORM: SectionType.BCKWD}
    forged = replace(
        program,
        sections=tuple(replace(s, type=types.get(s.type, s.type)) for s in program.sections),
    )
    assert not check_program(program)
    assert any(
        "writes 'adamw.pack0__grad', as one before" in text for text in check_program(forged)
    )


@pytest.mark.parametrize("starts", [5, ["1"], [True], {"1": 2}, [99], [-1]])
def test_a_record_in_which_chips_begin_with_no_calls_is_told(starts: object) -> None:
    program = sambac.compile(model(SERVE))
    record = json.dumps({"chip_calls": starts})
    forged = replace(program, producer=replace(program.producer, options=record))
    with pytest.raises(PefError, match="The chips of this program begin with"):
        stated(forged, (0, 7))


def test_a_record_for_people_may_say_anything() -> None:
    program = sambac.compile(model(SERVE))
    for record in ("chip_calls of somebody", '["chip_calls"]'):
        told = replace(program, producer=replace(program.producer, options=record))
        assert stated(told, (0, 7)) == told
