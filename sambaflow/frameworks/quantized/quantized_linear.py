"""A linear layer whose weight is kept in eight bits."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import instance

__all__ = ["QuantizedLinear"]

_LEAST, _MOST = -128, 127


class QuantizedLinear(nn.Module):
    """`y = x (scale (q - zero_point))^T + bias` with a weight of int8 numbers q.

    The weight is [out_features, in_features]; `scale` and `zero_point` have one element, or one for
    each row. It is made by `from_float`, which is what `torch.ao.quantization.quantize_dynamic`
    calls for `mapping={torch.nn.Linear: QuantizedLinear}`. Only the weight is quantized: `forward`
    dequantizes it and computes in the type of its input. For inference; nothing here trains but
    the bias.
    """

    weight_int8: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor

    @checked()
    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.register_buffer(
            "weight_int8", torch.zeros(out_features, in_features, dtype=torch.int8)
        )
        self.register_buffer("scale", torch.ones(1))
        self.register_buffer("zero_point", torch.zeros(1, dtype=torch.int64))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    @checked(linear=instance(nn.Linear, "a torch.nn.Linear"))
    def from_float(
        cls, linear: nn.Linear, use_precomputed_fake_quant: bool = False
    ) -> QuantizedLinear:
        """Return the layer `linear` with its weight rounded to int8.

        If `linear` has a `qconfig`, its observer chooses scales and zero points, else there is one
        symmetric scale for each row. `use_precomputed_fake_quant` is what PyTorch passes; the
        weight of `linear` is what is quantized in either case.
        """
        made = cls(linear.in_features, linear.out_features, linear.bias is not None)
        weight = linear.weight.detach().float()
        scale, zero_point = _parameters(linear, weight)
        rounded = torch.round(weight / scale[:, None]) + zero_point[:, None]
        made.weight_int8 = rounded.clamp(_LEAST, _MOST).to(torch.int8)
        made.scale, made.zero_point = scale, zero_point
        if made.bias is not None:
            made.bias.data = linear.bias.detach().clone()
        return made.train(linear.training)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as a quantized tensor of torch, one scale for the tensor or one a row."""
        values = self.weight_int8
        if len(self.scale) == 1:
            return torch._make_per_tensor_quantized_tensor(
                values, float(self.scale), int(self.zero_point)
            )
        return torch._make_per_channel_quantized_tensor(values, self.scale, self.zero_point, 0)

    def dequantized(self) -> torch.Tensor:
        """Return the weight as float32."""
        return (self.weight_int8.float() - self.zero_point.float()[:, None]) * self.scale[:, None]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the layer's output; `inputs` is [..., in_features] of any float type."""
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        return functional.linear(inputs, self.dequantized().to(inputs.dtype), bias)

    def _load_from_state_dict(
        self, state: dict[str, torch.Tensor], prefix: str, *rest: object
    ) -> None:
        """Take scales of the length in the file: one, or one for each row."""
        for name in ("scale", "zero_point"):
            if prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name]))
        super()._load_from_state_dict(state, prefix, *rest)

    def extra_repr(self) -> str:
        """Return the sizes, as `print` shows them."""
        return f"in_features={self.in_features}, out_features={self.out_features}, int8"


def _parameters(linear: nn.Linear, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scale and zero point of the weight, one element or one for each row."""
    config = getattr(linear, "qconfig", None)
    if config is None:
        scale = weight.abs().amax(dim=1).clamp(min=torch.finfo(torch.float32).tiny) / _MOST
        return scale, torch.zeros_like(scale, dtype=torch.int64)
    observer = config.weight()
    observer(weight)
    scale, zero_point = observer.calculate_qparams()
    return scale.reshape(-1).float(), zero_point.reshape(-1).to(torch.int64)
