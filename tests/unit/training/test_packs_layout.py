"""How parameters are laid out to be updated together."""

import numpy as np
import pytest
from step_machine import StepMachine

from sambac.optimizers import LAMB, SGD, Adam
from sambac.training.packs import parameter_sets
from sambac.training.step import StepOptions, StepParts

MEBIBYTE = 1 << 18


def _parts(weights: dict[str, np.ndarray], asked: StepOptions) -> StepParts:
    return StepMachine(weights, asked).parts


def test_members_leave_no_gaps_and_every_slot_has_the_same_layout() -> None:
    """Gaps would hold what activations left there, and end up in the norm of the gradients."""
    weights = {"a": np.zeros((2, 3), "f"), "b": np.zeros((4, 8), "f"), "c": np.zeros((), "f")}
    packs = {pack.name: pack for pack in _parts(weights, StepOptions((Adam(),))).packs}
    assert list(packs) == [
        "adam.pack0",
        "adam.pack0__grad",
        "adam.pack0__exp_avg",
        "adam.pack0__exp_avg_sq",
    ]
    assert packs["adam.pack0"].members == (("b", 0), ("a", 128), ("c", 152))
    assert packs["adam.pack0__exp_avg"].members[1] == ("a__exp_avg", 128)
    assert {pack.size for pack in packs.values()} == {156}


def test_members_stay_states_of_their_own() -> None:
    parts = _parts({"a": np.zeros((2, 3), "f"), "b": np.zeros(17, "f")}, StepOptions((Adam(),)))
    assert {"a__exp_avg", "b__exp_avg", "a__exp_avg_sq", "b__exp_avg_sq"} < set(parts.states)
    assert not any(name.startswith("adam.pack") for name in parts.states)
    assert parts.updates["adam.pack0__exp_avg__next"] == "adam.pack0__exp_avg"


def test_large_parameters_stand_alone_and_chunks_are_bounded() -> None:
    weights = {
        "large": np.zeros((2, MEBIBYTE), "f"),
        "small": np.zeros((3, 3), "f"),
        "vector": np.zeros(2 * MEBIBYTE, "f"),
        "half": np.zeros((2, MEBIBYTE // 4), "f"),
        "other half": np.zeros((2, MEBIBYTE // 4), "f"),
    }
    parts = _parts(weights, StepOptions((SGD(),)))
    members = [[name for name, _ in pack.members] for pack in parts.packs]
    assert [names for names in members if not names[0].endswith("__momentum_buffer")] == [
        ["large"],
        ["large__grad"],
        ["half", "small"],
        ["half__grad", "small__grad"],
        ["other half"],
        ["other half__grad"],
    ]
    assert parts.updates["vector__next"] == "vector"


def test_types_do_not_mix() -> None:
    types = {"a": "f", "b": "d", "c": "f", "d": "e", "e": "e"}
    weights = {name: np.zeros((2, 2), dtype) for name, dtype in types.items()}
    parts = _parts(weights, StepOptions((SGD(),)))
    names = [[name for name, _ in pack.members] for pack in parts.packs[::3]]
    assert names == [["a", "c"], ["d", "e"], ["b"]]


@pytest.mark.parametrize(("accumulate", "packs"), [(False, 0), (True, 3)])
def test_half_precision_whose_gradients_are_clipped_elsewhere_is_apart(accumulate, packs) -> None:
    weights = {"a": np.zeros((2, 2), "e"), "b": np.zeros((2, 2), "e")}
    asked = StepOptions((SGD(),), max_grad_norm=1.0, accumulate=accumulate)
    assert len(_parts(weights, asked).packs) == packs


def test_norms_of_single_parameters_need_them_apart() -> None:
    assert not _parts({"a": np.zeros((2, 2), "f")}, StepOptions((LAMB(),))).packs


def test_sets_without_optimizers_hold_one_parameter_each() -> None:
    assert parameter_sets((), {}, pack=True) == ()
    assert not _parts({"a": np.zeros(2, "f"), "b": np.zeros(2, "f")}, StepOptions()).packs


def test_parameters_without_elements_are_updated_without_the_kernel_that_takes_none() -> None:
    model = StepMachine({"a": np.zeros((0, 3), "f"), "b": np.zeros(0, "f")}, StepOptions((Adam(),)))
    assert all(node.op_type != "GatedAdd" for node in model.model.graph)
