"""Small modules that applications import: logging, collections, switches, marks, seeds."""

from __future__ import annotations

import copy
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sambaflow.logging import samba_logger
from sambaflow.mac.metadata import ConvTilingMetadata
from sambaflow.samba import env, utils
from sambaflow.samba.directives import Fusion, op_fusion, sdpa_directives
from sambaflow.samba.tensors.conversion import from_torch_model_
from sambaflow.samba.tensors.tensor import SambaParameter
from sambaflow.samba.utils.benchmark_acc import AccuracyReport
from sambaflow.samba.utils.trainer.torch import train
from sambaflow.sambacollections import OrderedSet


def test_messages_have_sambaflows_form(capsys: pytest.CaptureFixture[str]) -> None:
    samba_logger.info("100 % done")
    samba_logger.warning("hot")
    assert capsys.readouterr().out == (
        "[Info][SAMBA][Default] # 100 % done\n[Warning][SAMBA][Default] # hot\n"
    )


def test_a_message_can_stop_repeating_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(4):
        samba_logger.warning("this message is limited", log_limit=2)
        samba_logger.info("so is this one", log_limit=1)
        samba_logger.warning(f"another {number}", log_limit=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines.count("[Warning][SAMBA][Default] # this message is limited") == 2
    assert lines.count("[Info][SAMBA][Default] # so is this one") == 1
    assert sum("another" in line for line in lines) == 4


def test_the_level_is_pythons(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("sambaflow")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        samba_logger.warning("quiet")
        samba_logger.error("loud")
    finally:
        logger.setLevel(before)
    assert capsys.readouterr().out == "[Error][SAMBA][Default] # loud\n"


def test_messages_of_the_host_have_sambaflows_form_and_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    host, before = logging.getLogger("sambahost.rendezvous"), logging.getLogger("sambaflow").level
    host.warning("process %s waits for %s", 1, "process 0")
    samba_logger.set_level("error")
    try:
        host.warning("quiet")
    finally:
        logging.getLogger("sambaflow").setLevel(before)
    said = capsys.readouterr()
    assert said.out == "[Warning][SAMBA][Default] # process 1 waits for process 0\n"
    assert said.err == ""


def test_ordered_sets_keep_the_order() -> None:
    items = OrderedSet("cab")
    items.add("a")
    items.add("d")
    items.discard("c")
    items.discard("x")
    items.update("ae")
    assert list(items) == ["a", "b", "d", "e"]
    assert items == {"e", "d", "b", "a"}
    assert (items[0], items[-1], len(items), "b" in items) == ("a", "e", 4, True)
    assert list(items | {"f"}) == [*items, "f"]
    assert isinstance(items - {"a"}, OrderedSet)
    assert repr(items) == "OrderedSet(['a', 'b', 'd', 'e'])"
    copy = items.copy()
    copy.discard("a")
    assert "a" in items


@pytest.mark.parametrize(("value", "mocked"), [(None, False), ("0", False), ("1", True)])
def test_the_mock_runtime_is_an_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, mocked: bool
) -> None:
    if value is None:
        monkeypatch.delenv("SAMBA_MOCK_RUNTIME", raising=False)
    else:
        monkeypatch.setenv("SAMBA_MOCK_RUNTIME", value)
    assert env.use_mock_samba_runtime() is mocked


def test_stochastic_rounding_is_declined_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samba_logger._LOGGER, "_said", Counter())
    env.disable_sgd_stoc()
    assert capsys.readouterr().out == ""
    for _ in range(2):
        env.enable_conv_grad_accum_stoc()
        env.enable_addbias_grad_accum_stoc()
    text = capsys.readouterr().out
    assert text.count("gradients of convolutions") == 1
    assert text.count("gradients of biases") == 1
    assert text.count("not modelled") == 2


def test_fusion_marks_a_module_or_a_block() -> None:
    layer = nn.Linear(1, 1)
    assert op_fusion(layer, "Encoder") is layer
    assert layer.__dict__["sn_op_fusion"] == Fusion("Encoder")
    with op_fusion(
        func_name="f", heuristic={"tiling": "k"}, plugins=["a.so"], reuse_last_id=True
    ) as mark:
        assert mark == Fusion("f", {"tiling": "k"}, ("a.so",))
    for plugins, kept in (("", ()), ("b.so", ("b.so",)), (None, ())):  # as public models say them
        with op_fusion(plugins=plugins) as mark:  # type: ignore[call-overload]  # None
            assert mark.plugins == kept
    with sdpa_directives({"sdpa": 1}) as directives:
        assert directives == {"sdpa": 1}
    with pytest.raises(TypeError, match=r"module is 'Encoder'; expected a torch\.nn\.Module"):
        op_fusion("Encoder")  # type: ignore[call-overload]


