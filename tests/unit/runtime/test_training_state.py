"""States: first contents and hyperparameters."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from training_builder import Tensor
from training_programs import batches, linear_regression
from training_variants import lazy

import pef
import sambarun
from sambarun.device.footprint import touched_bytes
from sambarun.device.hyperparams import matching, number

MODEL = ["w", "b", "average"]


@pytest.fixture
def executable():
    with sambarun.load(linear_regression().program()) as loaded:
        yield loaded


def test_states_begin_as_the_file_says_and_optimizer_state_as_zeros(executable):
    tensors = linear_regression().tensors
    state = executable.state()
    assert list(state) == [*MODEL, "w__momentum_buffer", "b__momentum_buffer", "sgd__step"]
    for name in MODEL:
        np.testing.assert_array_equal(state[name], tensors[name].data)
    assert not state["w__momentum_buffer"].any()
    assert state["sgd__step"].dtype == np.int64


def test_the_state_is_a_copy(executable):
    executable.state()["w"][:] = 99
    assert executable.state()["w"].max() < 99


def test_runs_without_values_are_refused_and_name_them():
    with sambarun.load(lazy().program()) as executable:
        for act in (
            lambda: executable.step(batches(1)[0]),
            lambda: executable.run(batches(1)[0], section_types="FWD"),
            lambda: executable.save("nowhere.safetensors"),
        ):
            with pytest.raises(sambarun.RunError) as caught:
                act()
            assert str(caught.value) == (
                "The program holds no values for 2 of its parameters and buffers: 'w', 'average'. "
                "Load a checkpoint (--load FILE), or initialise them from a seed "
                "(--init random:SEED)."
            )
        assert "w" not in executable.state()


def test_a_run_that_needs_no_absent_state_is_allowed():
    spec = linear_regression()
    average = replace(spec.tensors["average"], data=None)
    spec = replace(spec, tensors={**spec.tensors, "average": average})
    with sambarun.load(spec.program()) as executable:
        gradients = {"w__grad": np.ones((3, 1), np.float32), "b__grad": np.ones(1, np.float32)}
        executable.run(gradients, section_types="OPT")
        with pytest.raises(sambarun.RunError, match="'average'"):
            executable.step(batches(1)[0])


def test_initial_values_depend_on_the_seed_and_the_name_alone():
    def drawn(seed):
        with sambarun.load(lazy().program()) as executable:
            executable.initialize(seed)
            executable.step(batches(1)[0])
            with sambarun.load(lazy().program()) as other:
                other.initialize(seed)
                return other.state()

    first, again, other = drawn(1), drawn(1), drawn(2)
    np.testing.assert_array_equal(first["w"], again["w"])
    assert not np.array_equal(first["w"], other["w"])
    assert np.abs(first["w"]).max() <= 1.0  # the fan in is 1
    assert not first["average"].any()
    np.testing.assert_array_equal(first["b"], linear_regression().tensors["b"].data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("norm.weight", 1.0),
        ("norm.bias", 0.0),
        ("bn.running_var", 1.0),
        ("bn.running_mean", 0.0),
        ("ln__gamma", 1.0),
        ("cls_token", 0.0),
    ],
)
def test_vectors_begin_as_their_names_say(name, value):
    spec = linear_regression()
    extra = replace(spec.tensors["b"], shape=(5,), data=None)
    spec = replace(spec, tensors={**spec.tensors, name: extra})
    with sambarun.load(spec.program()) as executable:
        executable.initialize(0)
        np.testing.assert_array_equal(executable.state()[name], np.full(5, value, np.float32))


def test_matrices_are_uniform_within_the_root_of_the_fan_in():
    spec = linear_regression()
    extra = replace(spec.tensors["w"], shape=(64, 16, 4), data=None)
    with sambarun.load(
        replace(spec, tensors={**spec.tensors, "conv": extra}).program()
    ) as executable:
        executable.initialize(3)
        found = executable.state()["conv"]
    assert np.abs(found).max() == pytest.approx(1 / 8, rel=1e-2)
    assert found.std() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    assert abs(found.mean()) < 0.01


# -- hyperparameters

ARGINS = ["adamw.lr", "sgd.lr", "sgd.momentum", "layers.0.dropout.p", "layers.1.dropout.p", "seed"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["lr"], {"adamw.lr": "lr", "sgd.lr": "lr"}),
        (["adamw.lr"], {"adamw.lr": "adamw.lr"}),
        (["adamw.lr", "lr"], {"adamw.lr": "adamw.lr", "sgd.lr": "lr"}),
        (["p"], {"layers.0.dropout.p": "p", "layers.1.dropout.p": "p"}),
        (["layers.p"], {"layers.0.dropout.p": "layers.p", "layers.1.dropout.p": "layers.p"}),
        (["layers.1.p"], {"layers.1.dropout.p": "layers.1.p"}),
        (["p", "layers.1.p"], {"layers.0.dropout.p": "p", "layers.1.dropout.p": "layers.1.p"}),
        (["dropout.p"], {"layers.0.dropout.p": "dropout.p", "layers.1.dropout.p": "dropout.p"}),
        (["seed"], {"seed": "seed"}),
    ],
)
def test_the_most_specific_name_sets_an_argin(given, expected):
    assert matching(given, ARGINS) == expected


@pytest.mark.parametrize("name", ["r", "ropout.p", "layer.p", "adam.lr", "0.p", "", "layers"])
def test_names_match_by_whole_components(name):
    with pytest.raises(sambarun.RunError, match=f"There is no hyperparameter '{name}'"):
        matching([name], ARGINS)


def test_unknown_names_are_listed_with_all_known_ones(executable):
    with pytest.raises(sambarun.RunError) as caught:
        executable.step(batches(1)[0], {"learning_rate": 1, "momentun": 1, "lr": 5})
    assert str(caught.value) == (
        "There is no hyperparameter 'learning_rate' (did you mean 'lr'?). The program's "
        "hyperparameters: sgd.lr, sgd.momentum, drop.p, seed.\n"
        "There is no hyperparameter 'momentun' (did you mean 'momentum'?). The program's "
        "hyperparameters: sgd.lr, sgd.momentum, drop.p, seed."
    )
    assert executable.argins == {"sgd.lr": 0.1, "sgd.momentum": 0.9, "drop.p": 0.0, "seed": 7.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": "fast"}, "'lr' is 'fast'; a number was expected"),
        ({"lr": True}, "'lr' is True; a number was expected"),
        ({"lr": float("nan")}, "'lr' is nan; a finite number was expected"),
        ({"p": 1.5}, "'p' is 1.5; a probability, 0 to 1, was expected"),
        ({"seed": 1.5}, "'seed' is 1.5; a whole number between -2\\*\\*53 and 2\\*\\*53 was"),
        ({"seed": 2**53 + 1}, "'seed' is 9007199254740992.0; a whole number between"),
        ({"seed": -(2**60)}, "'seed' is -1.1.*e\\+18; a whole number between"),
        ({"lr": -1.0}, "'lr' is -1.0; a finite number from 0 on was expected"),
        ({"sgd.momentum": -0.1}, "'sgd.momentum' is -0.1; a finite number from 0 on was expected"),
        ({"drop.p": -0.1}, "'drop.p' is -0.1; a probability, 0 to 1, was expected"),
    ],
)
def test_values_that_are_none_are_refused_and_nothing_is_set(executable, given, message):
    with pytest.raises(sambarun.RunError, match=message):
        executable.step(batches(1)[0], {"momentum": 0.5, **given})
    assert executable.argins["sgd.momentum"] == 0.9


@pytest.mark.parametrize(
    ("name", "value"), [("sgd.lr", -1.0), ("sgd.lr", np.nan), ("drop.p", 3.0), ("seed", 0.5)]
)
def test_what_is_written_to_a_hyperparameter_is_as_what_is_set(executable, name, value):
    with pytest.raises(sambarun.RunError, match=f"'{name}' is {value}; a .* was expected"):
        executable.write({"sgd.momentum": 0.5, name: value})
    assert executable.argins["sgd.momentum"] == 0.9


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1.0, True, "0"])
def test_a_seed_that_would_be_another_s_is_refused(seed):
    with (
        sambarun.load(lazy().program()) as executable,
        pytest.raises(sambarun.RunError, match="a whole number from 0 to"),
    ):
        executable.initialize(seed)


def test_hyperparameters_are_kept(executable):
    one, two = batches(2)
    executable.step(one, {"lr": 0.0, "sgd.momentum": np.float32(0.5)})
    before = executable.state()["w"]
    executable.step(two)
    np.testing.assert_array_equal(executable.state()["w"], before)
    assert executable.argins == {"sgd.lr": 0.0, "sgd.momentum": 0.5, "drop.p": 0.0, "seed": 7.0}


def test_damaged_content_of_a_state_is_noticed(tmp_path):
    path = tmp_path / "program.pef"
    linear_regression().program().save(path)
    with pef.open(path) as file:
        symbol = next(s for s in file.program.symbols if s.name == "w")
        position = file.file_offset(symbol.data)
    with open(path, "r+b") as raw:
        raw.seek(position)
        raw.write(b"\xff")
    with pytest.raises(sambarun.RunError, match="The content of 'w' is damaged"):
        sambarun.load(path)


def test_optimizer_state_that_no_step_uses_takes_no_memory():
    """Memory of zeros is not written to, neither at the beginning nor when it is copied.

    Seen in a process of its own: where much has run, malloc hands out pages of earlier use.
    """
    code = "import test_training_state as tests; tests.see_idle_state()"
    command = [sys.executable, "-c", code]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path}, timeout=200)


def see_idle_state():
    spec = linear_regression()
    size = 1 << 24
    idle = Tensor(pef.SymbolKind.OPT_STATE, (size,))
    program = replace(spec, tensors={**spec.tensors, "idle": idle}).program()
    with sambarun.load(program) as executable:
        executable.step(batches(1)[0])
        (buffer,) = (b for b in executable._lock._workspace._memory.buffers if b.nbytes >= 4 * size)
        assert touched_bytes([buffer]) < size
        assert not executable.state()["idle"].any()


def test_what_rounding_leaves_of_zero_is_a_rate():
    """As PyTorch's linear schedule from a third to 0 does in its last step."""
    for option in ("lr", "weight_decay", "momentum"):
        assert number(option, "given", -4.2e-18) == -4.2e-18


