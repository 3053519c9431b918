"""The seed of dropout: naming it begins the masks anew, and a run that goes on does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from training_programs import batches, linear_regression

import sambarun
from sambarun import Executable
from sambarun.train_loop import Run, train
from sambarun.training.data import Batches

SEEDED = {"seed": 7, "p": 0.5, "lr": 0.0}
Call = Callable[[Executable, Mapping[str, object], Mapping[str, float] | None], object]


def _step(executable, batch, given):
    return executable.step(batch, given)["loss"]


def _run(executable, batch, given):
    return executable.run(batch, hyperparams=given)["loss"]


def _parts(executable, batch, given):
    loss = executable.run(batch, section_types="FWD", train=True, hyperparams=given)["loss"]
    executable.run({}, section_types=("BCKWD", "OPT"))
    return loss


def _profile(executable, batch, given):
    return executable.profile(batch, hyperparams=given).outputs["loss"]


def _written(executable, batch, given):
    executable.write({"seed": 7.0, "drop.p": 0.5, "sgd.lr": 0.0} if given else {})
    return executable.step(batch)["loss"]


@pytest.fixture(params=[_step, _run, _parts, _profile, _written])
def call(request):
    return request.param


def losses(call: Call, given: list[Mapping[str, float] | None]) -> list[float]:
    (batch,) = batches(1)
    with sambarun.load(linear_regression().program()) as executable:
        return [float(call(executable, batch, settings)) for settings in given]


def test_the_same_seed_in_each_step_makes_the_same_masks(call):
    assert len(set(losses(call, [SEEDED] * 4))) == 1


def test_a_seed_given_once_counts_on(call):
    found = losses(call, [SEEDED, None, None])
    assert len(set(found)) == 3
    assert found == losses(_step, [SEEDED, None, None])


def test_a_seed_given_again_repeats_step_for_step(call):
    found = losses(call, [SEEDED, None, None, SEEDED, None, None])
    assert found[:3] == found[3:]


def test_seeds_beside_each_other_make_masks_of_their_own():
    """Up to where a seed is refused, as float64 does not tell it from its neighbours."""
    seeds = [s for near in (0, 2**31, 2**53 - 2) for s in (near, near + 1, -near - 1)]
    assert len(set(losses(_step, [{**SEEDED, "seed": seed} for seed in seeds]))) == len(set(seeds))


@pytest.mark.parametrize("call", [_step, _run, _parts, _profile])
def test_other_hyperparameters_leave_the_masks_alone(call):
    assert losses(call, [SEEDED, {"lr": 0.0}]) == losses(call, [SEEDED, None])


def loop(steps: int, given: Mapping[str, float], folder, load: bool = False) -> list[float]:
    """The losses of a training run, and a checkpoint behind it."""
    rows = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    data = {"x": rows[:, :3].copy(), "y": rows[:, 3:].copy()}
    with sambarun.load(linear_regression().program()) as executable:
        start = executable.load(folder / "state.safetensors") if load else None
        run = Run(steps, hyperparams=given) if start is None else Run(steps, start, 1, given)
        made = [*train(executable, Batches(executable.program, data, "train"), run)]
        executable.save(folder / "state.safetensors", made[-1].cursor)
    return [step.losses["loss"] for step in made]


def test_a_run_over_data_is_given_its_seed_once(tmp_path):
    """Two batches an epoch: the second epoch sees the same rows with other masks."""
    found = loop(4, SEEDED, tmp_path)
    assert len(set(found)) == 4


@pytest.mark.parametrize("again", [{}, SEEDED, {"seed": 7.0, "lr": 0.0}])
def test_a_run_that_goes_on_goes_on_with_its_masks(tmp_path, again):
    whole = loop(4, SEEDED, tmp_path)
    assert [*loop(2, SEEDED, tmp_path), *loop(2, again, tmp_path, load=True)] == whole


def test_a_run_that_goes_on_with_another_seed_begins_its_masks(tmp_path):
    other = {**SEEDED, "seed": 8}
    loop(2, SEEDED, tmp_path)
    found = loop(2, other, tmp_path, load=True)
    assert found == loop(2, other, tmp_path)
