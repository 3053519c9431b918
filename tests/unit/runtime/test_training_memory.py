"""Training in planned memory: packs, gradients that accumulate, reductions, linked sessions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from training_builder import Part, Tensor, node
from training_programs import Reference, assert_state, batches, linear_regression
from training_variants import accumulating, normed, packed, reducing, two_backward_sections

import sambarun
from pef import SectionType, SymbolKind
from pef.rules import check_program
from sambac import AdamW, CompileOptions
from sambac import compile as sambac_compile
from sambarun.device.host_kernels import dropout_mask

WHOLE = sambarun.linking.schedule.Chosen(), True, False, frozenset()
"""The plan of a step, linked, in a program that no argins choose."""


@pytest.fixture(params=[True, False], ids=["linked", "unlinked"])
def link(request):
    return request.param


class Doubling:
    """A reducer that notes what it was given and doubles it when somebody waits."""

    def __init__(self):
        self.log = []

    def start(self, name, buffer):
        self.log.append(("start", name))
        reducer = self

        class Handle:
            def wait(self):
                reducer.log.append(("wait", name))
                np.multiply(buffer, 2, out=buffer)

        return Handle()


def test_a_reducer_sums_gradients_before_the_update(link):
    spec, reducer = reducing(), Doubling()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link, reducer=reducer) as executable:
        for batch in batches(2):
            reference.average = 0.9 * reference.average + 0.1 * batch["x"].mean(0)
            gradients = reference.gradients(batch["x"], batch["y"])
            executable.step(batch)
            reference.update({name: 2 * gradient for name, gradient in gradients.items()})
        assert_state(executable, reference)
    assert reducer.log[:4] == [
        ("start", "w__grad"),
        ("start", "b__grad"),
        ("wait", "w__grad"),
        ("wait", "b__grad"),
    ]


def test_without_a_reducer_nothing_is_reduced(link):
    spec = reducing()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.step(batch)
        reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)


def test_packs_are_updated_as_a_whole(link):
    spec = packed()
    assert check_program(spec.program()) == []
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for batch in batches(3):
            reference.step(batch["x"], batch["y"])
            executable.step(batch)
        assert_state(executable, reference)
        assert "flat" not in executable.state()


def test_a_pack_of_gradients_is_there_when_its_members_are(link):
    spec = packed()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        with pytest.raises(sambarun.RunError, match="'flat_grad' has not been computed"):
            executable.run({}, section_types="OPT")
        executable.run(batch, section_types="FWD", train=True)
        executable.run({}, section_types="BCKWD")
        executable.run({}, section_types="OPT")
        reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)


def test_operators_over_a_pack_see_its_parts(link):
    spec = normed()
    assert check_program(spec.program()) == []
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for batch in batches(3):
            gradients = reference.gradients(batch["x"], batch["y"])
            expected = sum(float(np.sum(gradient**2)) for gradient in gradients.values())
            assert executable.run(batch)["norm"] == pytest.approx(expected, rel=1e-4)
            reference.step(batch["x"], batch["y"])
        given = {"w__grad": np.ones((3, 1), np.float32), "b__grad": np.ones(1, np.float32)}
        executable.run(batch, section_types="FWD", train=True)
        assert executable.run(given, section_types="GRADNORM")["norm"] == 4


def test_part_of_a_pack_may_be_given(link):
    spec = packed()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        with pytest.raises(sambarun.RunError, match="'flat_grad' has not been computed"):
            executable.run({"w__grad": np.ones((3, 1), np.float32)}, section_types="OPT")
        executable.run(batch, section_types="FWD", train=True)
        executable.run({}, section_types="BCKWD")
        executable.run({"w__grad": np.ones((3, 1), np.float32)}, section_types="OPT")
        gradients = reference.gradients(batch["x"], batch["y"])
        reference.average = 0.1 * batch["x"].mean(0, dtype=np.float64)
        reference.update({"w": np.ones((3, 1)), "b": gradients["b"]})
        assert_state(executable, reference)


def test_gradients_accumulate_over_the_batches_of_a_step(link):
    spec = accumulating()
    assert check_program(spec.program()) == []
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for first, second, third in (batches(3, 1), batches(3, 2)):
            group = [first, second, third]
            losses = executable.step(group)
            expected = [reference.loss(batch["x"], batch["y"]) for batch in group]
            assert losses["loss"] == pytest.approx(np.mean(expected), rel=1e-5)
            parts = [reference.gradients(batch["x"], batch["y"]) for batch in group]
            reference.update({name: sum(part[name] for part in parts) / 3 for name in ("w", "b")})
            for batch in group:
                reference.average = 0.9 * reference.average + 0.1 * batch["x"].mean(0)
        assert_state(executable, reference)


def test_one_batch_of_an_accumulating_program_is_a_plain_step(link):
    spec = accumulating()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for batch in batches(3):
            executable.step([batch])
            reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)


def test_several_batches_need_a_program_that_accumulates():
    with sambarun.load(linear_regression().program()) as executable:
        with pytest.raises(sambarun.RunError, match="A step over 2 batches needs a program"):
            executable.step(batches(2))
        with pytest.raises(sambarun.RunError, match="at least one batch"):
            executable.step([])


def test_only_a_session_that_nothing_else_of_it_reads_updates_in_place(link):
    """A second section reads the running average that the first updates: not one session."""
    spec = linear_regression()
    forward, backward, update, evaluation = spec.parts
    peek = Part(
        "peek",
        SectionType.FWD,
        [node("Neg", "average", "peeked")],
        ["average"],
        {"peeked": "peeked"},
    )
    spec = replace(
        spec,
        parts=[forward, peek, backward, update, evaluation],
        tensors={**spec.tensors, "peeked": Tensor(SymbolKind.OUTPUT, (3,))},
        outputs={**spec.outputs, "train": {"loss": "loss", "peeked": "peeked"}},
    )
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        outputs = executable.run(batch)
        np.testing.assert_array_equal(outputs["peeked"], -executable.state()["average"])
        if link:
            plan = executable._lock._workspace._plans[
                sambarun.linking.schedule.Chosen(), True, False, frozenset()
            ]
            assert [step.unit.sections for step in plan.steps] == [(0,), (0,), (1, 2), (3,)]


def test_a_mask_that_a_linked_session_has_no_room_for_gets_its_own():
    """The plan for single sections puts the gradient where the mask was."""
    spec = linear_regression()
    where = {allocation.name: allocation.address for allocation in spec.program().allocations}
    spec = replace(spec, addresses={"w__grad": where["mask"]})
    reference = Reference.of(spec)
    with sambarun.load(spec.program()) as executable:
        for number, batch in enumerate(batches(3), 1):
            mask = np.empty((4, 3), np.float32)
            dropout_mask(0.5, 7, 5, number, mask)
            reference.step(batch["x"], batch["y"], mask)
            executable.step(batch, {"p": 0.5})
        assert_state(executable, reference)
        plan = executable._lock._workspace._plans[WHOLE]
        assert plan.valued == (list(spec.tensors).index("mask"),)


@pytest.mark.parametrize(
    ("spec", "sections", "valued"),
    [
        (two_backward_sections(linear_regression()), [(1, 2)], ["w__grad"]),
        # A part of a pack has to be where it is planned: the sections stay apart.
        (two_backward_sections(packed()), [(1,), (2,)], []),
    ],
)
def test_a_linked_backward_pass_does_not_write_over_what_it_reads(spec, sections, valued):
    assert check_program(spec.program()) == []
    reference = Reference.of(spec)
    with sambarun.load(spec.program()) as executable:
        for batch in batches(3):
            executable.run(batch, section_types="FWD", train=True)
            executable.run({}, section_types="BCKWD")
            executable.run({}, section_types="OPT")
            reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)
        plans = executable._lock._workspace._plans
        plan = plans[
            sambarun.linking.schedule.Chosen((SectionType.BCKWD,)), True, False, frozenset()
        ]
    assert [step.unit.sections for step in plan.steps] == sections
    assert [list(spec.tensors)[symbol] for symbol in plan.valued] == valued


def test_an_empty_weight_begins_where_something_else_does(link):
    text = """<ir_version: 8, opset_import: ["": 17]>
    net (float[4,3] x) => (float y) <float[0,3] e = {}> {
      c = Concat<axis = 0>(x, e) y = ReduceMean<keepdims = 0>(c)
    }"""
    options = CompileOptions(train=True, loss=("y",), optimizers=(AdamW(lr=0.1),))
    program = sambac_compile(onnx.parser.parse_model(text), options)
    with sambarun.load(program, link=link) as executable:
        assert executable.step({"x": np.full((4, 3), 2, np.float32)})["y"] == 2
        assert executable.state()["e"].shape == (0, 3)
        assert executable.state()["adamw__step"] == 1
        assert executable.argins["adamw.lr"] == 0.1
