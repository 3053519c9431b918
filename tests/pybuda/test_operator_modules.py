"""Modules of one operator, on the host and on the device; what operators over volumes refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import op

IMAGES = torch.randn(2, 4, 6, 7, generator=torch.Generator().manual_seed(0))
ROWS = IMAGES[..., 0]
MATRIX = torch.eye(6) * (torch.arange(6.0) > 2)


def weights_of(module: pybuda.PyBudaModule) -> dict[str, torch.Tensor]:
    parameters = module.get_parameters()
    return {str(item.get_name()).rpartition(".")[2]: item.value() for item in parameters}


@pytest.mark.parametrize(
    ("module", "x", "expected"),
    [
        (
            op.nn.Linear("l", 6, 3),
            ROWS,
            lambda x, w: x @ w["weights"] + w["bias"],
        ),
        (
            op.nn.Conv2dModule("c", 4, 6, (3, 3), stride=2, groups=2),
            IMAGES,
            lambda x, w: functional.conv2d(x, w["weights"], w["bias"], 2, 1, 1, 2),
        ),
        (
            op.nn.Conv2dModule("c", 4, 6, 3, padding=0, bias=False),
            IMAGES,
            lambda x, w: functional.conv2d(x, w["weights"]),
        ),
        (
            op.nn.ConvTranspose2dModule("t", 4, 6, (3, 3), stride=2, groups=2),
            IMAGES,
            lambda x, w: functional.conv_transpose2d(x, w["weights"], w["bias"], 2, 1, 0, 2),
        ),
        (
            op.nn.MaxPool1dModule("m", 3, 2, 1),
            ROWS,
            lambda x, w: functional.max_pool1d(x, 3, 2, 1),
        ),
        (
            op.nn.MaxPool2dModule("m", 3, 2),
            IMAGES,
            lambda x, w: functional.max_pool2d(x, 3, 2, 1),
        ),
        (
            op.nn.AvgPool2dModule("a", 2, 2, 0, ceil_mode=True),
            IMAGES,
            lambda x, w: functional.avg_pool2d(x, 2, 2, ceil_mode=True),
        ),
        (
            op.nn.SparseMatmulModule("s", pybuda.Tensor(MATRIX.to_sparse())),
            IMAGES[:, 0],
            lambda x, w: MATRIX @ x,
        ),
    ],
)  # fmt: skip
def test_a_module_of_one_operator(module, x, expected) -> None:
    wanted = expected(x, weights_of(module)).detach().numpy()
    on_host = module(pybuda.Tensor.create_from_torch(x)).value().detach().numpy()
    np.testing.assert_allclose(on_host, wanted, rtol=2e-5, atol=1e-5)
    (found,) = module.run(x)
    np.testing.assert_allclose(found.value().detach().numpy(), wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_parameters_begin_as_those_of_torch(kind: type[nn.Module]) -> None:
    made = {nn.Conv2d: op.nn.Conv2dModule, nn.ConvTranspose2d: op.nn.ConvTranspose2dModule}[kind]
    torch.manual_seed(0)
    wanted = kind(4, 6, 3, groups=2)
    torch.manual_seed(0)
    found = weights_of(made("c", 4, 6, 3, groups=2))
    assert torch.equal(found["weights"], wanted.weight)
    assert torch.equal(found["bias"], wanted.bias)


def test_a_sparse_matrix_on_the_host() -> None:
    sparse = pybuda.Tensor(MATRIX.to_sparse())
    found = op.SparseMatmul("", sparse, pybuda.Tensor(ROWS[0].T)).value()
    torch.testing.assert_close(found, MATRIX @ ROWS[0].T)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda t: op.Conv3d("", t, t, padding="valid"), "Conv3d: 'valid' is no padding; .*, 3 or"),
        (lambda t: op.Conv3d("", t, t, padding=(1, 2)), "Conv3d: 2 numbers of padding came"),
        (lambda t: op.MaxPool3d("", t, 2, padding=(0, 1, 0, 0, 0, 0)), "differs from side to side"),
        (lambda t: op.AvgPool1d("", t, 2, padding="valid"), "AvgPool1d: 'valid' is no padding"),
        (lambda t: op.Resize2d("", t, (3, 4), "cubic"), "Resize2d: 'cubic' is no method"),
        (lambda t: op.Resize2d("", t, (8, 6)), r"from \[4, 6\] to \[8, 6\] is not by one whole"),
        (lambda t: op.Resize2d("", t, (6, 9)), "is not by one whole factor"),
        (lambda t: op.Resize3d("", t, (8, 12)), "Resize3d: 2 sizes came; 3 were expected"),
        (lambda t: op.Resize3d("", t, (8, 8, 12), "bilinear"), "Resize3d: 'bilinear' is no method"),
        (lambda t: op.Narrow("", t, -1, 0, 2, 7), "Narrow: dimension -1 has 6 elements, not 7"),
        (lambda t: op.PadTile("", t, 1, 4), "PadTile: dimension 1 came; the last two have tiles"),
        (lambda t: op.BudaUnpad("", t, (4, 6), (1, 0)), "BudaUnpad: dimension -2 has 4 .* not 64"),
        (lambda t: op.GroupedReduceAvg("", t, -1, 4), "6 elements make no 4 equal groups"),
        (lambda t: op.AdvIndex("", t, t, 1), "AdvIndex: dimension 1 came; 0 is supported"),
        (lambda t: op.Quantize("", t, t, 0, 1, torch.int64), "torch.int64 came as out_dtype"),
        (lambda t: op.Requantize("", t, t, t, 1, 0, torch.int8), "input zero point is 1; 0 is"),
        (lambda t: op.nn.Conv2dModule("c", 3, 4, 3, groups=2), "'c': 3 channels make no 2 equal"),
    ],
)  # fmt: skip
def test_what_they_refuse(call, says: str) -> None:
    tensor = pybuda.Tensor.create_from_torch(torch.zeros(1, 4, 4, 4, 6))
    with pytest.raises(pybuda.PyBudaError, match=says):
        call(tensor)
