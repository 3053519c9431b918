"""Section breaks cut the forward pass where a user says."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from near import assert_near

import sambac
import sambarun
from pef.graphs import chips_of
from pef.program import SectionType
from sambac.planning.stages import parts_of, split
from sambac.planning.view import DataflowView
from sambahost.stages import Stage, StageProgram

BRANCHES = """
    a: Relu(x) -> p
    b: Neg(x) -> q
    c: Add(p, q) -> r
    d: Sin(p) -> s
"""


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (["c"], {"a": 0, "b": 0, "c": 1, "d": 0}),
        (["r"], {"a": 0, "b": 0, "c": 1, "d": 0}),
        (["b|c"], {"a": 0, "b": 1, "c": 1, "d": 0}),
        (["d", "b", "d"], {"a": 0, "b": 1, "c": 1, "d": 2}),
        (["nothing", "C"], {"a": 0, "b": 0, "c": 0, "d": 0}),
    ],
)
def test_what_needs_an_operator_is_behind_the_break(
    make_view: Callable[..., DataflowView], breaks: list[str], expected: dict[str, int]
) -> None:
    assert parts_of(make_view(BRANCHES, outputs="r s"), breaks) == expected


def test_only_the_forward_pass_is_cut(make_view: Callable[..., DataflowView]) -> None:
    view = make_view("a: Relu(x) -> p\nb: Neg(p) -> q\nc: Sin(q) -> g", outputs="q g")
    stages = split(view, {"q": SectionType.FWD, "g": SectionType.BCKWD}, breaks=("b", "c"))
    assert [[*stage.ops] for stage in stages] == [["a"], ["b"], ["c"]]
    types = [{op.section_type for op in stage.ops.values()} for stage in stages]
    assert types == [{SectionType.FWD}, {SectionType.FWD}, {SectionType.BCKWD}]


def test_modules_begin_sections_of_a_program() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3), torch.nn.Tanh()
    )
    x = torch.randn(2, 4)
    plain = sambac.compile(module, inputs=(x,))
    broken = sambac.compile(module, sambac.CompileOptions(section_breaks=("2", "3")), inputs=(x,))
    assert [len(plain.sections), len(broken.sections)] == [1, 3]
    with sambarun.load(broken) as executable:
        (found,) = executable.run({"input": x.numpy()}).values()
    assert_near(found, module.double()(x.double()).detach().numpy())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"section_breaks": ("(",)}, r"section_breaks: '\(' is no regular expression"),
        ({"section_breaks": ("a",), "sections": 2}, "give no number of sections"),
        ({"section_breaks": ("a",), "mapping": "spatial"}, "and the mapping 'section'"),
        ({"section_breaks": "a"}, "section_breaks .* a list or tuple of names"),
    ],
)
def test_breaks_that_cannot_be(options: dict[str, object], words: str) -> None:
    with pytest.raises(sambac.CompileError, match=words):
        sambac.CompileOptions(**options)


class Skipping(torch.nn.Module):
    """Three stretches; the last one reads what each of the others gives, and so does the caller."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = self.first(x)
        b = torch.tanh(self.second(a))
        return self.third(b) * a + x, a


def test_chips_have_their_calls_and_their_memory() -> None:
    module, x = Skipping(), torch.randn(2, 4)
    options = sambac.CompileOptions(section_breaks=("second",), chip_breaks=("third", "first"))
    program = sambac.compile(module, options, inputs=(x,))
    first, second = chips_of(program.graphs[0])
    assert (first.stop, len(program.sections)) == (second.start, second.stop)
    assert len(first) == 2
    names = tuple(port.name for port in program.graphs[0].outputs)
    stage = Stage(StageProgram(program, ("x",), ("x",), names), None, "here", ValueError)
    assert stage.chips == 2
    for given in (x, -x):
        exact = copy.deepcopy(module).double()(given.double())
        for found, wanted in zip(stage.forward((given,)), exact, strict=True):
            assert_near(found.numpy(), wanted.detach().numpy())
    stage.close()
    (alone,) = chips_of(sambac.compile(module, inputs=(x,)).graphs[0])
    assert alone == range(1)


@pytest.mark.parametrize("train", [False, True])
def test_breaks_that_mean_nothing_are_told(train: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    options = sambac.CompileOptions(
        section_breaks=("1", "2x"), chip_breaks=("linera",), train=train
    )
    if train:
        options = replace(options, backward_from=("output",))
    told = [text for text in sambac.compile(module, options, inputs=(torch.ones(1, 2),)).warnings
            if "no operator fits" in text]  # fmt: skip
    assert told == [
        "no operator fits section_breaks '2x' (did you mean '2'?)",
        "no operator fits chip_breaks 'linera' (did you mean 'linear'?)",
    ]
