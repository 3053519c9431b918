"""Where the device and the host differ, output by output and gradient by gradient."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import some
from sambaflow.samba.tensors.tensor import SAMBA_TENSOR, SambaParameter, SambaTensor, to_torch

from .reports import save_json
from .sections import device_of_session
from .steps import MeasuredRun, flat

__all__ = ["dump_accuracy_debug_info"]

_FOLDER = "runs"


@checked(traced_outputs=some(SAMBA_TENSOR, "the outputs that trace_graph returned"))
def dump_accuracy_debug_info(
    args: Namespace, model: nn.Module, inputs: object, traced_outputs: Sequence[SambaTensor]
) -> Path:
    """Run one step on the host and on the device, and write how far their results are apart.

    For each output, and for each parameter's gradient unless `args.inference`, the largest and the
    mean absolute difference go to `runs/accuracy.json` in the working directory, and to event files
    in `runs/` if TensorBoard is installed. The host's gradients of the parameters are replaced.
    Returns the path of the JSON file.
    """
    tensors = tuple(flat(inputs))
    model.zero_grad()
    expected = tuple(flat(model(*tensors)))
    found = MeasuredRun(tuple(traced_outputs), args.inference).run(tensors)
    pairs: list[tuple[str, torch.Tensor, torch.Tensor]] = [
        (name.sn_name, device, host)
        for name, device, host in zip(traced_outputs, found, expected, strict=True)
    ]
    if not args.inference:
        _backward(traced_outputs, expected)
        pairs += _gradients(model)
    rows = {name: _apart(device, host) for name, device, host in pairs}
    path = Path(_FOLDER) / "accuracy.json"
    save_json(path, rows)
    if importlib.util.find_spec("tensorboard") is not None:
        _write_events(rows)
    return path


def _backward(traced: Sequence[SambaTensor], outputs: Sequence[SambaTensor]) -> None:
    """Go back on the host from the outputs that the device starts from, with its gradients."""
    device = device_of_session()
    starts = [
        (to_torch(output), device.read(name.sn_grad_name))
        for name, output in zip(traced, outputs, strict=True)
        if name.sn_name in device.host.seeds and output.requires_grad
    ]
    torch.autograd.backward([output for output, _ in starts], [seed for _, seed in starts])


def _gradients(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    for parameter in model.parameters():
        if isinstance(parameter, SambaParameter) and parameter.grad is not None:
            yield parameter.sn_grad_name, parameter.sn_grad, parameter.grad


def _apart(device: torch.Tensor, host: torch.Tensor) -> dict[str, float]:
    gap = (to_torch(device).detach().double() - to_torch(host).detach().double()).abs()
    return {"max": float(gap.max()), "mean": float(gap.mean())}


def _write_events(rows: dict[str, dict[str, float]]) -> None:
    from torch.utils.tensorboard import SummaryWriter  # needs a package that few have installed

    with SummaryWriter(_FOLDER) as writer:
        for name, measures in rows.items():
            for measure, value in measures.items():
                writer.add_scalar(f"{measure}/{name}", value)
