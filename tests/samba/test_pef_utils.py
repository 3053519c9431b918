"""What applications store in PEFs, and read back."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import sambac
from sambaflow.samba.utils.pef_utils import (
    PefInfoStruct,
    get_pef_info,
    get_pefmeta,
    get_pefmeta_dict,
    plain,
)


def _relu() -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [info("x", TensorProto.FLOAT, [4])],
        [info("y", TensorProto.FLOAT, [4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def pef_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEF that stores a batch size, and which of two parts of a model it is."""
    program = sambac.compile(_relu())
    facts = json.loads(program.producer.options) | {"application": {"batch_size": 4, "part": None}}
    producer = replace(program.producer, options=json.dumps(facts, sort_keys=True))
    path = tmp_path_factory.mktemp("pef") / "relu.pef"
    replace(program, producer=producer).save(path)
    return path


def test_options_are_kept_as_plain_data() -> None:
    args = Namespace(
        command="compile",
        batch_size=4,
        lr=0.1,
        pef="a.pef",
        data_dir="/data/mnist",
        sizes=(1, 2),
        names={"b", "a"},
        dtype=torch.bfloat16,
        nested={"rate": np.float32(0.5), 1: None},
    )
    model = nn.Linear(1, 1)
    assert get_pefmeta(args, model) == get_pefmeta_dict(vars(args), model)
    assert get_pefmeta(args, model) == {
        "batch_size": 4,
        "lr": 0.1,
        "sizes": [1, 2],
        "names": ["a", "b"],
        "dtype": "torch.bfloat16",
        "nested": {"rate": 0.5, "1": None},
        "model": "linear",
        "class": "Linear",
    }


def test_what_has_no_text_of_its_own_is_its_kind() -> None:
    assert plain(lambda: None) == "function"
    assert plain(torch.Size([2, 3])) == [2, 3]


def test_stored_values_come_back(pef_path: Path) -> None:
    wanted = {"batch_size": PefInfoStruct(1), "part": PefInfoStruct("x")}
    assert get_pef_info(pef_path, wanted) == {"batch_size": 4, "part": None}


def test_absent_values_are_named(pef_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not store lr, seed; it stores batch_size, part"):
        get_pef_info(
            pef_path, {"lr": PefInfoStruct(), "part": PefInfoStruct(), "seed": PefInfoStruct()}
        )


def test_a_pef_without_an_application(tmp_path: Path) -> None:
    sambac.compile(_relu()).save(tmp_path / "r.pef")
    with pytest.raises(ValueError, match="does not store lr; it stores nothing"):
        get_pef_info(tmp_path / "r.pef", {"lr": PefInfoStruct()})


def test_the_mock_runtime_gives_mock_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMBA_MOCK_RUNTIME", "1")
    assert get_pef_info("absent.pef", {"lr": PefInfoStruct(0.5)}) == {"lr": 0.5}
