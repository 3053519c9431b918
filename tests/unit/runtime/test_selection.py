"""One way to say what to run: a selection, and the arguments that make one."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
from training_programs import batches, linear_regression

import pef
import sambarun
from sambarun import Executable, RunError, Selection
from sambarun.selection import SelectionWords

WORDS = [
    {},
    {"section_types": "FWD"},
    {"section_types": ["FWD", "BCKWD"]},
    {"section_types": (pef.SectionType.FWD,), "train": True},
    {"section_ids": [0]},
    {"calls": [0, 1], "train": True},
    {"section_types": "FWD", "graph": "eval"},
    {"reduction": "none"},
]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_arguments_and_a_selection_run_the_same(words):
    (batch,) = batches(1)
    found = []
    for asked, given in ((None, words), (Selection(**words), {})):
        with sambarun.load(linear_regression().program()) as executable:
            executable.prepare(asked, **given)
            outputs = executable.run(batch, asked, **given)
            spans = executable.profile(batch, asked, **given).spans
            found.append((outputs, [span.section for span in spans]))
    (first, ran), (second, others) = found
    assert ran == others
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_selection_holds_tuples_whatever_it_is_made_of():
    made = Selection(section_types=iter(["FWD"]), section_ids=iter([0, 1]))
    assert made == Selection(("FWD",), (0, 1))
    assert hash(made) == hash(Selection(["FWD"], [0, 1]))
    assert pickle.loads(pickle.dumps(made)) == made
    assert Selection("FWD").evaluates
    assert not Selection("FWD", train=True).evaluates


def test_an_iterator_is_no_name_of_what_it_gave_before():
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        types = iter(["FWD"])
        assert executable.run(batch, section_types=types)
        assert executable.run(batch, section_types=types) == {}  # it is at its end


@pytest.mark.parametrize("words", [{"section_ids": [True]}, {"calls": [True]}, {"train": 1}])
def test_what_equals_something_that_has_run_is_still_looked_at(words):
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        executable.run(batch, section_types="FWD", train=True)
        executable.run(batch, section_ids=[1], train=True)
        executable.run(batch, calls=[1], train=True)
        with pytest.raises(RunError, match="was expected"):
            executable.run(batch, **words)


def test_a_selection_and_arguments_beside_it_are_refused():
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        for words in ({"train": True}, {"section_types": "FWD"}, {"reduction": "none"}):
            with pytest.raises(RunError, match="Give a selection, or its fields as arguments"):
                executable.run(batch, Selection("FWD"), **words)


def test_keywords_that_there_are_not_are_told_with_all_that_there_are():
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        calls = {
            "prepare": (executable.prepare, ()),
            "run": (executable.run, (batch,)),
            "profile": (executable.profile, (batch,)),
        }
        for name, (call, given) in calls.items():
            says = rf"^Executable.{name}: there is no argument 'section_tpes' \(did you mean 'sect"
            for asked in (None, Selection("FWD")):
                with pytest.raises(TypeError, match=says):
                    call(*given, asked, section_tpes="FWD")
        with pytest.raises(
            TypeError, match=r"'hyperparms' \(did you mean 'hyperparams'\?\); it tak"
        ):
            executable.run(batch, hyperparms={"lr": 0.1})


def test_keywords_are_the_fields_of_a_selection():
    fields = Selection.__init__.__annotations__.keys() - {"return"}
    assert SelectionWords.__annotations__.keys() == fields
    for call in (Executable.prepare, Executable.run, Executable.profile):
        assert inspect.signature(call).parameters.keys() >= fields


def test_what_a_program_lacks_is_told_when_it_is_asked_for():
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        for asked, said in (
            (Selection("REDUCE"), "no sections of type REDUCE"),
            (Selection(section_ids=[99]), "There is no section 99"),
            (Selection(graph="evla"), "did you mean"),
        ):
            with pytest.raises(RunError, match=said):
                executable.run(batch, asked)
