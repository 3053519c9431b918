"""Public functions given what they cannot take: one clear error of the package, never a raw one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import parser
from torch import nn

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions, GraphSource, InputSpec
from sambarun import Batches, Cursor, RunError

MODEL: onnx.ModelProto = parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 19]> g (float[2,4] x) => (float[2,4] y) { y = Relu(x) }'
)
X = np.zeros((2, 4), "f")
ODD: dict[str, Any] = {
    "None": None,
    "a number": 3,
    "a word": "O7",
    "a list": [1],
    "a list of words": ["q"],
    "an array": np.zeros((3, 3)),
    "a tensor": torch.zeros(3, 3),
    "an object": object(),
    "a dict": {"q": object()},
    "a dict of numbers": {1: 2},
    "bytes": b"x",
    "a function": print,
    "a class": int,
    "a truth": True,
}
"""Values of every kind; what a parameter takes of them is in `FINE`."""


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).square().mean()


@pytest.fixture(scope="module")
def program() -> pef.Program:
    options = CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1),))
    return sambac.compile(Loss(), options, inputs=(torch.zeros(2, 4),))


@pytest.fixture(scope="module")
def executable(program: pef.Program) -> Iterator[sambarun.Executable]:
    with sambarun.load(program) as found:
        yield found


def stored(executable: sambarun.Executable) -> pef.PefFile:
    executable.program.save("kept.pef")
    return pef.open("kept.pef")


LOAD_FLAGS = ("own_process", "link", "prepack", "one_shot")
Call = Callable[[sambarun.Executable, Any], object]
RUNS: dict[str, Call] = {
    "run(_)": lambda e, v: e.run(v),
    "run(x=_)": lambda e, v: e.run({"x": v}),
    "run(_=x)": lambda e, v: e.run({v: X} if v.__hash__ else {3: X}),
    "run(hyperparams=_)": lambda e, v: e.run({"x": X}, hyperparams=v),
    "step(_)": lambda e, v: e.step(v),
    "step([_])": lambda e, v: e.step([v]),
    "step([x, _])": lambda e, v: e.step([{"x": X}, v]),
    "step(x=_)": lambda e, v: e.step({"x": v}),
    "step(graph=_)": lambda e, v: e.step({"x": X}, graph=v),
    "step(hyperparams=_)": lambda e, v: e.step({"x": X}, v),
    "step(lr=_)": lambda e, v: e.step({"x": X}, {"lr": v}),
    **{
        f"{name}({word}=_)": lambda e, v, name=name, word=word: getattr(e, name)(
            *(() if name == "prepare" else ({"x": X},)), **{word: v}
        )
        for name in ("run", "prepare", "profile")
        for word in ("section_types", "section_ids", "calls", "graph", "reduction")
    },
    **{
        f"{name}(selection=_)": lambda e, v, name=name: getattr(e, name)(
            *(() if name == "prepare" else ({"x": X},)), v
        )
        for name in ("run", "prepare", "profile")
    },
    **{
        f"Selection({word}=_)": lambda _, v, word=word: sambarun.Selection(**{word: v})
        for word in ("section_types", "section_ids", "calls", "train", "graph", "reduction")
    },
    "profile(_)": lambda e, v: e.profile(v),
    "profile(hyperparams=_)": lambda e, v: e.profile({"x": X}, hyperparams=v),
    "read(_)": lambda e, v: e.read(v),
    "write(_)": lambda e, v: e.write(v),
    "write(x=_)": lambda e, v: e.write({"x": v}),
    "input_buffer(_)": lambda e, v: e.input_buffer(v),
    "initialize(_)": lambda e, v: e.initialize(v),
    "save(_)": lambda e, v: e.save(v),
    "save(cursor=_)": lambda e, v: e.save("kept.safetensors", v),
    "load(_)": lambda e, v: e.load(v),
    "sambarun.load(_)": lambda _, v: sambarun.load(v),
    "sambarun.load(threads=_)": lambda e, v: sambarun.load(e.program, threads=v),
    "sambarun.load(reducer=_)": lambda e, v: sambarun.load(e.program, reducer=v),
    "Batches(_)": lambda _, v: Batches(v, {}),
    "Batches(arrays=_)": lambda e, v: Batches(e.program, v),
    "Batches(x=_)": lambda e, v: Batches(e.program, {"x": v}),
    "Batches(graph=_)": lambda e, v: Batches(e.program, {"x": X}, v),
    "Batches(model=_)": lambda e, v: Batches(e.program, {"x": X}, model=v),
    "take(_)": lambda e, v: Batches(e.program, {"x": X}).take(v),
    "take(batches=_)": lambda e, v: Batches(e.program, {"x": X}).take(Cursor(), v),
    "Cursor(step=_)": lambda _, v: Cursor(step=v),
    "Cursor(batch=_)": lambda _, v: Cursor(batch=v),
    "Cursor(shuffle=_)": lambda _, v: Cursor(shuffle=v),
    "Program.save(_)": lambda e, v: e.program.save(v),
    "run(copy=_)": lambda e, v: e.run({"x": X}, copy=v),
    "profile(operators=_)": lambda e, v: e.profile({"x": X}, operators=v),
    **{
        f"sambarun.load({word}=_)": lambda e, v, word=word: sambarun.load(e.program, **{word: v})
        for word in LOAD_FLAGS
    },
    "pef.check_program(_)": lambda _, v: pef.check_program(v),
    "pef.write(_)": lambda _, v: pef.write(v, "kept.pef"),
    "pef.open(_)": lambda _, v: pef.open(v),
    "pef.verify(_)": lambda _, v: pef.verify(v),
    "PefFile.bytes(_)": lambda e, v: stored(e).bytes(v),
}
NUMBERS = {"a number"}
FINE: dict[str, set[str]] = {
    **{name: {"None"} for name in RUNS if name.endswith("s=_)")},
    **{f"{n}({w}=_)": {"None"} for n in ("run", "prepare", "profile") for w in ("graph", "calls")},
    **{f"{n}({w}=_)": {"None", "a list"} for n in ("run", "prepare", "profile")
       for w in ("section_ids", "calls")},
    **{f"{n}(selection=_)": {"None"} for n in ("run", "prepare", "profile")},
    "Selection(section_types=_)": {"None", "a word", "a list of words"},
    "Selection(section_ids=_)": {"None", "a list"},
    "Selection(calls=_)": {"None", "a list"},
    "Selection(train=_)": {"a truth"},
    "Selection(graph=_)": {"None", "a word"},
    "step(graph=_)": {"None"},
    "step(lr=_)": NUMBERS,
    "initialize(_)": NUMBERS,
    "save(_)": {"a word"},
    "save(cursor=_)": {"None"},
    "sambarun.load(threads=_)": {"None", *NUMBERS},
    "sambarun.load(reducer=_)": {"None"},
    "take(batches=_)": NUMBERS,
    "Cursor(step=_)": NUMBERS,
    "Cursor(batch=_)": NUMBERS,
    "Cursor(shuffle=_)": {"None", *NUMBERS},
    "Program.save(_)": {"a word"},
    "run(copy=_)": {"a truth"},
    "profile(operators=_)": {"a truth"},
    **{f"sambarun.load({word}=_)": {"a truth"} for word in LOAD_FLAGS},
}  # fmt: skip


def cases(calls: dict[str, Any], fine: dict[str, set[str]]) -> list[Any]:
    return [
        pytest.param(calls[name], value, id=f"{name.replace('_', kind)}")
        for name in calls
        for kind, value in ODD.items()
        if kind not in fine.get(name, ())
    ]


def refuses(call: Callable[[], object], *errors: type[Exception]) -> None:
    """Assert that a call raises an error of the package, in sentences."""
    with pytest.raises(errors) as caught:
        call()
    assert type(caught.value) in errors
    assert len(str(caught.value)) > 10


@pytest.mark.parametrize(("call", "value"), cases(RUNS, FINE))
def test_what_the_runtime_cannot_take(
    executable: sambarun.Executable,
    call: Call,
    value: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refuses(lambda: call(executable, value), RunError, pef.PefError)


@pytest.mark.parametrize("empty", [[], (), "", 0, False, np.zeros(0)])
def test_what_is_empty_but_no_dict_is_refused_too(
    executable: sambarun.Executable, empty: Any
) -> None:
    executable.write({"x": X})
    executable.run({})  # from here on nothing has to be given
    for call in (
        lambda: executable.run(empty),
        lambda: executable.run({}, hyperparams=empty),
        lambda: executable.step(empty),
        lambda: executable.step([empty]),
        lambda: executable.step({}, empty),
    ):
        refuses(call, RunError)


TENSORS = {
    "requires a gradient": torch.zeros(2, 4, requires_grad=True),
    "has no values": torch.zeros(2, 4, device="meta"),
    "sparse": torch.zeros(2, 4).to_sparse(),
    "bfloat16": torch.zeros(2, 4).bfloat16(),
    "ragged": [[1.0, 2.0], [3.0]],
    "one dimension": X[0],
    "wider": X.astype("d"),
    "complex": X.astype("F"),
    "words": X.astype(str),
    "objects": X.astype(object),
    "dates": X.astype("M8[s]"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_arrays_that_are_no_input_are_refused_by_name(
    executable: sambarun.Executable, name: str
) -> None:
    for call in (executable.run, executable.step, executable.write, executable.profile):
        with pytest.raises(RunError, match="'x'"):
            call({"x": TENSORS[name]})


def compiled(**options: Any) -> object:
    chosen = CompileOptions(train=True, **options)
    return sambac.compile(Loss(), chosen, inputs=(torch.zeros(2, 4),))


OPTIONS = [name for name in CompileOptions.__dataclass_fields__ if name != "train"]
COMPILES: dict[str, Callable[[Any], object]] = {
    "compile(_)": lambda v: sambac.compile(v),
    "compile(options=_)": lambda v: sambac.compile(MODEL, v),
    "compile(progress=_)": lambda v: sambac.compile(MODEL, progress=v),
    "compile(inputs=_)": lambda v: sambac.compile(MODEL, inputs=v),
    "compile(module, inputs=_)": lambda v: sambac.compile(Loss(), inputs=v),
    "compile_graphs(_)": lambda v: sambac.compile_graphs(v),
    "compile_graphs([_])": lambda v: sambac.compile_graphs([v]),
    "compile_graphs(shared=_)": lambda v: sambac.compile_graphs(
        [GraphSource("g", MODEL)], shared=v
    ),
    "GraphSource(name=_)": lambda v: sambac.compile_graphs([GraphSource(v, MODEL)]),
    "GraphSource(model=_)": lambda v: sambac.compile_graphs([GraphSource("g", v)]),
    "GraphSource(options=_)": lambda v: sambac.compile_graphs([GraphSource("g", MODEL, None, v)]),
    "InputSpec(_)": lambda v: InputSpec(v),
    "InputSpec(dtype=_)": lambda v: InputSpec((1,), v),
    "SGD(lr=_)": lambda v: sambac.SGD(lr=v),
    "AdamW(beta1=_)": lambda v: sambac.AdamW(beta1=v),
    "SGD(params=_)": lambda v: sambac.SGD(params=v),
    **{f"CompileOptions({word}=_)": lambda v, word=word: compiled(**{word: v}) for word in OPTIONS},
}
FLAGS = ("io_host_memory", "accumulate", "balance", "recompute", "data_parallel")
COMPILED: dict[str, set[str]] = {
    "compile(options=_)": {"None"},
    "compile(progress=_)": {"None", "a function", "a class"},
    "compile(inputs=_)": {"None"},
    "compile(module, inputs=_)": set(),
    "compile_graphs(shared=_)": {"None"},
    "GraphSource(name=_)": {"a word"},
    "GraphSource(options=_)": {"None"},
    "InputSpec(_)": {"a list"},
    "InputSpec(dtype=_)": {"None", *NUMBERS},
    "SGD(lr=_)": NUMBERS,
    "CompileOptions(max_grad_norm=_)": {"None", *NUMBERS},
    "CompileOptions(fusion_rules=_)": {"None", "a word"},
    "CompileOptions(sections=_)": {"None", *NUMBERS},
    "CompileOptions(n_chips=_)": {"None", *NUMBERS},
    "CompileOptions(num_tiles=_)": {"None"},  # the default device does not say how many it has
    **{
        f"CompileOptions({word}=_)": {"None"}
        for word in ("calibrate", "expect", "observer", "max_error", "tuning", "weight_block")
    },
    "CompileOptions(section_breaks=_)": {"a list of words"},
    "CompileOptions(chip_breaks=_)": {"a list of words"},
    **{f"CompileOptions({word}=_)": {"a truth"} for word in FLAGS},
}


@pytest.mark.parametrize(("call", "value"), cases(COMPILES, COMPILED))
def test_what_the_compiler_cannot_take(call: Callable[[Any], object], value: object) -> None:
    refuses(lambda: call(value), CompileError)


def test_the_sentence_says_what_came_and_what_was_expected(
    executable: sambarun.Executable,
) -> None:
    for call, words in (
        (
            lambda: sambac.compile(MODEL, "O1"),
            "options is 'O1'; sambac.CompileOptions, such as",
        ),
        (lambda: executable.run(X), "inputs is a ndarray; a dict of arrays by the names of inputs"),
        (lambda: executable.step(None), "inputs is None; a dict of arrays .* or a list of these"),
        (lambda: executable.step({"x": X}, [0.1]), "hyperparams is a list; a dict of numbers"),
        (lambda: sambarun.load(3), "source is 3; the path of a PEF, or a pef.Program, was expec"),
    ):
        with pytest.raises((CompileError, RunError), match=words):
            call()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Cursor(step=-1), "step is -1; a whole number from 0 to"),
        (lambda: Cursor(batch=-1, shuffle=3), "batch is -1; a whole number from 0 to"),
        (lambda: InputSpec((1, -2)), r"shape\[1\] is -2; a tuple of sizes"),
        (lambda: CompileOptions(sections=0), "sections is 0; a whole number above 0"),
    ],
)
def test_numbers_below_what_is_meant_are_refused(call: Callable[[], object], told: str) -> None:
    with pytest.raises((RunError, CompileError), match=told):
        call()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (("sgd",), r"optimizers\[0\] is 'sgd'; a tuple of optimizers, such as sambac\.SGD\(\),"),
        ((sambac.SGD(), None), r"optimizers\[1\] is None; a tuple of optimizers"),
        (sambac.SGD(), "optimizers is a SGD; a tuple of optimizers"),
    ],
)
def test_what_is_wrong_in_a_list_is_told(value: Any, told: str) -> None:
    """Not that a tuple came where a tuple was expected."""
    with pytest.raises(CompileError, match=told):
        CompileOptions(train=True, optimizers=value)


@pytest.mark.parametrize(
    "call",
    [
        *(
            lambda word=word: sambarun.Selection(**{word: np.array(3)})
            for word in ("section_types", "section_ids", "calls")
        ),
        lambda: sambac.NumberRule(output=np.zeros(3)),
        lambda: sambarun.Provider("SomeExecutionProvider", library="a\0b"),
    ],
)
def test_arrays_and_names_that_python_stumbles_over_are_refused(
    call: Callable[[], object],
) -> None:
    refuses(call, RunError, CompileError)


def test_lone_numbers_of_numpy_are_numbers() -> None:
    spec = InputSpec((np.int64(2), np.array(4)), np.array(1))
    assert (spec, hash(spec)) == (InputSpec((2, 4), 1), hash(InputSpec((2, 4), 1)))
