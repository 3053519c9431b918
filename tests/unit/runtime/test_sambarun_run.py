"""Running whole programs and parts of them."""

from __future__ import annotations

import copy
import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper

import pef
import sambarun


@pytest.fixture(params=[True, False], ids=["linked", "unlinked"])
def link(request):
    return request.param


def test_runs_the_schedule(chain, chain_pef, x, reference, link):
    with sambarun.load(chain_pef, link=link) as executable:
        outputs = executable.run({"x": x})
    assert list(outputs) == ["y"]
    np.testing.assert_allclose(outputs["y"], reference(x, chain)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"prepack": False}, {"one_shot": True}, {"threads": 1}])
def test_options_do_not_change_results(chain, chain_pef, x, reference, options):
    with sambarun.load(chain_pef, **options) as executable:
        y = executable.run({"x": x})["y"]
    np.testing.assert_allclose(y, reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_runs_a_program_that_is_in_memory(chain, x, reference):
    with sambarun.load(chain.program()) as executable:
        y = executable.run({"x": x})["y"]
    np.testing.assert_allclose(y, reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_the_second_run_takes_the_new_inputs(chain, chain_pef, x, reference, link):
    with sambarun.load(chain_pef, link=link) as executable:
        executable.run({"x": x})
        again = executable.run({"x": 2 * x})["y"]
        x *= -1  # the same memory, other content
        third = executable.run({"x": x})["y"]
    np.testing.assert_allclose(again, reference(-2 * x, chain)[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(third, reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_one_section_gives_its_outputs_under_the_symbols_names(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef) as executable:
        outputs = executable.run({"x": x}, section_ids=[0])
    assert list(outputs) == ["h"]
    np.testing.assert_allclose(outputs["h"], reference(x, chain)[0], rtol=1e-5, atol=1e-5)


def test_a_section_reads_what_an_earlier_run_computed(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef) as executable:
        executable.run({"x": x}, section_ids=[0])
        outputs = executable.run({}, section_ids=[1])
    np.testing.assert_allclose(outputs["y"], reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_a_section_reads_what_the_planned_memory_still_holds(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef, link=False) as executable:
        executable.run({"x": x})
        outputs = executable.run({}, calls=[1])
    np.testing.assert_allclose(outputs["y"], reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_a_section_takes_another_ones_result_from_the_caller(chain, chain_pef, x, reference):
    hidden, y = reference(x, chain)
    with sambarun.load(chain_pef) as executable:
        outputs = executable.run({"h": hidden}, section_ids=[1])
    np.testing.assert_allclose(outputs["y"], y, rtol=1e-5, atol=1e-5)


def test_what_nobody_computed_is_named_with_its_section(chain_pef):
    expected = r"'h' has not been computed: run section 0"
    with sambarun.load(chain_pef) as executable, pytest.raises(sambarun.RunError, match=expected):
        executable.run({}, section_ids=[1])


def test_overwritten_memory_is_not_taken_for_a_result(spec_type, sec_type, value_type):
    """`a` and `c` share an address: after a whole run the memory holds `c`."""
    names = ["x", "a", "b", "c"]
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("Neg", [source], [target])], [source], [target])
            for source, target in pairwise(names)
        ],
        values={name: value_type() for name in names},
        inputs=["x"],
        outputs=["c"],
        addresses={"x": 256, "a": 0, "b": 128, "c": 0},
    )
    with sambarun.load(spec.program(), link=False) as executable:
        executable.run({"x": np.ones(4, np.float32)})
        with pytest.raises(sambarun.RunError, match="'a' has not been computed"):
            executable.run({}, section_ids=[1])


def test_a_linked_unit_does_not_write_over_what_it_reads(spec_type, sec_type, value_type):
    """A section that cannot be linked makes `a`; the linked ones after it may reuse its memory."""
    neg = helper.make_node
    spec = spec_type(
        sections=[
            sec_type([neg("Neg", ["x"], ["a"])], ["x"], ["a"], opset=20),
            sec_type([neg("Neg", ["a"], ["b"])], ["a"], ["b"]),
            sec_type([neg("Neg", ["b"], ["c"])], ["b"], ["c"]),
        ],
        values={name: value_type() for name in "xabc"},
        inputs=["x"],
        outputs=["c"],
        addresses={"x": 256, "a": 0, "b": 128, "c": 0},
    )
    with sambarun.load(spec.program()) as executable:
        for factor in (1.0, 3.0):
            x = np.full(4, factor, np.float32)
            np.testing.assert_array_equal(executable.run({"x": x})["c"], -x)


def test_section_types_select(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef) as executable:
        for kinds in (["FWD"], "fwd", [pef.SectionType.FWD]):
            y = executable.run({"x": x}, section_types=kinds)["y"]
            np.testing.assert_allclose(y, reference(x, chain)[1], rtol=1e-5, atol=1e-5)
        with pytest.raises(sambarun.RunError, match="no sections of type OPT; it has FWD"):
            executable.run({"x": x}, section_types=["OPT"])


def test_a_program_without_sections_runs_forward(spec_type, value_type):
    spec = spec_type(sections=[], values={"x": value_type()}, inputs=["x"], outputs=["x"])
    with sambarun.load(spec.program()) as executable:
        given = {"x": np.ones(4, np.float32)}
        np.testing.assert_array_equal(executable.run(given, section_types="FWD")["x"], 1)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"section_types": "OPT"}, "no sections of type OPT; it has FWD"),
        ({"section_ids": [0]}, "There is no section 0; the program has no sections"),
    ],
)
def test_a_program_without_sections_says_so(spec_type, value_type, what, message):
    spec = spec_type(sections=[], values={"x": value_type()}, inputs=["x"], outputs=["x"])
    with (
        sambarun.load(spec.program()) as executable,
        pytest.raises(sambarun.RunError, match=message),
    ):
        executable.run({"x": np.ones(4, np.float32)}, **what)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ({"section_ids": [0, 2, 9]}, "no section 2, 9; sections go from 0 to 1"),
        ({"calls": [-1]}, "no call -1; calls go from 0 to 1"),
        # Each names something, and both together nothing.
        ({"section_ids": [0], "calls": [1]}, "No section has ids 0 and calls 1: nothing would run"),
    ],
)
def test_unknown_sections_and_calls_are_errors(chain_pef, x, what, message):
    with sambarun.load(chain_pef) as executable, pytest.raises(sambarun.RunError, match=message):
        executable.run({"x": x}, **what)


