"""Measurements and the driver: what they ask of a session, print and write."""

from __future__ import annotations

import itertools
import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_session import FakeSession, traced_linear
from torch import nn

import sambaflow.samba as samba
from sambaflow.samba.errors import SambaError
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.test import TestWithGold, consistency_test
from sambaflow.samba.utils import create_mac_resource_report, measure_performance
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.common import common_app_driver
from sambaflow.samba.utils.steps import flat
from sambaflow.samba.utils.tensorboard_debug import dump_accuracy_debug_info
from sambaflow.samba.utils.trainer.samba import train


@pytest.fixture
def traced(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[nn.Module, tuple[SambaTensor, ...], FakeSession]:
    model, inputs, session = traced_linear()
    return model, inputs, session.install(monkeypatch)


Traced = tuple[nn.Module, tuple[SambaTensor, ...], FakeSession]


def test_steps_are_counted_and_reported(
    traced: Traced, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, inputs, session = traced
    path = tmp_path / "new" / "report.json"
    throughput, latency = measure_performance(
        model, inputs, 4, 1, False, n_iterations=5, json=path, json_counters=None
    )
    assert throughput * latency == pytest.approx(4.0)
    assert len(session.runs) == 2 + 5
    for run in session.runs:
        assert (run["section_types"], run["train"]) == ([], True)
        assert [tensor.sn_name for tensor in run["input_tensors"]] == ["image"]
    report = json.loads(path.read_text("utf-8"))
    assert report["e2e_throughput"] == throughput
    assert (report["iterations"], report["batch_size"], report["n_chips"]) == (5, 4, 1)
    assert capsys.readouterr().out.splitlines() == [
        (
            f"e2e_throughput: {throughput} samples/s, measured over 5 iterations. "
            f"Average latency: {latency} s."
        ),
        f"e2e_latency: {latency} s",
    ]


def test_inference_runs_the_forward_part(traced: Traced) -> None:
    model, inputs, session = traced
    measure_performance(model, inputs, 4, inference=True, n_iterations=1)
    assert {(*run["section_types"], run["train"]) for run in session.runs} == {("FWD", False)}


def test_the_graph_alone_moves_nothing(traced: Traced) -> None:
    model, inputs, session = traced
    measure_performance(model, inputs, 4, run_graph_only=True, n_iterations=3)
    first, *others = session.runs
    assert first["input_tensors"] is not None
    assert {(run["input_tensors"], run["output_tensors"]) for run in others} == {(None, ())}


def test_through_a_loader_inputs_keep_their_names(traced: Traced) -> None:
    model, inputs, session = traced
    measure_performance(model, {"x": inputs[0], "y": None}, 4, use_sambaloader=True, n_iterations=3)
    (image,) = session.runs[-1]["input_tensors"]
    assert image.sn_name == "image"
    assert image is not inputs[0]
    assert torch.equal(image.data, inputs[0].data)


def test_more_steps_until_the_time_is_over(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, session = traced
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr("sambaflow.samba.utils.measuring.time.perf_counter", lambda: next(clock))
    found = measure_performance(model, inputs, 4, n_iterations=2, min_duration=3.0)
    assert len(session.runs) == 2 + 6
    assert found == (4 * 6 / 3.0, 3.0 / 6)


def test_several_processes_are_said(traced: Traced, capsys: pytest.CaptureFixture[str]) -> None:
    model, inputs, session = traced
    throughput, latency = measure_performance(
        model, inputs, 4, n_iterations=2, data_parallel=True, reduce_on_rdu=True
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "Measuring peformance with world size:  1",
        "initial run starts.",
        "initial run completes.",
    ]
    assert f"e2e_latency: {latency} seconds, throughput: {throughput} samples/s" in lines[3]
    assert lines[4] == "NOTE: This is the combined throughput for 1 workers"
    assert all(run["data_parallel"] and run["reduce_on_rdu"] for run in session.runs)


def test_what_cannot_be_measured(traced: Traced) -> None:
    model, inputs, _ = traced
    with pytest.raises(ValueError, match="0 iterations of 4 samples"):
        measure_performance(model, inputs, 4, n_iterations=0)
    with pytest.raises(SambaError, match=r"no output_tensors: call samba\.utils\.trace_graph"):
        measure_performance(nn.Linear(1, 1), inputs)


def test_inputs_in_any_nesting() -> None:
    a, b, c = (SambaTensor(torch.ones(1), name=name) for name in "abc")
    assert [t.sn_name for t in flat({"x": (a, None, [b]), "y": c})] == ["a", "b", "c"]
    assert [t.sn_name for t in flat({"x": a}.values())] == ["a"]
    assert list(flat(None)) == []
    for wrong in (torch.ones(2), "text", 3):
        with pytest.raises(TypeError, match="is no SambaTensor"):
            list(flat((a, wrong)))


def _args(*words: str) -> Namespace:
    return parse_app_args([*words, "-b", "4"])


def test_the_driver_compiles(traced: Traced) -> None:
    model, inputs, session = traced
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    args = _args("compile")
    found = common_app_driver(
        args, model, inputs, optim, "net", "dir", metadata={}, loss_indices=[0]
    )
    assert found == "model.pef"
    ((given, options),) = session.compiled
    assert given == (model, inputs, optim)
    assert (options["name"], options["config_dict"]) == ("net", vars(args))
    assert options["pef_metadata"]["batch_size"] == 4
    assert options["loss_indices"] == [0]


@pytest.mark.parametrize("command", ["run", "test"])
def test_the_driver_leaves_running_to_the_application(traced: Traced, command: str) -> None:
    model, inputs, session = traced
    assert common_app_driver(_args(command, "-p", "m"), model, inputs) is None
    assert not session.runs
    assert not session.compiled


def test_the_driver_measures(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, session = traced
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def trace_graph(*given: object, **options: object) -> None:
        calls.append((given, options))

    monkeypatch.setattr("sambaflow.samba.utils.common.trace_graph", trace_graph)
    optim = torch.optim.SGD(model.parameters(), lr=0.1)
    words = ["measure-performance", "-p", "m.pef", "-n", "3", "--inference"]
    throughput, _ = common_app_driver(_args(*words), model, inputs, optim)  # type: ignore[misc]
    assert throughput > 0
    ((given, options),) = calls
    assert given == (model, inputs, None)
    assert (options["pef"], options["init_output_grads"]) == ("m.pef", False)
    assert len(session.runs) == 2 + 3
    with pytest.raises(SambaError, match=r"less than --min-throughput 1e\+30"):
        common_app_driver(_args(*words, "--min-throughput", "1e30"), model, inputs, optim)


_REPORTS = {"json": "new.json", "data_parallel": False, "reduce_on_rdu": True, "min_duration": 0.5}


@pytest.mark.parametrize(
    ("command", "words", "wanted"),
    [
        (
            "measure-performance",
            (
                "--bench-report-json new.json --json old.json --compiled-stats-json stats.json "
                "--run-graph-only"
            ),
            {**_REPORTS, "compiled_stats_json": "stats.json", "run_graph_only": True},
        ),
        ("measure-performance", "--json new.json", {**_REPORTS, "run_graph_only": False}),
        (
            "measure-sections",
            "--bench-report-json new.json --num-sections 2 --inference",
            {**_REPORTS, "num_sections": 2, "batch_size": 4, "inference": True},
        ),
    ],
)
def test_the_driver_passes_the_options_on(
    command: str, words: str, wanted: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To tracing too, where the application's word about gradients of outputs wins."""
    asked: list[dict[str, object]] = []

    def note(*given: object, **options: object) -> tuple[float, float]:
        asked.append(options)
        return 1.0, 1.0

    for name in ("trace_graph", "measure_performance", "measure_sections"):
        monkeypatch.setattr(f"sambaflow.samba.utils.common.{name}", note)
    shared = ["-p", "m", "-n", "3", "--min-duration", "0.5", "--reduce-on-rdu"]
    args = _args(command, *shared, "--data-parallel-mode", "optimal", *words.split())
    common_app_driver(args, nn.Linear(1, 1), (), init_output_grads=args.inference)
    traced, measured = asked
    assert traced["init_output_grads"] is args.inference
    assert traced["data_parallel_mode"] == "optimal"
    assert measured["n_iterations"] == 3
    assert {name: measured[name] for name in wanted} == wanted


def test_the_driver_knows_its_commands(traced: Traced) -> None:
    with pytest.raises(SambaError, match="there is no command 'train'; it is one of compile"):
        common_app_driver(Namespace(command="train"), *traced[:2])


@pytest.mark.parametrize("form", ["pairs", "dict", "tensors", "one"])
def test_consistency_is_bit_for_bit(form: str) -> None:
    values = [torch.tensor([float("nan"), 0.0])]
    calls: list[tuple[object, ...]] = []

    def results(*args: object, **keywords: object) -> object:
        """What it says."""
        calls.append((args, keywords))
        found = values[min(len(calls), len(values)) - 1]
        named = {"loss": torch.ones(()), "out": samba.from_torch_tensor(found)}
        forms = {"pairs": [*named.items()], "tensors": [*named.values()], "one": named["out"]}
        return forms.get(form, named)

    repeated = consistency_test(n_iterations=3)(results)
    assert (repeated.__name__, repeated.__doc__) == ("results", "What it says.")
    assert type(repeated(1, two=2)) is type(results())
    assert calls[:3] == [((1,), {"two": 2})] * 3
    calls.clear()
    values.append(torch.tensor([float("nan"), -0.0]))
    name = {"tensors": "result 1", "one": "result"}.get(form, "out")
    with pytest.raises(AssertionError, match=rf"same inputs: {name} \(run 1\)$"):
        repeated()


def test_consistency_of_results_that_come_and_go_or_change_in_place() -> None:
    kept, count = torch.zeros(2), iter(range(9))

    @consistency_test()
    def growing() -> dict[str, torch.Tensor]:
        return {str(number): torch.ones(1) for number in range(1 + next(count))}

    @consistency_test()
    def counting() -> torch.Tensor:
        return kept.add_(1)

    @consistency_test()
    def silent() -> None:
        kept.zero_()

    with pytest.raises(AssertionError, match=r"1 \(run 1\)"):
        growing()
    with pytest.raises(AssertionError, match="differ"):
        counting()
    silent()


RUNS = {
    "arrays": lambda run: np.array([1.0, run]),
    "numbers": lambda run: {"loss": 0.1 + run},
    "signs of zero": lambda run: [0.0 if run else -0.0],
    "texts": lambda run: (torch.ones(1), 2, f"run {run}"),
    "one name in two dicts": lambda run: {
        "first": {"w": torch.full((2,), float(run))}, "second": {"w": torch.ones(2)}
    },
    "one name twice": lambda run: [("w", torch.full((2,), float(run))), ("w", torch.ones(2))],
}  # fmt: skip


@pytest.mark.parametrize("form", RUNS)
@pytest.mark.parametrize("same", [True, False])
def test_all_that_an_application_returns_is_compared(form: str, same: bool) -> None:
    count = iter([0, 0] if same else [0, 1])
    repeated = consistency_test()(lambda: RUNS[form](next(count)))
    if same:
        assert repeated() is not None
        return
    with pytest.raises(AssertionError, match="results differ"):
        repeated()


@pytest.mark.parametrize("result", [{1}, (t for t in [torch.ones(1)]), object()])
def test_what_cannot_be_compared_is_refused(result: object) -> None:
    with pytest.raises(TypeError, match=r"^out is a .*, which runs cannot be compared by; return"):
        consistency_test()(lambda: {"out": result})()


def test_consistency_is_asked_for_with_parentheses() -> None:
    with pytest.raises(TypeError, match=r"given a function; .* write @consistency_test\(\)"):
        consistency_test(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_iterations is 1"):
        consistency_test(1)


def test_gold_files(traced: Traced, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, inputs, session = traced
    args = Namespace(gold_file_path=str(tmp_path / "gold"), inference=True)
    check = TestWithGold(args, "linear", model, inputs)
    check.test()
    assert "is written, not compared" in capsys.readouterr().out
    check.test()
    (name,) = session.results
    session.results[name] = session.results[name] + 1e-7
    with pytest.raises(AssertionError, match=f"{name} differs"):
        check.test()
    session.results[name] = session.results[name].double()
    with pytest.raises(AssertionError, match=f"{name} differs"):
        check.test()


def test_differences_are_dumped(
    traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs, session = traced
    monkeypatch.chdir(tmp_path)
    (name,) = session.results
    session.results[name] = session.results[name] + 0.5
    outputs: Sequence[SambaTensor] = model.output_tensors  # type: ignore[assignment]
    path = dump_accuracy_debug_info(Namespace(inference=True), model, inputs, outputs)
    assert json.loads(path.read_text("utf-8")) == {
        name: {"max": pytest.approx(0.5), "mean": pytest.approx(0.5)}
    }


def test_training_loop(traced: Traced) -> None:
    model, inputs, session = traced
    (name,) = session.results
    expected = float(session.results[name].mean())
    means = train(model, [inputs, inputs], {"lr": 0.1}, num_epochs=2)
    assert means == [pytest.approx(expected)] * 2
    assert len(session.runs) == 4
    assert session.runs[0]["hyperparam_dict"] == {"lr": 0.1}
    with pytest.raises(ValueError, match="no batch"):
        train(model, [])


def test_resources_are_gathered(tmp_path: Path) -> None:
    (tmp_path / "mac_resources.json").write_text('{"sections": 2}')
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gemm.txt").write_text("")
    out = tmp_path / "report.json"
    create_mac_resource_report("None", tmp_path / "mac_resources.json", tmp_path / "models", out)
    assert json.loads(out.read_text("utf-8")) == {
        "resources": {"sections": 2},
        "compile_report": None,
        "node_reports": ["gemm.txt"],
    }
    (tmp_path / "mac_resources.json").write_text("{")
    with pytest.raises(SambaError, match=r"mac_resources\.json is no JSON file"):
        create_mac_resource_report(mac_resource_file_path=tmp_path / "mac_resources.json")
    with pytest.raises(SambaError, match=r"and 0 PEFs in"):
        create_mac_resource_report(mac_resource_file_path=tmp_path / "mac_gen" / "absent.json")
