"""Training programs: whole steps, parts of them, evaluation, masks, links between sections."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from training_programs import Reference, assert_state, batches, linear_regression

import pef
import sambarun
from pef.rules import check_program
from sambarun.device.host_kernels import dropout_mask
from sambarun.sessions import opening

WHOLE = sambarun.linking.schedule.Chosen(), True, False, frozenset()
"""The plan of a step, linked, in a program that no argins choose."""


@pytest.fixture(params=[True, False], ids=["linked", "unlinked"])
def link(request):
    return request.param


def test_the_hand_made_program_is_right():
    assert check_program(linear_regression().program()) == []


def test_steps_are_those_of_the_formulas(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for batch in batches(6):
            expected = reference.step(batch["x"], batch["y"])
            losses = executable.step(batch)
            assert list(losses) == ["loss"]
            assert losses["loss"] == pytest.approx(expected, rel=1e-5)
        assert_state(executable, reference)
        assert executable.state()["sgd__step"] == 6


def test_run_without_a_selection_is_a_step(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        outputs = executable.run(batch)
        assert outputs["loss"] == pytest.approx(reference.step(batch["x"], batch["y"]), rel=1e-5)
        assert_state(executable, reference)


def test_forward_backward_and_update_in_runs_of_their_own(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for batch in batches(3):
            gradients = reference.gradients(batch["x"], batch["y"])
            expected = reference.step(batch["x"], batch["y"])
            outputs = executable.run(batch, section_types="FWD", train=True)
            assert outputs["loss"] == pytest.approx(expected, rel=1e-5)
            found = executable.run({}, section_types="BCKWD")
            assert sorted(found) == ["b__grad", "w__grad"]
            np.testing.assert_allclose(found["w__grad"], gradients["w"], rtol=1e-4, atol=1e-5)
            assert executable.run({}, section_types="OPT") == {}
        assert_state(executable, reference)


def test_sections_one_by_one_are_a_step():
    spec = linear_regression()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program()) as executable:
        executable.run(batch, section_ids=[0])
        executable.run({}, section_ids=[1])
        executable.run({}, calls=[2])
        reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)


def test_a_step_is_one_session_for_the_passes_and_one_for_the_update():
    with sambarun.load(linear_regression().program()) as executable:
        spans = executable.profile(batches(1)[0]).spans
        assert [span.type for span in spans] == ["HOST", "FWD", "BCKWD", "OPT"]
        executable.step(batches(1)[0])
        plan = executable._lock._workspace._plans[WHOLE]
    assert [step.unit.sections for step in plan.steps] == [(0,), (0, 1), (2,)]


TWO_MOVES = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (float[2,4,2,8,4] x) => (float[4,2,1,16,4] y)
<int64[3] rows = {8, 16, 4}, int64[4] image = {2, 4, 4, 16}, int64[5] volume = {4, 2, 1, 4, 16}>
{
    a = Reshape(x, rows)
    b = Transpose<perm = [0, 2, 1]>(a)
    c = Reshape(b, image)
    d = Transpose<perm = [1, 0, 2, 3]>(c)
    y = Reshape(d, volume)
}""").SerializeToString()