def test_marked_models_export_as_they_are() -> None:
    class Marked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with op_fusion(func_name="f"), sdpa_directives({}):
                return torch.relu(x)

    program = torch.export.export(Marked(), (torch.ones(2),))
    assert [node.op for node in program.graph.nodes] == ["placeholder", "call_function", "output"]


def test_tiling_metadata() -> None:
    hint = ConvTilingMetadata(original_size=torch.Size([1, 3]))
    assert hint.original_size == (1, 3)
    assert {ConvTilingMetadata.key: hint} == {"conv_tiling": ConvTilingMetadata([1, 3])}


def test_reports_of_accuracy(tmp_path: Path) -> None:
    path = tmp_path / "acc.json"
    AccuracyReport(val_accuracy=0.9, batch_size=2, num_iterations=3).save(path)
    found = json.loads(path.read_text("utf-8"))
    assert found == {"val_metrics": {"acc": 0.9}, "batch_size": 2, "num_iterations": 3}
    AccuracyReport(val_metrics={"loss": 0.5}, batch_size=2, num_iterations=3).save(path)
    assert json.loads(path.read_text("utf-8"))["val_metrics"] == {"loss": 0.5}
    assert os.listdir(tmp_path) == ["acc.json"]


def _draws() -> tuple[object, ...]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002  # as apps


@pytest.fixture
def _generators_as_before() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])  # noqa: NPY002  # the global one is what set_seed seeds
    torch.random.set_rng_state(states[2])


@pytest.mark.usefixtures("_generators_as_before")
def test_seeds_repeat_what_is_drawn() -> None:
    utils.set_seed(256)
    first = _draws()
    assert all(a != b for a, b in zip(first, _draws(), strict=True))
    for seed in (256, np.int64(256)):
        utils.set_seed(seed)
        assert _draws() == first


def test_a_process_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    for rank in range(4):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        assert (utils.get_rank(), utils.get_world_size()) == (rank, 4)
        assert utils.is_main_process() is (rank == 0)


def test_a_process_alone() -> None:
    assert (utils.get_rank(), utils.get_world_size(), utils.is_main_process()) == (0, 1, True)
    assert utils.get_file_dir(__file__) == str(Path(__file__).parent)


@pytest.mark.parametrize(("rank", "size"), [("0", "2"), ("1", "2"), ("0", "1"), ("3", "100")])
def test_processes_share_the_processors(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str
) -> None:
    bound: list[list[int]] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {4, 5, 6, 7}, raising=False)
    monkeypatch.setattr(
        os, "sched_setaffinity", lambda pid, share: bound.append(share), raising=False
    )
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", size)
    utils.fix_rdu_affinity()
    expected = {("0", "2"): [[4, 5]], ("1", "2"): [[6, 7]]}
    assert bound == expected.get((rank, size), [])


def test_weights_as_magnitude_and_direction() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    from_torch_model_(model)
    layer, x = model[0], torch.randn(4, 3)
    before, expected = layer.weight.detach().clone(), model(x)
    assert utils.weight_norm_(layer) is layer
    torch.testing.assert_close(model(x), expected)
    from_torch_model_(model)
    named = {p.sn_name: p for p in model.parameters() if isinstance(p, SambaParameter)}
    assert list(named) == [
        "sequential__0__bias",
        "sequential__0__weight_magnitude",
        "sequential__0__weight_direction",
    ]
    magnitude = named["sequential__0__weight_magnitude"]
    torch.testing.assert_close(
        magnitude.data.flatten(), torch.linalg.vector_norm(torch.Tensor(before), dim=1)
    )
    magnitude.data *= 2.0
    torch.testing.assert_close(copy.deepcopy(layer).weight, 2.0 * before)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in named.values())
    with pytest.raises(ValueError, match="Linear has no parameter 'weight' of its own"):
        utils.weight_norm_(layer)


def test_element_types_are_torchs() -> None:
    assert utils.SNType.INT32.value is torch.int32
    assert utils.SNType.UINT16.value is torch.uint16


def test_the_older_module_has_the_same_names() -> None:
    from sambaflow.samba.utils import utils as older

    assert older.__all__ == utils.__all__
    assert all(getattr(older, name) is getattr(utils, name) for name in older.__all__)


def test_training_on_the_host() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    assert train(model, [(torch.ones(1, 1),)], optimizer, num_epochs=3) == [1.0, 0.5, 0.0]
    with pytest.raises(ValueError, match="no batch"):
        train(model, [], optimizer)
