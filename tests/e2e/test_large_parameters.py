"""Parameters that no cache holds are updated chunk by chunk, as torch updates them whole."""

from __future__ import annotations

import onnx
import pytest
import torch
from torch import nn

import pef
import sambac
import sambarun

SIZE = 1024
"""Of a square matrix of 4 MiB."""
OPTIMIZERS = {
    "sgd": sambac.SGD(lr=1e-4),
    "momentum": sambac.SGD(lr=1e-4, momentum=0.9, weight_decay=0.01, nesterov=True),
    "amsgrad": sambac.Adam(lr=0.01, amsgrad=True, weight_decay=0.01),
    "adamw": sambac.AdamW(lr=0.01),
    "rmsprop": sambac.RMSprop(lr=0.01, centered=True, momentum=0.9),
    "adagrad": sambac.Adagrad(lr=0.05),
}
HOST = {
    "sgd": lambda of: torch.optim.SGD(of, lr=1e-4),
    "momentum": lambda of: torch.optim.SGD(
        of, lr=1e-4, momentum=0.9, weight_decay=0.01, nesterov=True
    ),
    "amsgrad": lambda of: torch.optim.Adam(of, lr=0.01, amsgrad=True, weight_decay=0.01),
    "adamw": lambda of: torch.optim.AdamW(of, lr=0.01),
    "rmsprop": lambda of: torch.optim.RMSprop(of, lr=0.01, centered=True, momentum=0.9),
    "adagrad": lambda of: torch.optim.Adagrad(of, lr=0.05),
}


class Trainee(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Parameter(torch.randn(SIZE, SIZE))
        self.bias = nn.Parameter(torch.randn(SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.table * x + self.bias).square().sum()


def rows(step: int) -> torch.Tensor:
    return 1 + torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(step))


def loops(program: pef.Program) -> set[int]:
    """Return how many loops the programs of updates have."""
    found = set()
    for section in program.sections:
        if section.type is pef.SectionType.OPT:
            for variant in section.variants:
                stored = program.programs[variant.program]
                graph = program.segments[stored.graph.segment].content(stored.graph)
                nodes = onnx.load_from_string(bytes(graph)).graph.node
                found.add(sum(node.op_type == "Scan" for node in nodes))
    return found


@pytest.mark.parametrize(
    ("name", "clip"), [*((name, None) for name in OPTIMIZERS), ("adamw", 0.5)], ids=str
)
def test_large_parameters_are_updated_as_in_torch(name: str, clip: float | None) -> None:
    model = Trainee()
    options = sambac.CompileOptions(train=True, optimizers=(OPTIMIZERS[name],), max_grad_norm=clip)
    program = sambac.compile(Trainee(), options, inputs=(rows(0),))
    assert 1 in loops(program)
    host = HOST[name](model.parameters())
    with sambarun.load(program) as executable:
        port = program.graphs[0].inputs[0].name
        for step in range(3):
            executable.step({port: rows(step).numpy()})
            host.zero_grad()
            model(rows(step)).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            host.step()
        state = executable.state()
    for key, value in model.state_dict().items():
        off = abs(state[key] - value.numpy())
        # Where a gradient is next to nothing its sign, which Adam's first step goes by, may differ.
        assert (off > 1e-4).mean() < 1e-4, key