@pytest.mark.parametrize(
    ("option", "wrong", "right"),
    [
        ("beta1", 1.0, 0.0),
        ("beta2", -0.1, 0.999),
        ("alpha", 2.0, 0.5),
        ("max_grad_norm", 0.0, 1.0),
        ("max_grad_norm", -1, 2),
        ("trust", -1e-3, 0.0),
        ("eps", -1e-8, 0.0),
        ("lr_decay", -1, 1),
        ("weight_decay", -1, 5),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_their_kind(option, wrong, right):
    assert number(option, "given", right) == right
    with pytest.raises(sambarun.RunError, match=rf"'given' is {float(wrong)}; a .* was expected"):
        number(option, "given", wrong)


def test_what_an_argin_may_be_does_not_hang_on_its_name():
    program = linear_regression().program()
    (rate,) = (argin for argin in program.argins if argin.option == "lr")
    others = tuple(argin for argin in program.argins if argin is not rate)
    named = replace(program, argins=(replace(rate, name="speed"), *others))
    with sambarun.load(named) as executable:
        executable.step(batches(1)[0], {"speed": 0.5})
        with pytest.raises(sambarun.RunError, match=r"'speed' is -1\.0; a finite number from 0 on"):
            executable.step(batches(1)[0], {"speed": -1.0})
        assert executable.argins["speed"] == 0.5
