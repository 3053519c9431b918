"""A training program on the device, whose forward runs may be far ahead of their backward runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import numpy as np
from torch import Tensor

from pef.program import SectionType
from sambarun import Executable, Selection

from .model_session import ModelSession

_FORWARD = Selection(("FWD",), train=True)
_BACKWARD = Selection(("BCKWD",))
_ZERO = Selection(("ZEROGRAD",))
_UPDATE = Selection(("OPT",))


class ForwardRun:
    """A forward run whose backward run has not come yet: what went in, and what that one reads.

    `kept` is None as long as it is still on the device.
    """

    def __init__(self, inputs: Mapping[str, Tensor]) -> None:
        self.inputs = inputs
        self.kept: Mapping[str, np.ndarray] | None = None


class StepSession(ModelSession):
    """Runs the parts of a training step, each backward run with what its forward run left."""

    def __init__(self, executable: Executable, api: str) -> None:
        super().__init__(executable, api)
        self._last: ForwardRun | None = None
        self._set: Mapping[str, float] = {}
        self._kinds = {section.type for section in self.program.sections}

    def forward(self, inputs: Mapping[str, Tensor]) -> tuple[dict[str, np.ndarray], ForwardRun]:
        """Return what a forward run gives, by port, and what its backward run needs.

        Raises `HostError` for what does not fit the program.
        """
        self._keep_last()
        run = ForwardRun(inputs)
        self.hold(inputs)
        results = self.run(_FORWARD, {})
        self._last = run
        return results, run

    def backward(self, run: ForwardRun, starts: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
        """Add up the gradients of parameters, and return what else a backward run gives.

        `starts` are gradients of outputs, by name; of others they are ones.
        """
        if run is not self._last:  # whose inputs are held
            self._keep_last()
            self.hold(run.inputs)
        self.start_from(starts)
        with nullcontext() if run.kept is None else self.restored(run.kept):
            results = self.run(_BACKWARD, {})
        self._last = None
        return results

    def begin(self) -> None:
        """Forget that the last forward run has no backward run yet."""
        self._last = None

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        if SectionType.ZEROGRAD in self._kinds:
            self.run(_ZERO, {})

    def optimize(self, hyperparams: Mapping[str, float]) -> None:
        """Update the parameters by the optimizers, if there are some."""
        if SectionType.OPT in self._kinds:
            self.run(_UPDATE, {} if hyperparams == self._set else hyperparams)  # they are kept
            self._set = hyperparams

    def _keep_last(self) -> None:
        """Take off the device what the backward run of the last forward run will need there."""
        if self._last is not None:
            self._last.kept = self.kept()
            self._last = None
