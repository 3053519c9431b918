"""The training loop: which batches steps get, when a run stops, what checkpoints keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from bare_program import bare_program

import pef
from pef import dtypes
from sambarun.train_loop import Checkpoints, NotFiniteError, Run, StepResult, train
from sambarun.training.data import Batches, Cursor


def _symbol(name: str, kind: pef.SymbolKind, shape: tuple[int, ...]) -> pef.Symbol:
    return pef.Symbol(name, kind, dtypes.BY_NAME["float32"].number, shape, "")


@dataclass
class Machine:
    """What the loop sees of an executable: adds up what it is given, and fails on request."""

    losses: dict[int, float] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=lambda: {"w": np.ones(2, np.float32)})
    norm: float | None = None
    given: list[object] = field(default_factory=list)
    saved: list[Cursor] = field(default_factory=list)

    @property
    def program(self) -> pef.Program:
        x = _symbol("x", pef.SymbolKind.INPUT, (2,))
        states = tuple(
            _symbol(name, kind, (2,))
            for name, kind in (("w", pef.SymbolKind.WEIGHT), ("mask", pef.SymbolKind.BUFFER))
        )
        norm = _symbol("norm", pef.SymbolKind.OUTPUT, ())
        outputs = () if self.norm is None else (pef.Port("grad_norm", 3),)
        graph = pef.NamedGraph(
            "train", (pef.Port("x", 0),), outputs, 0, 1, role=pef.GraphRole.TRAIN
        )
        section = SimpleNamespace(type=pef.SectionType.GRADNORM, outputs=(1, 3))
        return bare_program(symbols=(x, *states, norm), graphs=(graph,), sections=(section,))

    def step(
        self, inputs: object, hyperparams: object = None, *, graph: str | None = None
    ) -> dict[str, np.ndarray]:
        assert graph is None
        self.given.append((inputs, hyperparams))
        return {"loss": np.array([self.losses.get(len(self.given), 0.5)], np.float32)}

    def read(self, name: str) -> dict[str, np.ndarray]:
        assert name == "norm"
        return {name: np.array(self.norm)}

    def state(self) -> dict[str, np.ndarray]:
        return self.weights

    def save(self, path: object, cursor: Cursor) -> None:
        self.saved.append(cursor)


@pytest.fixture
def batches() -> Batches:
    return Batches(Machine().program, {"x": np.arange(7, dtype=np.float32)})


def test_steps_read_batch_after_batch(batches: Batches) -> None:
    machine = Machine()
    steps = list(train(machine, batches, Run(4, hyperparams={"lr": 0.5})))
    assert [given["x"].tolist() for given, _ in machine.given] == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert [hyperparams for _, hyperparams in machine.given] == [{"lr": 0.5}, None, None, None]
    assert [(step.epoch, step.cursor.step) for step in steps] == [(0, 1), (0, 2), (0, 3), (1, 4)]
    assert steps[0].losses == {"loss": 0.5}


def test_a_step_may_read_several_batches(batches: Batches) -> None:
    machine = Machine()
    (step,) = train(machine, batches, Run(1, accumulate=4))
    ((given, _),) = machine.given
    assert [batch["x"].tolist() for batch in given] == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert step.cursor == Cursor(step=1, epoch=1, batch=1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run(batches: Batches, value: float) -> None:
    machine = Machine(losses={3: value})
    steps = train(machine, batches, Run(9, start=Cursor(step=10)))
    assert [next(steps).cursor.step, next(steps).cursor.step] == [11, 12]
    with pytest.raises(NotFiniteError, match=rf"^Step 13: 'loss' is {value}\.$"):
        next(steps)
    assert len(machine.given) == 3


def test_the_norm_of_the_gradients_is_watched_too(batches: Batches) -> None:
    (step,) = train(Machine(norm=2.5), batches, Run(1))
    assert step.measures == {"grad_norm": 2.5}
    with pytest.raises(NotFiniteError, match=r"^Step 1: 'grad_norm' is inf\.$"):
        next(train(Machine(norm=float("inf")), batches, Run(1)))


def _made(number: int) -> StepResult:
    """Step `number` of a run with three batches an epoch."""
    return StepResult({}, (number - 1) // 3, Cursor(number, number // 3, number % 3))


@pytest.mark.parametrize(("every", "kept"), [(None, [3, 6]), (4, [4]), (2, [2, 4, 6])])
def test_when_the_state_is_kept(tmp_path: Path, every: int | None, kept: list[int]) -> None:
    machine = Machine()
    checkpoints = Checkpoints(machine, tmp_path / "s", every)
    for number in range(1, 8):
        checkpoints.after(_made(number))
    assert [cursor.step for cursor in machine.saved] == kept
    assert checkpoints.kept == machine.saved[-1]


def test_what_is_kept_is_not_written_again(tmp_path: Path) -> None:
    machine = Machine()
    checkpoints = Checkpoints(machine, tmp_path / "s")
    checkpoints.after(_made(3))
    checkpoints.keep(_made(3).cursor)
    assert len(machine.saved) == 1


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_state_that_is_no_number_is_not_kept(tmp_path: Path, value: float) -> None:
    machine = Machine(weights={"w": np.array([1, value], np.float32)})
    checkpoints = Checkpoints(machine, tmp_path / "s")
    with pytest.raises(
        NotFiniteError, match=r"^After step 3, 'w' holds NaN or infinite numbers\.$"
    ):
        checkpoints.after(_made(3))
    assert not machine.saved
    assert checkpoints.kept is None


def test_buffers_may_hold_infinity_and_integers_anything(tmp_path: Path) -> None:
    weights = {"mask": np.array([0, -np.inf], np.float32), "step": np.array(3)}
    machine = Machine(weights=weights)
    Checkpoints(machine, tmp_path / "s").after(_made(3))
    assert len(machine.saved) == 1
    weights["mask"][0] = np.nan
    with pytest.raises(NotFiniteError, match="After step 6, 'mask'"):
        Checkpoints(machine, tmp_path / "s").after(_made(6))


def test_whether_there_is_a_checkpoint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(Machine(), tmp_path / "s")
    assert not checkpoints.exists
    (tmp_path / "s").write_bytes(b"")
    assert checkpoints.exists


def test_data_that_are_no_numbers_are_named() -> None:
    machine = Machine(losses={1: float("nan")})
    x = np.array([1, 2, np.inf, 4], np.float32)
    with pytest.raises(NotFiniteError, match=r"^Step 1: 'loss' is nan\.$") as caught:
        list(train(machine, Batches(machine.program, {"x": x[:2]}), Run(1)))
    assert caught.value.data == ()
    machine = Machine(losses={1: float("nan")})
    batches = Batches(machine.program, {"x": x})
    with pytest.raises(
        NotFiniteError, match="Step 1: 'loss' is nan, and so is some of x"
    ) as caught:
        list(train(machine, batches, Run(1, accumulate=2)))
    assert caught.value.data == ("x",)


def test_bfloat16_that_is_no_number_is_not_kept(tmp_path: Path) -> None:
    import ml_dtypes

    machine = Machine(weights={"w": np.array([1, np.nan], ml_dtypes.bfloat16)})
    with pytest.raises(NotFiniteError, match="After step 3, 'w' holds NaN or infinite numbers"):
        Checkpoints(machine, tmp_path / "state").keep(Cursor(step=3))
    assert machine.saved == []
