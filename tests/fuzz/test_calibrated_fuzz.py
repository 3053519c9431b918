"""Random models in few bits: plans hold, and the errors that programs tell are theirs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from differential import inputs_for, plain
from random_graphs import random_model

import pef
import sambac
import sambarun
from sambac.reconstruct.verify import check_plans

SIZE = 14


def told(program: pef.Program) -> float | None:
    """Return the largest error of an output on the samples; None where there are no layers."""
    lines = json.loads(program.producer.options).get("applied", [])
    return max((float(line.split()[-1]) for line in lines[1:]), default=None)


def check(seed: int, tmp_path: Path, **options: object) -> float | None:
    model = random_model(seed, SIZE)
    feeds, path = inputs_for(model, seed), tmp_path / "samples.npz"
    np.savez(path, **feeds)
    chosen = sambac.CompileOptions(precision="int8", calibrate=path, **options)  # type: ignore[arg-type]
    program = sambac.compile(model, chosen)
    assert check_plans(program) == []
    exact = plain(model, feeds)
    with sambarun.load(program, threads=1) as executable:
        found = {name: np.array(value) for name, value in executable.run(feeds).items()}
    errors = [
        float(np.linalg.norm(found[name] - value) / (np.linalg.norm(value) or 1.0))
        for name, value in exact.items()
        if value.dtype == np.float32 and value.size
    ]
    error = told(program)
    if error is not None:
        assert max(errors, default=0.0) == pytest.approx(error, rel=0.3, abs=1e-3)
    return error


@pytest.mark.parametrize("seed", range(30_000, 30_010))
def test_errors_are_those_told(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.parametrize("seed", range(30_000, 30_010))
def test_errors_keep_a_limit(seed: int, tmp_path: Path) -> None:
    error = check(seed, tmp_path, max_error=0.004, observer="percentile")
    assert error is None or error <= 0.004
