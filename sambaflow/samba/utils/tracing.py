"""Before the first run: the PEF of a model, and the gradients its outputs start with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pef.graphs import gradient_name
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.keywords import tolerant
from sambaflow.samba.arguments.kinds import MAPPING, instance, some
from sambaflow.samba.session import session
from sambaflow.samba.tensors.tensor import SambaTensor
from sambaflow.samba.trace.onnx_graph import OnnxStandIn, is_onnx

if TYPE_CHECKING:
    import onnx

    from sambaflow.samba.arguments.options import Inputs, LossIndices, Optimizers

__all__ = ["init_output_grads", "trace_graph", "trace_multigraph"]

_TENSOR_OR_NAME = instance((SambaTensor, str), "a SambaTensor or a name")


@tolerant("utils.trace_graph")
def trace_graph(
    model: nn.Module | onnx.ModelProto,
    inputs: Inputs,
    optim: Optimizers = None,
    init_output_grads: bool = True,
    loss_indices: LossIndices = None,
    pef: str = "",
    mapping: str | None = None,
    data_parallel_mode: str = "normal",
    transfer_device: bool = True,
    *,
    config_dict: Mapping[str, object] | None = None,
    distlearn_config: object = None,
) -> tuple[SambaTensor, ...]:
    """Load the PEF of `model` and return the traced outputs: `SambaSession.trace_graph`.

    `model` may be an ONNX model too, if `sambac` compiled the PEF from it: inputs and outputs are
    called as in the file, and the weights are those of the PEF. `mapping`, if it is given, must be
    that of the PEF. `data_parallel_mode` is that of runs which name none. `config_dict` may have
    the `pef`; with a `distlearn_config` the processes that train together meet here.
    """
    return session.trace_graph(
        OnnxStandIn(model) if is_onnx(model) else model,
        inputs,
        optim,
        init_output_grads,
        loss_indices,
        pef,
        mapping,
        config_dict=config_dict,
        transfer_device=transfer_device,
        distlearn_config=distlearn_config,
        data_parallel_mode=data_parallel_mode,
    )


@tolerant("utils.trace_multigraph")
def trace_multigraph(
    graph: nn.Module,
    inputs: Inputs,
    optimizers: Optimizers = None,
    init_output_grads: bool | None = None,
    mapping: str | None = "",
    trace_prefix: str | None = None,
) -> tuple[SambaTensor, ...]:
    """Trace a model for one of several graphs: `SambaSession.trace_multigraph`.

    With `optimizers` the graph trains. What its backward pass starts from is ones in any case, so
    `init_output_grads` changes nothing; `init_output_grads()` sets others. `mapping` is decided by
    `compile_multigraph`.
    """
    return session.trace_multigraph(graph, inputs, optimizers, trace_prefix, mapping)


@checked(
    output_tensors=some(_TENSOR_OR_NAME, "a list of SambaTensors or names"),
    customized_tensors_dict=MAPPING.or_none(),
)
def init_output_grads(
    output_tensors: Iterable[SambaTensor | str],
    unspecified_tensor_grad: Iterable[str] = (),
    customized_tensors_dict: Mapping[str, Tensor] | None = None,
    is_variable_batch_size: bool = False,
) -> None:
    """Set what the backward pass starts from, for outputs given as tensors or by name.

    `customized_tensors_dict` has the gradients of some outputs by their names; all others, and
    those in `unspecified_tensor_grad`, start with ones. Shapes are those that were compiled, so
    `is_variable_batch_size` changes nothing. Outputs the backward pass does not start from are
    left out, unless they are given a gradient: then, and before `trace_graph`, `SambaError` is
    raised.
    """
    given = dict(customized_tensors_dict or {})
    names = [item if isinstance(item, str) else item.sn_name for item in output_tensors]
    memory = session.memory
    for name in dict.fromkeys([*names, *unspecified_tensor_grad, *given]):
        gradient = gradient_name(name)
        value, now = given.get(name), memory.find(gradient)
        if value is not None:
            memory.write(gradient, value)
        elif now is not None:
            memory.write(gradient, torch.ones_like(now))
