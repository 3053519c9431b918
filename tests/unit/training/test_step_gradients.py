"""What a step does with gradients: adding up, clearing, clipping, and naming them."""

import numpy as np
import pytest
from step_machine import StepMachine

from pef.program import SectionType
from pef.symbols import SymbolKind
from sambac.optimizers import SGD
from sambac.training.step import StepOptions

WEIGHTS = {"w": np.ones((3, 5), "f"), "b": np.ones(3, "f")}
ONES = {name: np.ones_like(array) for name, array in WEIGHTS.items()}
PACK = pytest.mark.parametrize("pack", [False, True], ids=["apart", "packed"])


@PACK
def test_gradients_add_up_until_cleared(pack: bool) -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(lr=1.0),), accumulate=True, pack=pack))
    for _ in range(3):
        machine.run(ONES, stages=[SectionType.BCKWD])
    assert np.all(machine.read("w__grad") == 3)
    machine.run(ONES, stages=[SectionType.OPT])
    assert np.all(machine.read("w") == -2)
    assert np.all(machine.read("w__grad") == 3)
    machine.run(ONES)
    assert np.all(machine.read("w__grad") == 1)
    assert np.all(machine.read("b") == -3)


@PACK
def test_clearing_removes_what_is_not_a_number(pack: bool) -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(),), accumulate=True, pack=pack))
    machine.run({**ONES, "w": np.full((3, 5), np.nan, "f")}, stages=[SectionType.BCKWD])
    machine.run(ONES, stages=[SectionType.ZEROGRAD])
    for name in WEIGHTS:
        assert np.all(machine.read(f"{name}__grad") == 0)


def test_accumulated_gradients_are_states_and_others_are_not() -> None:
    kept = StepMachine(WEIGHTS, StepOptions(accumulate=True)).parts
    assert kept.states["w__grad"].kind == SymbolKind.GRADIENT
    assert kept.updates == {
        "w__grad__next": "w__grad",
        "b__grad__next": "b__grad",
        "w__grad__zero": "w__grad",
        "b__grad__zero": "b__grad",
    }
    transient = StepMachine(WEIGHTS, StepOptions()).parts
    assert not transient.states
    assert not transient.updates
    assert transient.gradients == {"w": "w__grad", "b": "b__grad"}
    assert set(transient.stages.values()) == {SectionType.BCKWD}


@PACK
def test_clipping_scales_in_place_to_the_norm_given(pack: bool) -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(lr=1.0),), max_grad_norm=1.0, pack=pack))
    machine.run(ONES)
    norm = np.sqrt(18)
    assert machine.read("grad_norm") == pytest.approx(norm)
    assert machine.read("w__grad") == pytest.approx(1 / norm, rel=1e-5)
    assert machine.read("b") == pytest.approx(1 - 1 / norm, rel=1e-5)
    machine.run(ONES, {"max_grad_norm": 100.0})
    assert np.all(machine.read("w__grad") == 1)


@PACK
def test_without_a_norm_every_gradient_is_lost_as_in_torch(pack: bool) -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(lr=0.0),), max_grad_norm=1.0, pack=pack))
    machine.run({**ONES, "w": np.full((3, 5), np.nan, "f")})
    for name in ("grad_norm", "w__grad", "b__grad"):
        assert np.all(np.isnan(machine.read(name)))
    machine.run({**ONES, "w": np.full((3, 5), np.inf, "f")})
    assert np.all(machine.read("b__grad") == 0)


@PACK
def test_a_norm_over_what_has_been_added_up(pack: bool) -> None:
    asked = StepOptions((SGD(lr=1.0),), max_grad_norm=1.0, accumulate=True, pack=pack)
    machine = StepMachine(WEIGHTS, asked)
    for _ in range(2):
        machine.run(ONES, stages=[SectionType.BCKWD])
    machine.run(ONES, stages=[SectionType.GRADNORM, SectionType.OPT])
    assert machine.read("grad_norm") == pytest.approx(2 * np.sqrt(18))
    assert machine.read("w__grad") == pytest.approx(1 / np.sqrt(18), rel=1e-5)
    assert machine.read("b") == pytest.approx(1 - 1 / np.sqrt(18), rel=1e-5)


@PACK
def test_clipping_without_an_optimizer(pack: bool) -> None:
    machine = StepMachine(WEIGHTS, StepOptions(max_grad_norm=1.0, pack=pack))
    machine.run(ONES)
    assert machine.read("w__grad") == pytest.approx(1 / np.sqrt(18), rel=1e-5)
    assert SectionType.OPT not in machine.parts.stages.values()


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_the_norm_is_exact_over_many_elements(dtype: str) -> None:
    """A running sum of a million squares in float32 would be off by more than this."""
    rng = np.random.default_rng(0)
    weights = {"w": np.zeros((1024, 1000), dtype), "b": np.zeros(999_983, dtype)}
    gradients = {name: rng.random(w.shape).astype(dtype) for name, w in weights.items()}
    machine = StepMachine(weights, StepOptions(max_grad_norm=1.0))
    machine.run(gradients)
    exact = np.sqrt(sum(np.sum(g.astype("d") ** 2) for g in gradients.values()))
    assert machine.read("grad_norm") == pytest.approx(exact, rel=1e-6)


def test_parameters_without_optimizer_keep_gradient_and_value() -> None:
    machine = StepMachine(WEIGHTS, StepOptions((SGD(lr=1.0, params=("w",)),), max_grad_norm=100.0))
    machine.run(ONES)
    assert np.all(machine.read("w") == 0)
    assert np.all(machine.read("b") == 1)
    assert np.all(machine.read("b__grad") == 1)
    assert machine.read("grad_norm") == pytest.approx(np.sqrt(18))
    assert machine.parts.warnings == ("No optimizer updates b.",)


def test_half_precision_parameters_are_updated_in_float32() -> None:
    weights = {"w": np.full((2, 3), 1.0, np.float16)}
    asked = StepOptions((SGD(lr=0.5, momentum=0.5),), max_grad_norm=100.0, accumulate=True)
    machine = StepMachine(weights, asked)
    machine.run({"w": np.full((2, 3), 0.5, np.float16)})
    assert machine.read("w").dtype == np.float16
    assert np.all(machine.read("w") == 0.75)
