"""Operators along an axis of a number, which PyTorch takes for a tensor of one element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import sambac
import sambarun

_AT, _ATS = torch.tensor(0), torch.tensor([0])
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "amax": lambda x: x.amax(-1, keepdim=True),
    "argmax": lambda x: x.argmax(0, keepdim=True),
    "argmin": lambda x: x.argmin(-1),
    "argsort": lambda x: x.argsort(0),
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(-1),
    "cumsum of whole numbers": lambda x: x.long().cumsum(0),
    "flip": lambda x: x.flip(0),
    "gather": lambda x: x.gather(0, _AT),
    "gather one": lambda x: x.gather(0, _ATS),
    "index_add": lambda x: x.index_add(0, _AT, x),
    "index_copy": lambda x: x.index_copy(0, _AT, 2 * x),
    "index_fill": lambda x: x.index_fill(0, _AT, 2.0),
    "index_select": lambda x: x.index_select(0, _AT),
    "index_select one": lambda x: x.index_select(0, _ATS),
    "log_softmax": lambda x: x.log_softmax(0),
    "logcumsumexp": lambda x: x.logcumsumexp(-1),
    "logsumexp": lambda x: x.logsumexp(0, keepdim=True),
    "max": lambda x: x.max(0, keepdim=True),
    "mean": lambda x: x.mean(0, keepdim=True),
    "min": lambda x: x.min(-1),
    "scatter": lambda x: x.scatter(0, _AT, 2.0),
    "scatter_add": lambda x: x.scatter_add(-1, _AT, x),
    "scatter_reduce": lambda x: x.scatter_reduce(0, _AT, 2 * x, "amax"),
    "softmax": lambda x: x.softmax(0),
    "sort": lambda x: x.sort(-1),
    "sort back": lambda x: torch.sort(x, stable=True, dim=0, descending=True),
    "sort of whole numbers": lambda x: x.long().sort(0),
    "sum": lambda x: x.sum(0, keepdim=True),
    "topk": lambda x: x.topk(1, 0),
}


class _All(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor | tuple[Tensor, ...]]:
        """Return what each function makes of a number, and of one that another has made."""
        once = {name: function(x) for name, function in _FUNCTIONS.items()}
        return {**once, "one after another": x.cumsum(0).sort(0)[0].exp().softmax(-1)}


def test_results_have_no_axes_either() -> None:
    """They may be results of the module themselves, where nothing reads them."""
    x, module = torch.tensor(1.5), _All()
    wanted, _ = torch.utils._pytree.tree_flatten(module(x))
    program = sambac.compile(module, inputs=(x,))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x.numpy()})
    for (name, array), tensor in zip(found.items(), wanted, strict=True):
        assert (array.shape, array.dtype) == (tensor.shape, tensor.numpy().dtype), name
        np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-6, err_msg=name)


class _Learning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("seen", torch.tensor(1.0))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        running = (x * self.scale).logcumsumexp(-1)
        self.seen.copy_((self.seen * x).cumsum(0))
        return {"loss": running, "sorted": running.sort(0)[0]}


def test_neither_do_losses_and_what_a_module_keeps() -> None:
    x, module = torch.tensor(1.5), _Learning()
    options = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.1),))
    program = sambac.compile(module, options, inputs=(x,))
    with sambarun.load(program) as executable:
        found = executable.step({"x": x.numpy()})
        state = executable.state()
    assert found["loss"] == 3.0
    for name, value in (("scale", 2 - 0.1 * 1.5), ("seen", 1.5)):
        assert state[name].shape == ()
        np.testing.assert_allclose(state[name], value, rtol=1e-6)
