"""What to say of inputs that a run cannot take: what torch says of them, or how to go on."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sambaflow.samba.errors import SambaError
from sambaflow.samba.trace.call import ForwardCall, tensors_by_name
from sambaflow.samba.trace.onnx_graph import OnnxStandIn
from sambaflow.samba.trace.tracing import torch_says

_FIXED = (
    "The model itself takes such inputs, but a PEF is compiled for fixed shapes and types: give "
    "what it was compiled for (drop_last=True of a DataLoader leaves out a smaller last batch), or "
    "compile again with inputs like these."
)


def explained(
    error: SambaError, traced: tuple[nn.Module, ForwardCall] | None, inputs: object
) -> SambaError:
    """Return `error` of a run with `inputs`, and the reason if they do not fit what was traced.

    That is what torch says if the model refuses such shapes and types, else the way on.
    """
    if inputs is None or traced is None:
        return error
    reason = _reason(*traced, tensors_by_name(inputs))
    return SambaError(f"{error}\n{reason}") if reason else error


def _reason(model: nn.Module, call: ForwardCall, given: Mapping[str, Tensor]) -> str:
    other = {
        id(named.tensor): given[named.tensor.sn_name]
        for named in call.tensors
        if named.tensor.sn_name in given
        and _kind(given[named.tensor.sn_name]) != _kind(named.tensor)
    }
    if not other or isinstance(model, OnnxStandIn):
        return ""

    def replaced(tensor: Tensor) -> Tensor:
        return other.get(id(tensor), tensor)

    args, kwargs = pytree.tree_map_only(Tensor, replaced, (call.args, dict(call.kwargs)))
    said = torch_says(model, ForwardCall(args, kwargs, ()))
    return f"PyTorch says of such inputs: {said}" if said else _FIXED


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    """Return the shape and type as they are traced: 16-bit integers are taken as 64."""
    return tensor.shape, torch.int64 if tensor.dtype is torch.int16 else tensor.dtype
