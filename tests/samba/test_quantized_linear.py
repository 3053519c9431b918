"""The linear layer with a weight of eight bits."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from sambaflow.frameworks.quantized.quantized_linear import QuantizedLinear

# torch announces the end of its quantized tensors whenever it makes the first one.
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")


def _linear(bias: bool = True) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(5, 3, bias=bias)


@pytest.mark.parametrize("bias", [True, False])
def test_it_computes_with_the_rounded_weight(bias: bool) -> None:
    linear = _linear(bias)
    layer = QuantizedLinear.from_float(linear)
    assert layer.weight_int8.dtype is torch.int8
    step = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127
    assert ((layer.dequantized() - linear.weight).abs() <= step / 2 * 1.001).all()
    x = torch.randn(4, 5)
    expected = nn.functional.linear(x, layer.dequantized(), linear.bias)
    torch.testing.assert_close(layer(x), expected)
    assert layer(x.bfloat16()).dtype is torch.bfloat16


def test_the_largest_of_a_row_is_exact_and_a_row_of_zeros_stays() -> None:
    linear = _linear()
    linear.weight.data[1] = 0.0
    found = QuantizedLinear.from_float(linear).dequantized()
    row = linear.weight.detach()[0]
    place = int(row.abs().argmax())
    torch.testing.assert_close(found[0, place], row[place])
    assert found[1].tolist() == [0.0] * 5


def _configs() -> dict[str, object]:
    from torch.ao.quantization import qconfig

    return {
        "per_tensor": qconfig.default_dynamic_qconfig,
        "per_channel": qconfig.default_per_channel_qconfig,
    }


@pytest.mark.parametrize(("scheme", "scales"), [("per_tensor", 1), ("per_channel", 3)])
def test_torch_quantizes_models_with_it(scheme: str, scales: int) -> None:
    model = nn.Sequential(_linear(), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its own way of quantizing deprecated
        made = torch.ao.quantization.quantize_dynamic(
            model,
            qconfig_spec={nn.Linear: _configs()[scheme]},
            dtype=torch.qint8,
            mapping={nn.Linear: QuantizedLinear},
        )
    layer = made[0]
    assert isinstance(layer, QuantizedLinear)
    assert layer.weight.is_quantized
    assert len(layer.scale) == scales
    torch.testing.assert_close(layer.weight.dequantize(), layer.dequantized())
    torch.testing.assert_close(layer.dequantized(), model[0].weight.detach(), atol=4e-3, rtol=0)


@pytest.mark.parametrize("scales", [1, 3])
def test_its_state_comes_back(scales: int) -> None:
    layer = QuantizedLinear.from_float(_linear())
    layer.scale, layer.zero_point = layer.scale[:scales], layer.zero_point[:scales]
    other = QuantizedLinear(5, 3)
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5)
    torch.testing.assert_close(other(x), layer(x), rtol=0, atol=0)
    assert torch.equal(other.weight.int_repr(), layer.weight_int8)
