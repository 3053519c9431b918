"""What regions cost, from compiling to the log: placed by hand, spilled, and on slow devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from log_reader import read_log
from onnx import helper, numpy_helper

import pef
import sambac
import sambarun
from pef.report import render, report
from pef.text import human_bytes, human_time, plural
from sambac import CompileOptions
from sambac.arch import load_arch
from sambac.reconstruct.verify import check_plans

SIDE = 128
NBYTES = SIDE * SIDE * 4
SN40L = load_arch("sn40l")


def model() -> onnx.ModelProto:
    """Two square products of one row block: x, w0 and w1 have as many bytes as each result."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["y"]),
    ]
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (SIDE, SIDE)) for name in "xy"
    ]
    weights = [
        numpy_helper.from_array(np.full((SIDE, SIDE), value, "f"), f"w{value}") for value in (0, 1)
    ]
    graph = helper.make_graph(nodes, "two", infos[:1], infos[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a maker of device files: the SN40L, or another, with other numbers."""
    folder = Path(sambac.__file__).parent / "arch" / "data"

    def make(base: str = "sn40l", **changes: float) -> str:
        parts = (folder / f"{base}.toml").read_text().split("\n[")
        for key, value in changes.items():
            (at,) = [i for i, part in enumerate(parts) if part.startswith(f"{key}]")]
            lines = parts[at].splitlines()
            lines[1] = f"value = {value}"
            parts[at] = "\n".join(lines)
        path = tmp_path_factory.mktemp("arch") / "device.toml"
        path.write_text("\n[".join(parts))
        return str(path)

    return make


def compiled(**options: Any) -> pef.Program:
    return sambac.compile(model(), CompileOptions(level="O0", **options))


def moving(program: pef.Program, arch: sambac.arch.Arch = SN40L) -> list[float]:
    """Return the modelled seconds of each section that are not its launch."""
    return [section.estimate.latency - arch.launch.value for section in program.sections]


def seconds(hbm: int = 0, ddr: int = 0, host: int = 0) -> float:
    """Return the time of so many tensors in each region of the SN40L."""
    return NBYTES * (hbm / (1.8e12 * 0.85) + ddr / 200e9 + host / 128e9)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({}, {"hbm": 3}, {"hbm": 3}),
        ({"memory": {"w0": "ddr"}}, {"hbm": 2, "ddr": 1}, {"hbm": 3}),
        ({"memory": {"w0": "host"}}, {"hbm": 2, "host": 1}, {"hbm": 3}),
        ({"memory": {"w0": "ddr", "w1": "ddr", "x": "ddr"}}, {"hbm": 1, "ddr": 2},
         {"hbm": 2, "ddr": 1}),
        ({"io_host_memory": True}, {"hbm": 2, "host": 1}, {"hbm": 2, "host": 1}),
    ],
)  # fmt: skip
def test_what_is_placed_by_hand_is_charged_where_it_lies(
    options: dict[str, Any], first: dict[str, int], second: dict[str, int]
) -> None:
    program = compiled(**options)
    assert moving(program) == pytest.approx([seconds(**first), seconds(**second)])
    assert report(program)["spills"] == []


def test_a_slow_ddr_costs_what_its_file_says(device: Any) -> None:
    arch = device(ddr_bandwidth=1e6)
    near, far = compiled(arch=arch), compiled(arch=arch, memory={"w0": "ddr", "w1": "ddr"})
    assert sum(moving(near)) == pytest.approx(seconds(hbm=6))
    assert sum(moving(far)) == pytest.approx(seconds(hbm=4) + 2 * NBYTES / 1e6)
    rows = report(far)
    speeds = {row["name"]: row["bandwidth"] for row in rows["regions"]}
    assert speeds == {"HBM": 1.8e12 * 0.85, "DDR": 1e6, "HOST": 128e9}
    assert rows["graphs"][0]["latency_us"] > 1e6 * 2 * NBYTES / 1e6


@pytest.mark.parametrize(
    ("base", "rooms"),
    [
        ("sn40l", {"hbm": 2, "ddr": 1}),
        ("sn40l", {"hbm": 1, "ddr": 0.5}),
        ("sn40l", {"hbm": 0.5, "ddr": 2}),
        ("sn10", {"ddr": 2}),
    ],
)
def test_so_is_what_not_even_ddr_has_room_for(
    base: str, rooms: dict[str, float], device: Any, tmp_path: Path
) -> None:
    sizes = {f"{name}_capacity": int(room * NBYTES) for name, room in rooms.items()}
    program = compiled(arch=device(base, **sizes))
    rows = report(program)
    regions = {row["name"]: row["region"] for row in rows["symbols"]}
    away = {name for name, region in regions.items() if region == "HOST"}
    assert away
    found = {rows["symbols"][row["symbol"]]["name"]: row for row in rows["spills"]}
    assert {name for name, row in found.items() if row["region"] == "HOST"} == away
    for name in away:
        accesses = 2 if name == "h" else 1
        assert found[name]["moved"] == accesses * NBYTES
        assert found[name]["us"] > 0
        assert found[name]["cost_us"] is not None
    assert read_log("\n".join(render(rows)))["spills"] == rows["spills"]
    said = [text for text in rows["warnings"] if "full" in text]
    size = human_bytes(len(away) * NBYTES)
    start = f"DDR is full: {plural(len(away), 'symbol')} of {size} spilled to HOST, chosen by cost"
    assert said[-1].startswith(start)
    assert len(said) == len({row["region"] for row in rows["spills"]})
    program.save(tmp_path / "m.pef")
    assert check_plans(pef.verify(tmp_path / "m.pef")) == []


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_spill_is_a_line_with_its_cost(room: int, device: Any, tmp_path: Path) -> None:
    """Room for some tensors of five, of which four live at once; weights leave last."""
    arch = device(hbm_capacity=room * NBYTES, ddr_bandwidth=1e6)
    program = compiled(arch=arch)
    rows = report(program)
    regions = {row["name"]: row["region"] for row in rows["symbols"]}
    spilled = [name for name, region in regions.items() if region == "DDR"]
    assert spilled
    assert {rows["symbols"][row["symbol"]]["name"] for row in rows["spills"]} == set(spilled)
    for row in rows["spills"]:
        name = rows["symbols"][row["symbol"]]["name"]
        accesses = 2 if name == "h" else 1
        assert (row["region"], row["bytes"], row["moved"]) == ("DDR", NBYTES, accesses * NBYTES)
        assert row["us"] == pytest.approx(1e6 * row["moved"] / 1e6)
        assert row["hbm_us"] == pytest.approx(1e6 * row["moved"] / (1.8e12 * 0.85), abs=1e-3)
        assert row["cost_us"] == pytest.approx(row["us"] - row["hbm_us"], abs=2e-3)
    total = sum(row["moved"] for row in rows["spills"])
    assert sum(moving(program)) == pytest.approx(total / 1e6, rel=1e-3)

    text = "\n".join(render(rows))
    assert read_log(text)["spills"] == rows["spills"]
    (warning,) = rows["warnings"]
    assert warning.startswith(f"HBM is full: {plural(len(spilled), 'symbol')} of ")
    now, policy = (rows["graphs"][0][key] for key in ("latency_us", "policy_us"))
    assert f"take {human_time(now)}, and {human_time(policy)} by the default policy" in warning

    path = tmp_path / "m.pef"
    program.save(path)
    with pef.open(path) as file:
        assert file.program.allocations == program.allocations
        assert file.program.regions == program.regions
        assert check_plans(file.program) == []
    assert json.loads(json.dumps(rows))["spills"] == rows["spills"]


def test_what_a_user_places_in_ddr_is_no_spill(device: Any) -> None:
    arch = device(hbm_capacity=4 * NBYTES)
    program = compiled(arch=arch, memory={"w0": "ddr", "w1": "ddr"})
    assert report(program)["spills"] == []
    assert program.warnings == ()


@pytest.mark.parametrize(
    ("options", "regions"),
    [({}, ["DDR"]), ({"io_host_memory": True}, ["DDR", "HOST"])],
)
def test_a_region_of_unknown_speed_is_said(options: dict[str, Any], regions: list[str]) -> None:
    assert compiled(arch="sn30", **options).warnings == tuple(
        f"sn30: the bandwidth of {region} is not published, so the modelled latencies count the "
        "speed of single streams alone for what lies there"
        for region in regions
    )


def test_shared_and_packed_tensors_are_charged_where_their_buffer_lies(device: Any) -> None:
    """A state and the memory that two graphs share have no buffer of their own name."""
    arch = device(ddr_bandwidth=1e6)
    graphs = [sambac.GraphSource(name, model()) for name in ("a", "b")]
    shared = {"a.y": "cache", "b.x": "cache"}
    near, far = (
        sambac.compile_graphs(
            graphs, CompileOptions(level="O0", arch=arch, memory=memory), shared=shared
        )
        for memory in ({}, {"a.y": "ddr"})
    )
    assert sum(moving(far)) - sum(moving(near)) == pytest.approx(2 * NBYTES / 1e6, rel=1e-3)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_shapes_alone_make_no_sections_on_a_small_chip(device: Any, level: str) -> None:
    """A chip that holds no two of these operators: what is reshaped is not moved for it."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "flat"], ["b"]),
        helper.make_node("Unsqueeze", ["b", "axis"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"]),
        helper.make_node("Reshape", ["d", "flat"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.array(value, np.int64), name)
        for name, value in (("flat", [SIDE * SIDE]), ("axis", [0]))
    ]
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (SIDE, SIDE))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (SIDE * SIDE,))],
        constants,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    small = device(pmus=4, pmu_bytes=NBYTES // 8)
    program = sambac.compile(made, CompileOptions(level=level, arch=small))
    # The last one makes an output, which has a place of its own.
    assert [len(s.groups) for s in program.sections] == [1, 1, 1]
    assert check_plans(program) == []
    x = np.linspace(-1, 1, SIDE * SIDE, dtype=np.float32).reshape(SIDE, SIDE)
    with sambarun.load(program) as executable:
        y = executable.run({"x": x})["y"]
    exact = np.exp(np.tanh(x.astype(np.float64))).ravel()
    np.testing.assert_allclose(y, exact / exact.sum(), rtol=1e-5)
