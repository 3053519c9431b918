"""Compare ways to run a model with onnxruntime without optimisation; keep what fails.

A *way* is a function from a model and inputs to outputs. `check` runs all of them on one seed; a
failure is made smaller by drawing fewer operators from the same seed, and lands in a folder with
`model.onnx`, `inputs.npz` and `message.txt`, which says how to repeat it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from random_graphs import random_model

import sambac
import sambarun
from sambac.passes.legalize.check_legal import check_legal
from sambac.passes.pipelines import LEGALIZE, SELECT_KERNELS, SIMPLIFY
from sambac.reconstruct.verify import check_plans

Feeds: TypeAlias = Mapping[str, np.ndarray]
Way: TypeAlias = Callable[[onnx.ModelProto, Feeds], dict[str, np.ndarray]]
RELATIVE, ABSOLUTE = 2e-4, 2e-5


def plain(model: onnx.ModelProto, feeds: Feeds, *, optimise: bool = False) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def after_passes(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """Run every pass, checking legal form after each; then onnxruntime with its own on top."""
    rewritten = ir.from_proto(model)
    for step in (*LEGALIZE, *SIMPLIFY, *SELECT_KERNELS):
        step(rewritten)
    problems = check_legal(rewritten)
    if problems:
        raise AssertionError(problems[0])
    proto = ir.to_proto(rewritten)
    unoptimised = plain(proto, feeds)
    optimised = plain(proto, feeds, optimise=True)
    compare(unoptimised, optimised)
    return unoptimised


def compiled_at(level: sambac.options.Level) -> Way:
    def run(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
        program = sambac.compile(model, sambac.CompileOptions(level=level))
        if problems := check_plans(program):
            raise AssertionError(problems[0])
        executable = sambarun.load(program, threads=1)
        try:
            return executable.run(dict(feeds))
        finally:
            executable.close()

    return run


WAYS: Mapping[str, Way] = {
    "passes": after_passes,
    "O0": compiled_at("O0"),
    "O1": compiled_at("O1"),
    "O3": compiled_at("O3"),
}


def inputs_for(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        value.name: rng.standard_normal(
            [dim.dim_value for dim in value.type.tensor_type.shape.dim], dtype=np.float32
        )
        for value in model.graph.input
    }


def compare(expected: Feeds, found: Feeds) -> None:
    """Raise AssertionError where names, shapes, types or numbers differ."""
    assert list(expected) == list(found), f"outputs {list(found)}, expected {list(expected)}"
    for name, reference in expected.items():
        value = found[name]
        assert (value.dtype, value.shape) == (reference.dtype, reference.shape), name
        largest = float(np.max(np.abs(reference), initial=0))
        np.testing.assert_allclose(
            value, reference, rtol=RELATIVE, atol=ABSOLUTE * max(1, largest), err_msg=name
        )


def failure(seed: int, size: int, way: str) -> str | None:
    """Return what goes wrong with one random model, or None."""
    model = random_model(seed, size)
    feeds = inputs_for(model, seed)
    expected = plain(model, feeds)
    try:
        compare(expected, WAYS[way](model, feeds))
    except Exception:  # whatever a way raises is a finding, and the fuzzer goes on
        return traceback.format_exc()
    return None


def check(seed: int, size: int, way: str, folder: Path) -> Path | None:
    """Run one seed one way; return the folder that describes a failure."""
    message = failure(seed, size, way)
    if message is None:
        return None
    for smaller in range(1, size):
        found = failure(seed, smaller, way)
        if found is not None:
            size, message = smaller, found
            break
    model = random_model(seed, size)
    crash = folder / f"{way}-seed{seed}-size{size}"
    crash.mkdir(parents=True, exist_ok=True)
    onnx.save(model, crash / "model.onnx")
    np.savez(crash / "inputs.npz", **inputs_for(model, seed))
    repeat = f"python tests/fuzz --seed {seed} --count 1 --size {size} --way {way}"
    (crash / "message.txt").write_text(f"{repeat}\n\n{message}", encoding="utf-8")
    return crash
