"""A linear regression that trains, made by hand, and the same in numpy.

FWD     h = x * mask;  diff = h @ w + b - y;  loss = mean(diff^2)
        average <- 0.9 average + 0.1 mean(x)                            in place
BCKWD   d = 2 diff / n * loss__grad;  w__grad = h^T d;  b__grad = sum(d)
OPT     m <- momentum m + g;  w <- w - lr m;  the same for b;  step <- step + 1
eval    prediction = x @ w + b;  loss as above, without a mask;  average is returned as it is
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from near import assert_near
from training_builder import Array, Kind, Mask, Part, Spec, Tensor, node

import pef
import sambarun

ROWS, COLUMNS = 4, 3
_LOSS_NODES = (
    node("MatMul", "h w", "xw"),
    node("Add", "xw b", "prediction"),
    node("Sub", "prediction y", "diff"),
    node("Mul", "diff diff", "squares"),
    node("ReduceMean", "squares", "loss", keepdims=0),
)
_AVERAGE_NODES = (
    node("ReduceMean", "x rows", "mean", keepdims=0),
    node("Mul", "mean tenth", "share"),
    node("Mul", "average nine_tenths", "rest"),
    node("Add", "rest share", "new_average"),
)
_BACKWARD_NODES = (
    node("Mul", "diff loss__grad", "seeded"),
    node("Mul", "seeded factor", "d"),
    node("Gemm", "h d", "w__grad", transA=1),
    node("ReduceSum", "d rows", "b__grad", keepdims=0),
)


def _update_nodes(name: str) -> list[onnx.NodeProto]:
    state = f"{name}__momentum_buffer"
    return [
        node("Mul", f"{state} momentum32", f"{name}_kept"),
        node("Add", f"{name}_kept {name}__grad", f"{name}_velocity"),
        node("Mul", f"{name}_velocity lr32", f"{name}_move"),
        node("Sub", f"{name} {name}_move", f"{name}_new"),
    ]


def _tensors() -> dict[str, Tensor]:
    rng = np.random.default_rng(3)
    column, scalar = (COLUMNS, 1), ()

    def argin(value: float) -> Tensor:
        return Tensor(Kind.ARGIN, scalar, np.float64, np.float64(value))

    return {
        "x": Tensor(Kind.INPUT, (ROWS, COLUMNS)),
        "y": Tensor(Kind.INPUT, (ROWS, 1)),
        "loss__grad": Tensor(Kind.INPUT, scalar, data=np.float32(1)),
        "w": Tensor(Kind.WEIGHT, column, data=rng.normal(size=column).astype(np.float32)),
        "b": Tensor(Kind.WEIGHT, (1,), data=np.array([0.5], np.float32)),
        "average": Tensor(Kind.BUFFER, (COLUMNS,), data=np.zeros(COLUMNS, np.float32)),
        "w__momentum_buffer": Tensor(Kind.OPT_STATE, column),
        "b__momentum_buffer": Tensor(Kind.OPT_STATE, (1,)),
        "sgd__step": Tensor(Kind.OPT_STATE, scalar, np.int64),
        "sgd.lr": argin(0.1),
        "sgd.momentum": argin(0.9),
        "drop.p": argin(0.0),
        "seed": argin(7.0),
        "mask": Tensor(Kind.ACTIVATION, (ROWS, COLUMNS)),
        "h": Tensor(Kind.ACTIVATION, (ROWS, COLUMNS)),
        "diff": Tensor(Kind.ACTIVATION, (ROWS, 1)),
        "loss": Tensor(Kind.OUTPUT, scalar),
        "w__grad": Tensor(Kind.GRADIENT, column),
        "b__grad": Tensor(Kind.GRADIENT, (1,)),
        "eval/prediction": Tensor(Kind.OUTPUT, (ROWS, 1)),
        "eval/loss": Tensor(Kind.OUTPUT, scalar),
        "eval/average": Tensor(Kind.OUTPUT, (COLUMNS,)),
    }


def _parts() -> list[Part]:
    types = pef.SectionType
    rows = {"rows": np.array([0], np.int64)}
    shares = {"tenth": np.float32(0.1), "nine_tenths": np.float32(0.9)}
    constants = {**rows, **{name: np.asarray(value) for name, value in shares.items()}}
    casts = [
        node("Cast", "sgd.lr", "lr32", to=onnx.TensorProto.FLOAT),
        node("Cast", "sgd.momentum", "momentum32", to=onnx.TensorProto.FLOAT),
        node("Add", "sgd__step one", "step_new"),
    ]
    slots = ["w", "b", "w__momentum_buffer", "b__momentum_buffer"]
    return [
        Part(
            "forward",
            types.FWD,
            [node("Mul", "x mask", "h"), *_LOSS_NODES, *_AVERAGE_NODES],
            ["x", "y", "w", "b", "mask", "average"],
            {"h": "h", "diff": "diff", "loss": "loss", "average": "new_average"},
            constants=constants,
        ),
        Part(
            "backward",
            types.BCKWD,
            _BACKWARD_NODES,
            ["h", "diff", "loss__grad"],
            {"w__grad": "w__grad", "b__grad": "b__grad"},
            constants={**rows, "factor": np.asarray(np.float32(2 / ROWS))},
        ),
        Part(
            "update",
            types.OPT,
            [*casts, *_update_nodes("w"), *_update_nodes("b")],
            [*slots, "w__grad", "b__grad", "sgd__step", "sgd.lr", "sgd.momentum"],
            {
                "w": "w_new",
                "b": "b_new",
                "w__momentum_buffer": "w_velocity",
                "b__momentum_buffer": "b_velocity",
                "sgd__step": "step_new",
            },
            constants={"one": np.asarray(np.int64(1))},
        ),
        Part(
            "evaluation",
            types.FWD,
            [node("Identity", "x", "h"), *_LOSS_NODES, node("Identity", "average", "same")],
            ["x", "y", "w", "b", "average"],
            {"eval/prediction": "prediction", "eval/loss": "loss", "eval/average": "same"},
            graph="eval",
        ),
    ]


def linear_regression(**changes: Any) -> Spec:
    """The program of the module's docstring; `changes` replaces fields of the spec."""
    eval_outputs = ("prediction", "loss", "average")
    spec = Spec(
        parts=_parts(),
        tensors=_tensors(),
        inputs={
            "train": {name: name for name in ("x", "y", "loss__grad")},
            "eval": {"x": "x", "y": "y"},
        },
        outputs={
            "train": {"loss": "loss"},
            "eval": {name: f"eval/{name}" for name in eval_outputs},
        },
        argins={name: name for name in ("sgd.lr", "sgd.momentum", "drop.p", "seed")},
        masks=[Mask("forward", "mask", "drop.p", "seed", site=5)],
    )
    return replace(spec, **changes)