def test_transposes_of_a_step_are_those_of_the_program(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        opening, "_create", lambda *given, of=opening._create: made.append(given[2]) or of(*given)
    )
    with sambarun.load(linear_regression().program(), threads=1) as executable:
        executable.step(*batches(1))
    assert {tuning.moves for tuning in made} == {False}
    ranks = []
    for moves in (False, True):
        tuning = made[0]._replace(moves=moves, profiles=str(tmp_path))
        session = opening.create_session(TWO_MOVES, ".", tuning)
        session.run(None, {"x": np.zeros((2, 4, 2, 8, 4), np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
        moved = [e["args"] for e in events if e.get("args", {}).get("op_name") == "Transpose"]
        ranks += [len(*args["output_type_shape"][0].values()) for args in moved]
    assert ranks == [4, 5], "of its own accord onnxruntime takes an axis of size 1 into the move"


def test_recomputed_activations_keep_the_passes_apart():
    """In one session onnxruntime would merge what BCKWD computes again with the original."""
    spec = linear_regression()
    program = spec.program()
    features = ("recompute", "training")
    program = replace(program, requires=replace(program.requires, features=features))
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(program) as executable:
        executable.step(batch)
        reference.step(batch["x"], batch["y"])
        assert_state(executable, reference)
        plan = executable._lock._workspace._plans[WHOLE]
    assert [step.unit.sections for step in plan.steps] == [(0,), (0,), (1,), (2,)]


def test_the_gradient_of_a_loss_can_be_given(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.step({**batch, "loss__grad": np.float32(0.5)})
        gradients = reference.gradients(batch["x"], batch["y"])
        reference.average = 0.1 * batch["x"].mean(0, dtype=np.float64)
        reference.update({name: 0.5 * gradient for name, gradient in gradients.items()})
        assert_state(executable, reference)


def test_gradients_can_be_given_and_read(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    given = {"w__grad": np.ones((3, 1), np.float32), "b__grad": np.ones(1, np.float32)}
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.run(given, section_types="OPT")
        reference.update({"w": given["w__grad"], "b": given["b__grad"]})
        np.testing.assert_allclose(executable.state()["w"], reference.w, rtol=1e-5)
        gradients = reference.gradients(batch["x"], batch["y"])
        executable.run(batch, section_types=["FWD", "BCKWD"])
        found = executable.read("w__grad", "b")
        np.testing.assert_allclose(found["w__grad"], gradients["w"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["b"], reference.b, rtol=1e-5)


def test_read_names_what_it_cannot_read():
    with sambarun.load(linear_regression().program()) as executable:
        with pytest.raises(sambarun.RunError) as caught:
            executable.read("w__grad", "w__grid", "w")
        assert str(caught.value) == (
            "'w__grad' has no value now: run what computes it first.\n"
            "There is no symbol 'w__grid' (did you mean 'w__grad'?)."
        )


def test_backward_needs_a_forward_run(link):
    expected = "'h' has not been computed: run section 0 'forward' first"
    with (
        sambarun.load(linear_regression().program(), link=link) as executable,
        pytest.raises(sambarun.RunError, match=expected),
    ):
        executable.run({}, section_types="BCKWD")


def test_forward_alone_evaluates(link):
    spec = linear_regression()
    reference = Reference.of(spec)
    one, two = batches(2)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.step(one)
        reference.step(one["x"], one["y"])
        before = executable.state()
        outputs = executable.run(two, section_types="FWD", hyperparams={"p": 0.9})
        assert list(outputs) == ["prediction", "loss", "average"]
        assert outputs["loss"] == pytest.approx(reference.loss(two["x"], two["y"]), rel=1e-5)
        np.testing.assert_array_equal(outputs["average"], before["average"])
        for name, array in executable.state().items():
            np.testing.assert_array_equal(array, before[name])


def test_evaluation_between_the_passes_is_noticed_where_it_overwrites(link):
    """The prediction of the evaluation lies where `h` was kept for the backward pass."""
    spec = linear_regression()
    where = {allocation.name: allocation.address for allocation in spec.program().allocations}
    spec = replace(spec, addresses={"eval/prediction": where["h"]})
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.run(batch, section_types="FWD", train=True)
        executable.run(batch, section_types="FWD")
        with pytest.raises(sambarun.RunError, match="'h' has not been computed"):
            executable.run({}, section_types="BCKWD")
        executable.run(batch, section_types="FWD", train=True)
        executable.run({}, section_types="BCKWD")


def test_evaluation_between_the_passes_is_harmless_elsewhere(link):
    spec = linear_regression()
    (batch,) = batches(1)
    with sambarun.load(spec.program(), link=link) as executable:
        executable.run(batch, section_types="FWD", train=True)
        executable.run(batch, section_types="FWD")
        gradients = executable.run({}, section_types="BCKWD")
    reference = Reference.of(spec).gradients(batch["x"], batch["y"])
    np.testing.assert_allclose(gradients["w__grad"], reference["w"], rtol=1e-4, atol=1e-5)


def test_sections_of_two_graphs_do_not_run_together():
    with (
        sambarun.load(linear_regression().program()) as executable,
        pytest.raises(sambarun.RunError, match="graphs 'train' and 'eval'; run those of one"),
    ):
        executable.run(batches(1)[0], section_ids=[0, 3])


def test_states_are_no_inputs():
    with (
        sambarun.load(linear_regression().program()) as executable,
        pytest.raises(sambarun.RunError, match="There is no input 'w__momentum_buffer'"),
    ):
        executable.step({**batches(1)[0], "w__momentum_buffer": np.zeros((3, 1), np.float32)})


def masked(link, steps=4, **hyperparams):
    """Steps with dropout, and the masks that the reference says they had."""
    spec = linear_regression()
    reference = Reference.of(spec)
    with sambarun.load(spec.program(), link=link) as executable:
        for number, batch in enumerate(batches(steps), 1):
            mask = np.empty((4, 3), np.float32)
            dropout_mask(0.4, hyperparams.get("seed", 7), 5, number, mask)
            expected = reference.step(batch["x"], batch["y"], mask)
            losses = executable.step(batch, {"p": 0.4, **hyperparams} if number == 1 else None)
            assert losses["loss"] == pytest.approx(expected, rel=1e-5)
        assert_state(executable, reference)


def test_the_mask_is_the_same_forward_and_backward_and_new_in_each_step(link):
    masked(link)


def test_the_seed_of_masks_is_an_argin(link):
    masked(link, seed=12345)


def test_the_mask_of_a_step_counts_forward_runs_of_training():
    """Neither evaluation nor a backward pass moves on to the next mask."""
    one, two = batches(2)
    with sambarun.load(linear_regression().program()) as executable:
        executable.step(one, {"p": 0.5})
        expected = executable.step(two)["loss"]
    with sambarun.load(linear_regression().program()) as executable:
        executable.run(one, section_types="FWD", train=True, hyperparams={"p": 0.5})
        executable.run(one, section_types="FWD")
        executable.run({}, section_types="BCKWD")
        executable.run({}, section_types="OPT")
        executable.run(one, section_types="FWD")
        assert executable.step(two)["loss"] == expected


@pytest.mark.parametrize("operators", [False, True])
def test_profiling_trains_too_and_once(operators):
    spec = linear_regression()
    reference = Reference.of(spec)
    (batch,) = batches(1)
    with sambarun.load(spec.program()) as executable:
        profile = executable.profile(batch, operators=operators)
        expected = reference.step(batch["x"], batch["y"])
        assert profile.outputs["loss"] == pytest.approx(expected, rel=1e-5)
        assert profile.spans[0].name == "forward/dropout_mask"
        assert_state(executable, reference)


def test_a_clone_takes_the_states_along_and_goes_its_own_way():
    spec = linear_regression()
    one, two = batches(2)
    with sambarun.load(spec.program()) as executable:
        executable.step(one, {"lr": 0.01, "p": 0.2})
        with executable.clone() as other:
            assert other.argins == executable.argins
            before = executable.state()
            loss = other.step(two)["loss"]
            for name, array in executable.state().items():
                np.testing.assert_array_equal(array, before[name])
            assert executable.step(two)["loss"] == loss


def test_inference_programs_do_not_train(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        for act in (
            lambda: executable.step({"x": x}),
            lambda: executable.run({"x": x}, train=True),
            lambda: executable.state(),
            lambda: executable.initialize(0),
            lambda: executable.save("nowhere.safetensors"),
            lambda: executable.load("nowhere.safetensors"),
        ):
            with pytest.raises(sambarun.RunError, match="not compiled for training"):
                act()
        assert executable.argins == {}
        with pytest.raises(sambarun.RunError, match="There is no hyperparameter 'lr'"):
            executable.run({"x": x}, hyperparams={"lr": 1.0})


def test_a_failed_run_leaves_no_results_behind():
    with sambarun.load(linear_regression().program()) as executable:
        (batch,) = batches(1)
        executable.run(batch, section_types="FWD", train=True)
        runs = executable._lock._workspace.runs
        runs._memory.forget(runs._last.writes, runs._last.valued)
        with pytest.raises(sambarun.RunError, match="'h' has not been computed"):
            executable.run({}, section_types="BCKWD")


def test_features_that_are_unknown_are_refused(tmp_path):
    program = linear_regression().program()
    program = replace(program, requires=replace(program.requires, features=("magic", "training")))
    program.save(tmp_path / "new.pef")
    with pytest.raises(pef.PefError, match="needs 'magic', which this runtime does not know"):
        sambarun.load(tmp_path / "new.pef")
