"""The examples of SambaFlow's page on SambaTensor run as they are written there.

Those of the memory of the device are in `test_tensor_device`.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

import sambaflow.samba as samba


def test_constructing() -> None:
    torch_tensor = torch.Tensor([1, 2])
    samba_tensor0 = samba.SambaTensor(torch_tensor)
    samba_tensor1 = samba.from_torch_tensor(torch_tensor, name="samba_tensor1")
    empty_samba_tensor0 = samba.SambaTensor(torch.empty(2, 3), name="empty_samba_tensor0")
    empty_samba_tensor1 = samba.SambaTensor(
        shape=(2, 3), dtype=torch.bfloat16, name="empty_samba_tensor1"
    )
    empty_samba_tensor2 = samba.from_torch_tensor(torch.empty(2, 3), name="empty_samba_tensor2")
    torch_tensor[0] = 5
    assert samba_tensor0[0] == 5
    assert samba_tensor1[0] == 5
    assert samba_tensor1.sn_name == "samba_tensor1"
    for empty in (empty_samba_tensor0, empty_samba_tensor1, empty_samba_tensor2):
        assert empty.shape == (2, 3)
        assert empty.sn_name.startswith("empty_samba_tensor")
    assert empty_samba_tensor1.dtype is torch.bfloat16


def test_getting_items() -> None:
    samba_tensor = samba.randn(2, 3)
    plain = samba_tensor.data
    assert torch.equal(samba_tensor[:, 2].data, plain[:, 2])
    index_tensor = samba.SambaTensor(torch.Tensor([0, 2]))
    assert torch.equal(samba_tensor[None, :, index_tensor].data, plain[None, :, [0, 2]])
    assert samba_tensor[None, :, index_tensor].shape == (1, 2, 2)


def test_setting_items() -> None:
    samba_tensor = samba.zeros(2, 3)
    assert repr(samba_tensor.data) == "tensor([[0., 0., 0.],\n        [0., 0., 0.]])"
    samba_tensor[:, 2] = samba.ones(2)
    assert repr(samba_tensor.data) == "tensor([[0., 0., 1.],\n        [0., 0., 1.]])"
    index_tensor = samba.SambaTensor(torch.Tensor([0, 2]))
    samba_tensor[None, :, index_tensor] = 2 * samba.ones(1, 2, 2)
    assert repr(samba_tensor.data) == "tensor([[2., 0., 2.],\n        [2., 0., 2.]])"


def test_item() -> None:
    x = samba.SambaTensor(torch.tensor([1.0]))
    assert x.item() == 1.0
    assert type(x.item()) is float


def test_new_tensors() -> None:
    sambatensor = samba.ones((), dtype=torch.float32)
    assert sambatensor.new_empty((2, 3)).data.shape == (2, 3)
    fives = "tensor([[5., 5., 5.],\n        [5., 5., 5.]]"
    assert repr(sambatensor.new_full((2, 3), 5.0).data) == f"{fives})"
    narrow = sambatensor.new_full((2, 3), 5.0, dtype=torch.bfloat16)
    assert repr(narrow.data) == f"{fives}, dtype=torch.bfloat16)"
    sambatensor = samba.randn((), dtype=torch.bfloat16)
    ones, zeros = sambatensor.new_ones((2, 3)).data, sambatensor.new_zeros((2, 3)).data
    assert repr(ones) == f"{fives.replace('5', '1')}, dtype=torch.bfloat16)"
    assert repr(zeros) == f"{fives.replace('5', '0')}, dtype=torch.bfloat16)"


def test_size() -> None:
    t = samba.empty(3, 4, 5)
    assert repr(t.size()) == "torch.Size([3, 4, 5])"
    assert t.size(dim=1) == 4


def test_to() -> None:
    samba.set_seed(1)
    sambatensor = samba.randn(2, 2)
    narrow = sambatensor.to(torch.bfloat16).data
    assert repr(narrow) == (
        "tensor([[0.6602, 0.2676],\n        [0.0618, 0.6211]], dtype=torch.bfloat16)"
    )
    other_torch = torch.randn((), dtype=torch.float64)
    wide = sambatensor.to(other_torch).data
    assert repr(wide) == (
        "tensor([[0.6614, 0.2669],\n        [0.0617, 0.6213]], dtype=torch.float64)"
    )


def test_region_names() -> None:
    t0 = samba.SambaTensor(torch.Tensor([1, 2]), name="t0")
    t1 = samba.SambaTensor(torch.Tensor([3, 4]), name="t1", region_name="t1_other")
    t2 = samba.SambaTensor(torch.Tensor([1, 2]), name="t2", region_name="t0")
    assert t0.sn_region_name == "t0"
    assert t1.sn_region_name == "t1_other"
    assert t2.sn_region_name == t0.sn_region_name


def test_the_code_of_our_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "samba" / "tensors.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(script))
    finally:
        samba.session.reset()