@dataclass
class Reference:
    """The same in numpy, in float64."""

    w: Array
    b: Array
    average: Array
    lr: float = 0.1
    momentum: float = 0.9
    velocity: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Spec) -> Reference:
        """Begin where `spec` begins."""
        found = {name: spec.tensors[name].data for name in ("w", "b", "average")}
        return cls(**{name: np.asarray(data, np.float64) for name, data in found.items()})

    def loss(self, x: Array, y: Array, mask: Array | float = 1.0) -> float:
        return float(np.mean((x * mask @ self.w + self.b - y) ** 2))

    def gradients(self, x: Array, y: Array, mask: Array | float = 1.0) -> dict[str, Array]:
        h = x * mask
        d = 2 * (h @ self.w + self.b - y) / len(x)
        return {"w": h.T @ d, "b": d.sum(0)}

    def update(self, gradients: Mapping[str, Array]) -> None:
        for name, gradient in gradients.items():
            velocity = self.velocity.get(name, 0.0) * self.momentum + gradient
            self.velocity[name] = velocity
            setattr(self, name, getattr(self, name) - self.lr * velocity)

    def step(self, x: Array, y: Array, mask: Array | float = 1.0) -> float:
        loss = self.loss(x, y, mask)
        self.update(self.gradients(x, y, mask))
        self.average = 0.9 * self.average + 0.1 * x.mean(0, dtype=np.float64)
        return loss


def batches(count: int, seed: int = 11) -> list[dict[str, Array]]:
    """Batches for `linear_regression`, as float32."""
    rng = np.random.default_rng(seed)
    return [
        {
            "x": rng.normal(size=(ROWS, COLUMNS)).astype(np.float32),
            "y": rng.normal(size=(ROWS, 1)).astype(np.float32),
        }
        for _ in range(count)
    ]


def assert_state(executable: sambarun.Executable, reference: Reference) -> None:
    """Check all states of a trained regression."""
    state = executable.state()
    for name in ("w", "b", "average"):
        assert_near(state[name], getattr(reference, name), what=name)
    for name, velocity in reference.velocity.items():
        found = state[f"{name}__momentum_buffer"]
        assert_near(found, velocity, what=f"velocity of {name}")
