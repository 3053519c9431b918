"""Programs without terms that are zero give what the program for all gives then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import pef
import sambac
from pef import dtypes
from sambac.optimizers import parse_optimizer
from sambac.variants.terms import NONZERO, assumptions, passes_on, result

_MODEL = """
<ir_version: 10, opset_import: ["": 17]>
net (float[4,3] x) => (float[4,2] y)
<float[3,2] w = {0.5, -1.5, 2.0, 0.25, -0.75, 1.0}, float[2] b = {0.1, -0.2}>
{ h = MatMul (x, w)  a = Add (h, b)  y = Tanh (a) }"""

OPTIMIZERS = {
    "sgd": (4, ("sgd",)),
    "nesterov": (4, ("sgd:momentum=0.9,nesterov",)),
    "dampened": (4, ("sgd:momentum=0.9,dampening=0.5",)),
    "adam": (1, ("adam",)),
    "adamw": (1, ("adamw",)),
    "rmsprop": (4, ("rmsprop:centered",)),
    "adagrad": (1, ("adagrad:lr_decay=0.1",)),
    "lamb": (1, ("lamb",)),
    "lars": (4, ("lars",)),
    "alike": (4, ("sgd", "sgd:params=b")),
    "mixed": (5, ("sgd:momentum=0.9", "sgd:params=b,weight_decay=0.1")),
    "kinds": (4, ("sgd", "adam:params=b")),
}
"""How many programs an update has beside that for all, and the optimizers."""


def compiled(name: str, level: str) -> pef.Program:
    options = sambac.CompileOptions(
        level=level,
        train=True,
        loss=("mse:y,t",),
        optimizers=tuple(map(parse_optimizer, OPTIMIZERS[name][1])),
    )
    return sambac.compile(onnx.parser.parse_model(_MODEL), options)


def updates(program: pef.Program) -> Iterator[pef.Section]:
    return (section for section in program.sections if section.type is pef.SectionType.OPT)


def values(program: pef.Program, section: pef.Section, variant: pef.Variant) -> list[np.ndarray]:
    """Inputs of a section under the conditions of one of its programs."""
    rng = np.random.default_rng(0)
    found = []
    for index in section.inputs:
        symbol = program.symbols[index]
        kind = dtypes.numpy_dtype(symbol.dtype)
        drawn = rng.uniform(0.1, 0.9, tuple(map(int, symbol.shape or ())))
        drawn = drawn + 3 if kind.kind == "i" else drawn
        found.append(np.asarray(0 * drawn if index in variant.zeros else drawn, kind))
    return found


def run(program: pef.Program, number: int, inputs: list[np.ndarray]) -> Mapping[str, np.ndarray]:
    stored = program.programs[number]
    graph = program.segments[stored.graph.segment].content(stored.graph)
    session = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feeds = {name: value for name, value in zip(stored.inputs, inputs, strict=True) if name}
    assert feeds.keys() == {put.name for put in session.get_inputs()}
    names = [name for name in stored.outputs if name]
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize("level", ["O3", "O0"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_program_gives_what_the_one_for_all_gives(name: str, level: str) -> None:
    program = compiled(name, level)
    for section in updates(program):
        overwritten = {target: source for source, target in section.in_place}
        for variant in section.variants[:-1]:
            inputs = values(program, section, variant)
            scalars = {i: v for i, v in zip(section.inputs, inputs, strict=True) if not v.shape}
            if not {*variant.zeros, *variant.nonzeros} <= scalars.keys():
                continue  # something in between has come from another section
            whole = run(program, section.variants[-1].program, inputs)
            part = run(program, variant.program, inputs)
            formal = program.programs[section.variants[-1].program].outputs
            for position, output in enumerate(program.programs[variant.program].outputs):
                kept = inputs[overwritten[position]] if not output else part[output]
                np.testing.assert_allclose(kept, whole[formal[position]], rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_update_has_programs_for_all_zero_all_not_and_as_compiled(name: str) -> None:
    program = compiled(name, "O3")
    count = max(len(section.variants) - 1 for section in updates(program))
    assert count == OPTIMIZERS[name][0]
    for section in program.sections:
        last = section.variants[-1]
        assert (last.zeros, last.nonzeros) == ((), ())
        assert program.programs[last.program].requires == ()
    assert "argin_variants" in program.requires.features


def test_a_program_without_terms_needs_no_feature() -> None:
    options = sambac.CompileOptions(train=True, loss=("mse:y,t",))
    program = sambac.compile(onnx.parser.parse_model(_MODEL), options)
    assert program.requires.features == ("training",)


def test_argins_of_one_name_are_all_zero_or_all_not_or_as_compiled() -> None:
    options = {"a.momentum": "momentum", "b.momentum": "momentum"}
    zero, some = dict.fromkeys(options, True), dict.fromkeys(options, False)
    assert assumptions(options, {"a.momentum": 0.0, "b.momentum": 0.0}) == [zero, some]
    mixed = {"a.momentum": True, "b.momentum": False}
    assert assumptions(options, {"a.momentum": 0.0, "b.momentum": 0.9}) == [mixed, zero, some]


@pytest.mark.parametrize(
    ("op_type", "inputs", "known"),
    [
        ("Cast", [0.0], 0.0),
        ("Cast", [True], 1.0),
        ("Cast", [NONZERO], None),  # as float32 it may be zero
        ("Reshape", [NONZERO, None], NONZERO),
        ("Neg", [0.0], 0.0),
        ("Not", [False], True),
        ("Mul", [None, 0.0], 0.0),
        ("Mul", [NONZERO, 2.0], None),
        ("Add", [1.0, 2.0], 3.0),
        ("Add", [None, 0.0], None),
        ("Sub", [1.0, 0.0], 1.0),
        ("Equal", [NONZERO, 0.0], False),
        ("Equal", [NONZERO, 1.0], None),
        ("Equal", [0.0, 0.0], True),
        ("Greater", [0.0, 0.0], False),
        ("Sqrt", [0.0], None),
    ],
)
def test_what_follows(op_type: str, inputs: list[object], known: object) -> None:
    assert result(op_type, inputs) == known


@pytest.mark.parametrize(
    ("op_type", "inputs", "at"),
    [
        ("GatedAdd", [None, None, 0.0], 0),
        ("GatedAdd", [None, None, 1.0], None),
        ("Where", [True, None, None], 1),
        ("Where", [False, None, None], 2),
        ("Where", [None, None, None], None),
        ("Add", [0.0, None], 1),
        ("Sub", [0.0, None], None),
        ("Sub", [None, 0.0], 0),
        ("Mul", [None, 1.0], 0),
        ("Div", [1.0, None], None),
        ("Div", [None, 1.0], 0),
        ("Mul", [None, NONZERO], None),
    ],
)
def test_what_is_passed_on(op_type: str, inputs: list[object], at: int | None) -> None:
    assert passes_on(op_type, inputs) == at