def test_a_linked_run_leaves_nothing_of_earlier_inputs(chain_pef, x):
    """What section 1 reads was computed from other inputs than those of the last complete run."""
    with sambarun.load(chain_pef) as executable:
        executable.run({"x": -x}, section_ids=[0])
        executable.run({"x": x})
        with pytest.raises(sambarun.RunError, match="has not been computed: run section 0"):
            executable.run({"x": x}, section_ids=[1])


def test_what_linked_sections_compute_is_no_input(chain, chain_pef, x):
    inputs = {"x": x, chain.sections[0].outputs[0]: np.zeros((2, 64), np.float32)}
    with (
        sambarun.load(chain_pef) as executable,
        pytest.raises(sambarun.RunError, match="'h' cannot be given: section 0"),
    ):
        executable.run(inputs)


def test_results_are_copies_unless_asked_for(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        first = executable.run({"x": x})["y"]
        kept = first.copy()
        view = executable.run({"x": -x}, copy=False)["y"]
        np.testing.assert_array_equal(first, kept)
        before = view.copy()
        executable.run({"x": 3 * x})
        assert not np.array_equal(view, before), "a view follows the memory it aliases"
    assert view.sum() == view.sum(), "a view outlives the executable"


def test_a_clone_has_memory_of_its_own(chain, chain_pef, x, reference):
    executable = sambarun.load(chain_pef)
    clone = executable.clone()
    mine = executable.run({"x": x}, copy=False)["y"]
    theirs = clone.run({"x": -x}, copy=False)["y"]
    np.testing.assert_allclose(mine, reference(x, chain)[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(theirs, reference(-x, chain)[1], rtol=1e-5, atol=1e-5)
    executable.close()
    np.testing.assert_array_equal(clone.run({"x": -x})["y"], theirs)
    clone.close()


def test_a_closed_executable_says_so(chain_pef, x):
    executable = sambarun.load(chain_pef)
    executable.close()
    executable.close()
    for call in (lambda: executable.run({"x": x}), executable.clone, executable.prepare):
        with pytest.raises(sambarun.RunError, match="closed"):
            call()


def test_a_concurrent_run_is_refused(chain_pef, x):
    """The second thread comes while the first is inside `run`, held there by its inputs."""
    inside, leave = threading.Event(), threading.Event()

    class Slow(dict):
        def items(self):
            inside.set()
            leave.wait(30)
            return super().items()

    with sambarun.load(chain_pef) as executable:
        thread = threading.Thread(target=executable.run, args=(Slow(x=x),))
        thread.start()
        inside.wait(30)
        try:
            with pytest.raises(sambarun.RunError, match=r"another thread.*clone"):
                executable.run({"x": x})
        finally:
            leave.set()
            thread.join()
        assert executable.run({"x": x})


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_an_executable_nor_its_program_is_copied_or_pickled(chain_pef, copies):
    with sambarun.load(chain_pef) as executable:
        with pytest.raises(TypeError, match=r"clone\(\) makes another one in this process, and"):
            copies(executable)
        with pytest.raises(TypeError, match=r"save\(path\) it, and give another process the path"):
            copies(executable.program)


def test_threads_may_run_clones_at_the_same_time(chain, chain_pef, x, reference):
    executable = sambarun.load(chain_pef)
    clones = [executable.clone() for _ in range(4)]
    results: dict[int, np.ndarray] = {}

    def work(number):
        for _ in range(20):
            results[number] = clones[number].run({"x": x * number})["y"]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        expected = reference(x * number, chain)[1]
        np.testing.assert_allclose(results[number], expected, rtol=1e-5, atol=1e-5)
    for one in (executable, *clones):
        one.close()


def test_inputs_may_lie_anywhere(chain, chain_pef, x, reference):
    """Not contiguous, not aligned, read-only, of the other byte order."""
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    unaligned[:] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    y = reference(x, chain)[1]
    with sambarun.load(chain_pef, link=False) as executable:
        for given in (unaligned, frozen, wide, x.astype(">f4"), np.asfortranarray(x)):
            result = executable.run({"x": given})["y"]
            np.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)


def test_a_failing_section_is_named_and_leaves_the_executable_usable(
    spec_type, sec_type, value_type
):
    gather = helper.make_node("Gather", ["h", "i"], ["y"])
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("Neg", ["x"], ["h"])], ["x"], ["h"]),
            sec_type([gather], ["h", "i"], ["y"]),
        ],
        values={
            "x": value_type(),
            "h": value_type(),
            "i": value_type((), TensorProto.INT64),
            "y": value_type(()),
        },
        inputs=["x", "i"],
        outputs=["y"],
    )
    x = np.arange(4, dtype=np.float32)
    with sambarun.load(spec.program(), link=False) as executable:
        with pytest.raises(sambarun.RunError, match=r"Index 9 .*: 'i' holds 9 to 9; 0 to 3 are"):
            executable.run({"x": x, "i": 9})
        assert executable.run({"x": x, "i": 2}) == {"y": -2.0}


