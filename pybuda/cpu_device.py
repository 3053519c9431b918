"""A device that runs torch on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from pef.arguments import shown
from sambahost.chains import Chain
from sambahost.samples import Samples

from .device import Device
from .errors import PyBudaError, listed
from .placeable import Placeable
from .training.on_host import (
    HostSettings,
    MakesOptimizer,
    MakesScheduler,
    ModuleTrainer,
    named_on_host,
)

_NARROW = (torch.float16, torch.bfloat16)


class CPUDevice(Device):
    """Runs PyTorch modules as they are, on whole microbatches: it evaluates, or trains in place.

    `optimizer_f` makes an optimizer of torch for the module (for all, where there are several) when
    training begins, `scheduler_f` a scheduler for that optimizer. `retain_backward_graph` keeps the
    graphs of torch after a backward pass. `input_dtypes` are the types that inputs are converted
    to; without them 16-bit floating-point ones become 32-bit ones.
    `mp_context` changes nothing: devices are threads.
    """

    _trainer: ModuleTrainer | None = None

    def __init__(
        self,
        name: str,
        optimizer_f: MakesOptimizer | None = None,
        scheduler_f: MakesScheduler | None = None,
        mp_context: object = None,
        retain_backward_graph: bool = False,
        module: object = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
    ) -> None:
        for what, made in (("optimizer_f", optimizer_f), ("scheduler_f", scheduler_f)):
            if made is not None and not callable(made):
                raise PyBudaError(
                    f"{what} is {shown(made)}; a function that makes one was expected"
                )
        if input_dtypes is not None:
            listed("input_dtypes", input_dtypes, torch.dtype, "types of torch")
        self._training = HostSettings(
            optimizer_f, scheduler_f, retain_backward_graph, self._converted
        )
        self._dtypes = None if input_dtypes is None else tuple(input_dtypes)
        super().__init__(name, module)

    def run(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""
        chain = Chain((item.on_host() for item in self.modules), PyBudaError, batch.names)
        if any(part.training for part in chain.modules()):
            chain.eval()
        with self.at_work, torch.no_grad():
            found: tuple[torch.Tensor, ...] = chain(*self._converted(batch.tensors))
        return found

    def prepare(self, batch: Samples) -> Samples | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def trainer(self, first: bool) -> ModuleTrainer:
        """Return what trains the modules in place, the same again while these are the same."""
        work = self._work(first)
        if self._trainer is None or self._trainer.work != work:
            self._trainer = ModuleTrainer(work, self._training)
        self._trainer.begin()
        return self._trainer

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters of modules."""
        return {name: p.detach().clone() for name, p in named_on_host(self.modules).items()}

    def close(self) -> None:
        """Forget what trained: nothing was compiled."""
        self._trainer = None

    def _require_runs(self, module: Placeable) -> None:
        module.on_host()

    def _converted(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._dtypes is None:
            return [t.float() if t.dtype in _NARROW else t for t in tensors]
        if len(self._dtypes) != len(tensors):
            raise PyBudaError(
                f"device '{self.name}' has {len(self._dtypes)} input_dtypes, {len(tensors)} inputs "
                "came"
            )
        return [t.to(dtype) for t, dtype in zip(tensors, self._dtypes, strict=True)]
