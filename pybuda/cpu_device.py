"""A device that runs torch on the host."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence

import torch

from pef.arguments import shown
from sambahost.chains import Chain, Graded
from sambahost.host_evaluation import HostEvaluation
from sambahost.models import detached, in_mode
from sambahost.samples import Samples

from .device import Device
from .errors import PyBudaError, listed, require_queues
from .placeable import Placeable
from .tensor import SomeTensor, Tensor
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
    `mp_context` changes nothing, which a warning says: devices are threads.
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
                raise PyBudaError(f"{what} is {shown(made)}; a function was expected")
        if input_dtypes is not None:
            listed("input_dtypes", input_dtypes, torch.dtype, "types of torch")
        functions = (optimizer_f, scheduler_f)
        self._training = HostSettings(*functions, retain_backward_graph, self._converted)
        self._dtypes = None if input_dtypes is None else tuple(input_dtypes)
        self._gradient_queue: queue.Queue[object] | None = None
        super().__init__(name, mp_context, module)

    def infer(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""
        chain = Chain((item.on_host() for item in self.modules), PyBudaError, batch.names)
        with self.at_work, in_mode(chain, training=False), torch.enable_grad():
            return detached(chain(*self._converted(batch.tensors)))

    def prepare(self, batch: Samples) -> Samples | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def trainer(self, first: bool) -> ModuleTrainer:
        """Return what trains the modules in place, the same again while these are the same."""
        work = self._work(first)
        if self._trainer is None or self._trainer.work != work:
            self._trainer = ModuleTrainer(work, self._training)
            self._trainer.traced = self._gradient_queue
        self._trainer.begin()
        return self._trainer

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters of modules."""
        return {name: p.detach().clone() for name, p in named_on_host(self.modules).items()}

    def compile_for(  # type: ignore[override]  # as the original's devices have it
        self,
        inputs: Sequence[SomeTensor],
        compiler_cfg: object = None,
        targets: Sequence[SomeTensor] = (),
        microbatch_size: int = 0,
        microbatch_count: int = 1,
        verify_cfg: object = None,
    ) -> tuple[Tensor, ...]:
        """Return what modules give for `inputs`, or the loss for `targets`; nothing is compiled.

        The other arguments change nothing.
        """
        return tuple(map(Tensor, self.cpueval_forward(inputs, {}, False, targets)))

    def set_debug_gradient_trace_queue(self, q: queue.Queue[object]) -> None:
        """Let a queue have gradients of each backward pass: those that come in, and that go out.

        They are a list of tensors each.
        """
        require_queues(q=q)
        self._gradient_queue = q
        if self._trainer is not None:
            self._trainer.traced = q

    forward_pt = forward_tf = Device.forward
    compile_for_pt = compile_for_tf = compile_for
    cpueval_forward_pt = cpueval_forward_tf = Device.cpueval_forward

    def close(self) -> None:
        """Forget what trained: nothing was compiled."""
        self._trainer = None

    def _evaluated(
        self, values: Mapping[str, torch.Tensor], batch: Samples, targets: int
    ) -> HostEvaluation:
        chain, own = Chain((m.on_host() for m in self.modules), PyBudaError), self.modules
        part: torch.nn.Module = chain
        if targets and self.loss is not None:
            count = len(batch.tensors) - targets
            before = chain if self.modules else None
            part, own = Graded(before, self.loss.on_host(), count, PyBudaError), [*own, self.loss]
        training = bool(targets)
        return HostEvaluation(part, named_on_host(own), values, by_sample=False, training=training)

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