def test_a_profile_has_a_span_for_each_call_and_the_results(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef) as executable:
        profile = executable.profile({"x": x})
    np.testing.assert_allclose(profile.outputs["y"], reference(x, chain)[1], rtol=1e-5, atol=1e-5)
    assert [(s.call, s.section, s.name, s.type) for s in profile.spans] == [
        (0, 0, "s0", "FWD"),
        (1, 1, "s1", "FWD"),
    ]
    first, second = profile.spans
    assert 0 <= first.start <= first.start + first.duration <= second.start
    assert second.duration > 0


def test_a_weight_may_be_an_output(spec_type, sec_type, value_type):
    """A model that gives back a constant has no section for it."""
    base = spec_type(
        sections=[sec_type([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"])],
        values={"x": value_type(), "y": value_type()},
        inputs=["x"],
        outputs=["y", "c", "x"],
        weights={"c": np.arange(6, dtype=np.int64)},
    )
    x = np.ones(4, np.float32)
    with sambarun.load(base.program()) as executable:
        outputs = executable.run({"x": x})
    np.testing.assert_array_equal(outputs["c"], np.arange(6))
    np.testing.assert_array_equal(outputs["x"], x)
    assert not np.shares_memory(outputs["x"], x)


def test_sections_that_cannot_be_linked_run_one_by_one(spec_type, sec_type, value_type):
    """Linked, the limit becomes a constant, which `Range` must not get as a vector."""
    node = helper.make_node
    constants = [node("Constant", [], [n], value_int=v) for n, v in (("start", 0), ("step", 1))]
    spec = spec_type(
        sections=[
            sec_type([node("Neg", ["minus"], ["limit"])], [], ["limit"], ["minus"]),
            sec_type(
                [*constants, node("Range", ["start", "limit", "step"], ["y"])], ["limit"], ["y"]
            ),
        ],
        values={
            "limit": value_type((1,), TensorProto.INT64),
            "y": value_type((None,), TensorProto.INT64),
        },
        inputs=[],
        outputs=["y"],
        weights={"minus": np.array([-3])},
    )
    with sambarun.load(spec.program()) as executable:
        np.testing.assert_array_equal(executable.run({})["y"], [0, 1, 2])
