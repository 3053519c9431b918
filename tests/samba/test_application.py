"""A whole application: compiled by the driver, measured, checked and trained with the helpers."""

from __future__ import annotations

import copy
import itertools
import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sambaflow import samba
from sambaflow.samba.optim import SGD
from sambaflow.samba.sambaloader import SambaLoader
from sambaflow.samba.tensors.creation import randint, randn
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.test import TestWithGold, consistency_test
from sambaflow.samba.utils import (
    assert_close,
    create_mac_resource_report,
    measure_performance,
    measure_sections,
    trace_graph,
)
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.common import common_app_driver
from sambaflow.samba.utils.pef_utils import PefInfoStruct, get_pef_info
from sambaflow.samba.utils.tensorboard_debug import dump_accuracy_debug_info
from sambaflow.samba.utils.trainer.samba import train as samba_train
from sambaflow.samba.utils.trainer.torch import train as torch_train
from sambarun.execution.profiler import Profile

_BATCH, _FEATURES, _CLASSES = 6, 5, 3


class _LogReg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin_layer = nn.Linear(_FEATURES, _CLASSES)
        self.criterion = nn.CrossEntropyLoss()

    def forward(
        self, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.lin_layer(inputs)
        return self.criterion(out, targets), out


def _model() -> nn.Module:
    torch.manual_seed(3)
    model = _LogReg()
    samba.from_torch_model_(model)
    return model


def _inputs() -> tuple[SambaTensor, SambaTensor]:
    torch.manual_seed(4)
    image = randn(_BATCH, _FEATURES, name="image", batch_dim=0)
    return image, randint(_CLASSES, (_BATCH,), name="label", batch_dim=0)


@pytest.fixture(scope="module")
def pef(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The PEF that the driver compiles for training."""
    folder = tmp_path_factory.mktemp("out")
    words = ["compile", "-b", str(_BATCH), "--pef-name", "logreg", "--output-folder", str(folder)]
    model = _model()
    optimizer = SGD(model.parameters(), lr=0.1)
    path = common_app_driver(parse_app_args(words), model, _inputs(), optimizer, name="logreg")
    assert path == str(folder / "logreg" / "logreg.pef")
    return Path(path)


@pytest.fixture(autouse=True)
def _session_as_before() -> Iterator[None]:
    yield
    samba.session.reset()


Traced = tuple[nn.Module, tuple[SambaTensor, SambaTensor], SGD]


@pytest.fixture
def traced(pef: Path) -> Traced:
    model, inputs = _model(), _inputs()
    optimizer = SGD(model.parameters(), lr=0.1)
    trace_graph(model, inputs, optimizer, pef=str(pef))
    return model, inputs, optimizer


def test_the_options_are_in_the_pef(pef: Path) -> None:
    wanted = {name: PefInfoStruct() for name in ("batch_size", "inference", "model")}
    assert get_pef_info(pef, wanted) == {
        "batch_size": _BATCH,
        "inference": False,
        "model": "_logreg",
    }


def test_a_step_agrees_with_the_host(traced: Traced) -> None:
    model, inputs, _ = traced
    gold = model(*inputs)
    gold[0].mean().backward()
    found = samba.session.run(inputs, model.output_tensors, section_types=["fwd", "bckwd"])
    for output, expected in zip(found, gold, strict=True):
        assert_close(output, expected, "output")
    for name, parameter in model.named_parameters():
        assert_close(parameter.sn_grad, parameter.grad, name)  # type: ignore[attr-defined]


def test_training_is_measured_and_trains(traced: Traced, tmp_path: Path) -> None:
    model, inputs, _ = traced
    before = model.lin_layer.weight.sn_data  # type: ignore[union-attr]
    stats = tmp_path / "stats.json"
    throughput, latency = measure_performance(
        model, inputs, _BATCH, n_iterations=2, compiled_stats_json=stats, use_sambaloader=True
    )
    assert throughput * latency == pytest.approx(_BATCH)
    assert not torch.equal(model.lin_layer.weight.sn_data, before)  # type: ignore[union-attr]
    sections = json.loads(stats.read_text("utf-8"))["sections"]
    assert {section["type"] for section in sections} >= {"FWD", "BCKWD", "OPT"}
    measure_performance(model, inputs, _BATCH, n_iterations=1, run_graph_only=True)


def test_inference_is_measured_with_a_training_pef(
    pef: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["measure-performance", "-p", str(pef), "-b", str(_BATCH), "-n", "2", "--inference"]
    model = _model()
    assert common_app_driver(parse_app_args(words), model, _inputs(), None)
    assert "e2e_throughput" in capsys.readouterr().out
    weight = model.lin_layer.weight
    assert torch.equal(weight.sn_data, weight.data)  # type: ignore[union-attr]


@pytest.mark.parametrize("inference", [False, True])
def test_sections_are_measured(
    traced: Traced, tmp_path: Path, capsys: pytest.CaptureFixture[str], inference: bool
) -> None:
    model, inputs, _ = traced
    path = tmp_path / "sections.json"
    rows = measure_sections(
        model, inputs, n_iterations=2, batch_size=_BATCH, json=path, inference=inference
    )
    measured = {row.section_type for row in rows if row.measured_latency_sec is not None}
    assert measured == ({"Forward"} if inference else {"Forward", "Backward", "Optimizer"})
    for row in rows:
        assert row.pcu_count > 0
        assert row.pcu_utilization is not None
        if row.measured_latency_sec is not None:
            assert row.measured_throughput == pytest.approx(_BATCH / row.measured_latency_sec)
    stored = json.loads(path.read_text("utf-8"))["sections"]
    assert [row["section_id"] for row in stored] == list(range(len(rows)))
    assert "Forward" in capsys.readouterr().out


def test_only_the_first_sections_are_measured(traced: Traced) -> None:
    model, inputs, _ = traced
    rows = measure_sections(model, inputs, num_sections=1, n_iterations=1)
    assert [row.measured_latency_sec is not None for row in rows][:2] == [True, False]


def test_a_section_takes_the_median_of_the_steps(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And steps are measured until the time is over: here the fifth is past it."""
    model, inputs, _ = traced
    device = samba.session.device
    assert device is not None
    real, seconds = device.executable.profile, iter([9, 8, 1, 2, 7, 3])  # the first warms up

    def profile(*given: Any, **options: Any) -> Profile:
        found, took = real(*given, **options), next(seconds)
        spans = [span._replace(duration=took * 1_000_000_000) for span in found.spans]
        return found._replace(spans=spans)

    monkeypatch.setattr(device.executable, "profile", profile)
    clock = itertools.count(0.0, 1.0)
    monkeypatch.setattr("sambaflow.samba.utils.sections.time.perf_counter", lambda: next(clock))
    rows = measure_sections(model, inputs, n_iterations=2, min_duration=4.0)
    assert rows[0].measured_latency_sec == 3.0  # of 8, 1, 2, 7, 3


def test_the_device_is_consistent(traced: Traced, tmp_path: Path) -> None:
    model, inputs, optimizer = traced
    args = Namespace(gold_file_path=str(tmp_path), inference=False)
    TestWithGold(args, "logreg", model, None, optimizer).test()
    samba.session.to_rdu(model)
    TestWithGold(args, "logreg", model, None, optimizer).test()
    with pytest.raises(AssertionError, match="lin_layer__weight differs"):
        TestWithGold(args, "logreg", model, None, optimizer).test()

    @consistency_test()
    def forward(rate: float) -> list[tuple[str, SambaTensor]]:
        found = samba.session.run(inputs, model.output_tensors, {"lr": rate})
        return [*zip(("loss", "out"), found, strict=False)]

    forward(0.0)
    with pytest.raises(AssertionError, match="differ between runs of the same inputs: loss"):
        forward(0.1)


def test_differences_of_gradients_are_dumped(
    traced: Traced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs, _ = traced
    monkeypatch.chdir(tmp_path)
    args = Namespace(inference=False)
    rows = json.loads(
        dump_accuracy_debug_info(args, model, inputs, model.output_tensors).read_text("utf-8")
    )
    assert len(rows) == 4
    assert "_logreg__lin_layer__weight__grad" in rows
    assert all(0.0 <= row["mean"] <= row["max"] < 1e-5 for row in rows.values())


def test_device_and_host_train_alike(pef: Path) -> None:
    torch.manual_seed(5)
    batches = [
        (torch.randn(_BATCH, _FEATURES), torch.randint(_CLASSES, (_BATCH,))) for _ in range(3)
    ]
    model = _model()
    host = _LogReg()
    host.load_state_dict(
        {k: samba.to_torch(v) for k, v in copy.deepcopy(model).state_dict().items()}
    )
    trace_graph(model, _inputs(), SGD(model.parameters(), lr=0.1), pef=str(pef))
    loader = SambaLoader(batches, ["image", "label"])
    found = samba_train(model, loader, {"lr": 0.1}, num_epochs=2)
    expected = torch_train(host, batches, torch.optim.SGD(host.parameters(), lr=0.1), num_epochs=2)
    assert found == pytest.approx(expected, rel=1e-5)


def test_resources_come_from_the_pef(pef: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    create_mac_resource_report(
        mac_resource_file_path=pef.parent / "mac_gen" / "mac_resources.json", output_file_path=out
    )
    resources = json.loads(out.read_text("utf-8"))["resources"]
    assert resources["arch"] == "sn40l"
    assert all(section["pcus"] > 0 for section in resources["sections"])
