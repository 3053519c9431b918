"""The log read back: its tables hold exactly what `sambac inspect --json` holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from pef_formats import format_0_2, format_0_2_several_models
from pef_formats_stated import format_0_9
from training_programs import linear_regression

from pef.container import DataRef
from pef.costs import Estimate
from pef.program import Argin, FusionGroup, Operator, Program, Requirements, Variant
from pef.report import File, more, render, report
from pef.symbols import Shape
from sambac import CompileOptions, compile
from sambac.options import Level

Make = Callable[..., Program]
Parse = Callable[[str], dict[str, object]]

STRANGE_NAMES = [
    "conv1",
    "a name with  blanks",
    "",
    "-",
    'quo"te',
    "line\nbreak",
    "a,b=(c)[d]",
    "/layer.0/MatMul:0",
    "\x1b[31mred",
    "-> +",
    "3..4",
    "naïve·名前",
    "long" * 60,
]


@pytest.mark.parametrize("count", [0, 1, 5, 500])
def test_the_log_parses_back_to_the_report(count: int, program_of: Make, parse_log: Parse) -> None:
    program = program_of([f"node_{number}" for number in range(count)])
    file = File(name="m.pef", bytes=12345)
    assert parse_log(text_of(program, file)) == report(program, file)


def test_strange_names_parse_back(program_of: Make, parse_log: Parse) -> None:
    program = program_of(STRANGE_NAMES)
    assert parse_log(text_of(program)) == report(program)


@pytest.mark.parametrize(
    "shape", [None, (), (0,), (3, 224), ("batch", 3, None), ("3", "?", "a,b", "x", 4), ("",)]
)
def test_shapes_parse_back(shape: Shape, program_of: Make, parse_log: Parse) -> None:
    program = program_of(["a"], shape)
    assert parse_log(text_of(program)) == report(program)


def test_everything_optional_parses_back(program_of: Make, parse_log: Parse) -> None:
    program = program_of(["a", "b"])
    symbols = list(program.symbols)
    symbols[0] = replace(symbols[0], data=DataRef(1, 0, 16), allocation=None, size=0)
    symbols[2] = replace(symbols[2], type="seq(tensor(float))", dtype=0, shape=None)
    warning = "Section 0 needs 12 MiB of SRAM and has 4 MiB; " + "it streams its inputs again " * 9
    program = replace(
        program,
        symbols=tuple(symbols),
        argins=(Argin("lr", 0, 1e-3), Argin("odd name", 0, 0.1)),
        schedule=(0, 1, 0, 1, 1),
        warnings=(warning.strip(), "short"),
        requires=Requirements(),
        producer=replace(program.producer, libraries=(), source="", source_hash="", options="{}"),
    )
    assert parse_log(text_of(program)) == report(program)


def test_derived_weights_parse_back(program_of: Make, parse_log: Parse) -> None:
    program = program_of(["a"])
    assert "Derived weights" not in text_of(program)
    x, w, *others = program.symbols
    derived = replace(w, name="w folded", origins=tuple(sorted(set(STRANGE_NAMES) - {""})))
    program = replace(program, symbols=(x, derived, *others))
    text = text_of(program)
    assert "\n\nDerived weights (1; the model's tensors behind them)\n" in text
    assert parse_log(text) == report(program)


def test_a_wide_group_is_wrapped_and_parses_back(program_of: Make, parse_log: Parse) -> None:
    program = program_of(["a"])
    operators = tuple(Operator(f"layer {i}/conv", "Conv", i) for i in range(40))
    section = replace(program.sections[0], groups=(FusionGroup("g", operators),))
    program = replace(program, sections=(section,))
    text = text_of(program)
    assert max(map(len, text.split("Fusion groups")[1].split("\n\n")[0].split("\n"))) <= 79
    assert parse_log(text) == report(program)


def test_a_training_program_parses_back(parse_log: Parse) -> None:
    spec = linear_regression()
    absent = replace(spec.tensors["w"], data=None)
    spec = replace(spec, tensors={**spec.tensors, "w": absent}, aliases={"tied name": "w"})
    program = spec.program()
    assert "Programs that run while" not in text_of(program)
    sections, names = [*program.sections], [*spec.tensors]
    rate, momentum = (names.index(name) for name in ("sgd.lr", "sgd.momentum"))
    variants = (Variant(1, (rate, momentum)), Variant(0, (rate,), (momentum,)), Variant(2))
    sections[2] = replace(sections[2], variants=variants)
    program = replace(program, sections=tuple(sections))
    text = text_of(program)
    assert "\n\nPrograms that run while argins are zero, or not\n" in text
    assert parse_log(text) == report(program)
    assert "3 calls a step" in text
    training = report(program)["training"]
    assert training is not None
    assert (training["steps"], training["losses"]) == (["train"], ["loss"])
    assert [row["name"] for row in report(program)["absent"]] == ["w"]
    assert "; 1 absent." in " ".join(text.split())
    assert "of it weights, read and written." in " ".join(text.split())
    assert [(row["kind"], row["tensors"], row["bytes"]) for row in training["memory"]] == [
        ("parameters", 2, 16),
        ("frozen parameters", 0, 0),
        ("buffers", 1, 12),
        ("gradients", 2, 16),
        ("optimizer state", 3, 24),
        ("activations kept for BCKWD", 2, 64),
    ]


@pytest.mark.parametrize("several", [False, True])
def test_the_slowest_sections_of_a_step_are_those_that_it_calls(several: bool) -> None:
    """Evaluation and other models are no part of a step, however long they take."""
    program = format_0_2_several_models() if several else format_0_2()
    times = {"fwd": 4e-6, "bckwd": 3e-6, "opt": 2e-6, "norm": 1e-6, "eval": 1.0, "serve": 1.0}
    sections = [
        replace(section, estimate=Estimate(latency=times.get(section.name, 0.0)))
        for section in program.sections
    ]
    text = " ".join(text_of(replace(program, sections=tuple(sections))).split())
    step = "step of fit/train" if several else "step"
    assert f"One {step} is modelled to take 10 us" in text
    assert "sections 0, 1, 4 are the slowest, together 90.0% of the time" in text


def test_the_json_survives_json(program_of: Make) -> None:
    rows = report(program_of(STRANGE_NAMES))
    assert json.loads(json.dumps(rows)) == rows


def text_of(program: Program, file: File | None = None) -> str:
    return "\n".join(render(report(program, file))) + "\n"


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_the_log_of_a_network_parses_back(level: Level, parse_log: Parse) -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    program = compile(folder / "light_squeezenet.onnx", CompileOptions(level=level))
    assert parse_log(text_of(program)) == report(program)


@pytest.fixture
def fewer_places(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if some fields of the format were new."""
    placed = dict(more._PLACED) | {"Estimate": "flops", "Requirements": "opsets", "Symbol": "size"}

    def forget() -> None:
        more._left.cache_clear()
        more._telling.cache_clear()

    monkeypatch.setattr(more, "_PLACED", placed)
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.mark.usefixtures("fewer_places")
def test_fields_without_a_place_parse_back(program_of: Make, parse_log: Parse) -> None:
    program = program_of(STRANGE_NAMES)
    rows = report(program)["more"]
    found = {(row["of"], row["field"]): row["value"] for row in rows}
    assert found["symbols[0]", "name"] == program.symbols[0].name
    assert found["symbols[0]", "kind"] == program.symbols[0].kind.name
    assert ("sections[0].estimate", "latency") in found
    assert ("sections[0].estimate", "flops") not in found
    assert found["requires", "features"] == list(program.requires.features)
    assert ("symbols[0]", "parameter") not in found, "it is as by default"
    assert parse_log(text_of(program)) == report(program)


def test_types_of_the_model_parse_back(parse_log: Parse) -> None:
    program = format_0_9()
    text = text_of(program)
    assert " bfloat16/float32 " in text
    assert " MatMul:bfloat16,(mm)" in text
    assert parse_log(text) == report(program)
