"""A session without a device: it notes what it is asked and gives back copies of what it has."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from sambaflow.samba.tensors.tensor import SambaTensor, to_torch


@dataclass
class FakeSession:
    """`results` are what a run returns, by the names of the outputs; `runs` what it was given."""

    results: dict[str, torch.Tensor] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    compiled: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    device: Any = None

    def run(self, **given: Any) -> tuple[SambaTensor, ...]:
        self.runs.append(given)
        return tuple(
            SambaTensor(self.results[output.sn_name].clone(), name=output.sn_name)
            for output in given.get("output_tensors", ())
        )

    def compile(self, *given: Any, **options: Any) -> str:
        self.compiled.append((given, options))
        return "model.pef"

    def note_converted(self, name: str, tensor: SambaTensor) -> None:
        """Nothing to do: nobody asks for what was converted."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeSession:
        """Take the place of the real one until the test is over."""
        real = sys.modules["sambaflow.samba.session"].session
        for name, module in list(sys.modules.items()):
            if name.startswith("sambaflow.") and vars(module).get("session") is real:
                monkeypatch.setattr(module, "session", self)
        return self


def traced_linear() -> tuple[nn.Module, tuple[SambaTensor, ...], FakeSession]:
    """A linear layer that looks traced, its input, and a session that has its output."""
    model = nn.Linear(3, 2)
    image = SambaTensor(torch.arange(12.0).reshape(4, 3), name="image")
    output = SambaTensor(shape=(4, 2), dtype=torch.float32, name="linear__outputs__0")
    model.output_tensors = (output,)  # type: ignore[assignment]
    session = FakeSession({output.sn_name: model(to_torch(image)).detach()})
    return model, (image,), session
