"""Single tensors in the region that the user wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions
from sambac.reconstruct.verify import check_plans

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 6)).astype("f")
WEIGHTS = {
    "w1": RNG.standard_normal((6, 8)).astype("f"),
    "w2": RNG.standard_normal((8, 512)).astype("f"),
}


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Tanh", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "w2"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    ]
    infos = {
        name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", (5, 6)), ("y", (5, 512)), ("loss", ()))
    }
    graph = helper.make_graph(
        nodes,
        "mlp",
        [infos["x"]],
        [infos["loss"], infos["y"]],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def regions(program: pef.Program) -> dict[str, str]:
    return {
        symbol.name: program.allocations[symbol.allocation].region.name
        for symbol in program.symbols
        if symbol.allocation is not None
    }


def compiled(**options: Any) -> pef.Program:
    return sambac.compile(model(), CompileOptions(**options))


@pytest.mark.parametrize("host", [False, True])
def test_inference(host: bool, tmp_path: Path) -> None:
    wish = {"x": "ddr", "w2": "HOST"}
    program = compiled(memory=wish, io_host_memory=host, level="O0")
    found = regions(program)
    assert (found["x"], found["w2"]) == ("DDR", "HOST")
    assert found["y"] == ("HOST" if host else "HBM")
    assert found["w1"] == "HBM"
    assert pef.check_program(program) == []
    path = tmp_path / "m.pef"
    program.save(path)
    with pef.open(path) as file:
        assert check_plans(file.program) == []
    plain, placed = (sambarun.load(p).run({"x": X})["y"] for p in (compiled(level="O0"), program))
    np.testing.assert_array_equal(plain, placed)


def test_training_takes_what_is_placed_out_of_packs() -> None:
    options: dict[str, Any] = {
        "train": True,
        "loss": ("loss",),
        "optimizers": (sambac.AdamW(lr=0.1),),
    }
    program = compiled(memory={"w1": "DDR", "w1__exp_avg": "HOST", "loss": "DDR"}, **options)
    found = regions(program)
    assert (found["w1"], found["w1__exp_avg"], found["loss"]) == ("DDR", "HOST", "DDR")
    assert found["eval/loss"] == "DDR"
    assert found["w1__grad"] == found["w2"] == "HBM"
    plain = compiled(**options)
    states = []
    for each in (plain, program):
        assert pef.check_program(each) == []
        executable = sambarun.load(each)
        for _ in range(2):
            executable.step({"x": X})
        states.append(executable.state())
    for name in ("w1", "w2"):
        np.testing.assert_allclose(states[0][name], states[1][name], rtol=1e-5)


def test_what_cannot_be_placed_is_named() -> None:
    with pytest.raises(CompileError) as caught:
        compiled(memory={"w22": "DDR", "z": "HOST"})
    assert all(word in str(caught.value) for word in ("'w22' (did you mean 'w2'?)", "'z'", "x, "))
    with pytest.raises(CompileError, match=r"'x' is to lie in 'SRAM'.*HBM or DDR or HOST"):
        CompileOptions(memory={"x": "SRAM"})


def test_a_region_that_the_device_lacks_or_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="HBM, which this architecture does not have"):
        compiled(memory={"w1": "HBM"}, arch="sn30")
    text = (Path(sambac.__file__).parent / "arch" / "data" / "sn40l.toml").read_text()
    before, mark, after = text.partition("[hbm_capacity]\nvalue = ")
    assert mark
    small = tmp_path / "small.toml"
    small.write_text(f"{before}{mark}4096{after[after.index(chr(10)) :]}")
    with pytest.raises(CompileError, match=r"HBM holds 4.*w2"):
        compiled(memory={"w2": "HBM"}, arch=str(small))
