"""Momentum and weight decay are terms that a run may set, whatever they were when it was compiled.

Beside torch, whose groups get the same numbers: without momentum a buffer stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

import sambac
import sambarun

HOST = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
OPTIMIZERS = {
    "sgd": sambac.SGD(lr=0.1),
    "nesterov": sambac.SGD(lr=0.1, momentum=0.5, nesterov=True),
    "dampened": sambac.SGD(lr=0.1, momentum=0.5, dampening=0.3),
    "adam": sambac.Adam(lr=0.01),
    "adamw": sambac.AdamW(lr=0.01, weight_decay=0.0),
    "rmsprop": sambac.RMSprop(lr=0.01),
    "adagrad": sambac.Adagrad(lr=0.05),
}
DECAY = [0.0, 0.1, 0.0, 0.2, 0.0]
MOMENTUM = [0.0, 0.9, 0.5, 0.0, 0.9]


def net(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 1)).to(dtype)


class Trainee(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.net = net(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).square().mean()


def rows(step: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(step)).to(dtype)


def schedule(optimizer: sambac.Optimizer) -> list[dict[str, float]]:
    """What each step is given."""
    numbers = {"weight_decay": DECAY}
    if hasattr(optimizer, "momentum"):
        # torch's RMSprop has a buffer only where its first step has momentum
        numbers["momentum"] = MOMENTUM[::-1] if optimizer.kind == "rmsprop" else MOMENTUM
    return [{name: of[step] for name, of in numbers.items()} for step in range(len(DECAY))]


def host_optimizer(optimizer: sambac.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    if isinstance(optimizer, sambac.SGD):
        made = torch.optim.SGD(
            model.parameters(), optimizer.lr, optimizer.momentum or 0.9, optimizer.dampening
        )
        made.param_groups[0]["nesterov"] = optimizer.nesterov
        return made
    options = {"momentum": 0.9} if optimizer.kind == "rmsprop" else {}
    return HOST[optimizer.kind](model.parameters(), lr=optimizer.lr, weight_decay=0.0, **options)


def on_the_host(
    optimizer: sambac.Optimizer, given: list[dict[str, float]], dtype: torch.dtype
) -> tuple[list[float], nn.Module]:
    model = Trainee(dtype)
    host = host_optimizer(optimizer, model)
    losses = []
    for step, settings in enumerate(given):
        host.param_groups[0].update(settings)
        host.zero_grad()
        loss = model(rows(step, dtype))
        loss.backward()
        host.step()
        losses.append(loss.item())
    return losses, model


def compiled(optimizer: sambac.Optimizer, level: str, dtype: torch.dtype = torch.float32):
    options = sambac.CompileOptions(level=level, train=True, optimizers=(optimizer,))
    return sambac.compile(Trainee(dtype), options, inputs=(rows(0, dtype),))


def stepped(executable: sambarun.Executable, step: int, given: Mapping[str, float] | None) -> float:
    name = executable.program.graphs[0].inputs[0].name
    (loss,) = executable.step({name: rows(step).numpy()}, given).values()
    return float(loss)


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_terms_come_and_go_as_in_torch(name: str, level: str) -> None:
    optimizer = OPTIMIZERS[name]
    given = schedule(optimizer)
    losses, model = on_the_host(optimizer, given, torch.float32)
    with sambarun.load(compiled(optimizer, level)) as executable:
        found = [stepped(executable, step, settings) for step, settings in enumerate(given)]
        state = executable.state()
    np.testing.assert_allclose(found, losses, rtol=1e-4)
    for key, value in model.state_dict().items():
        np.testing.assert_allclose(state[key], value.numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("optimizer", [sambac.LAMB(lr=0.1), sambac.LARS(lr=0.1, momentum=0.0)])
def test_terms_of_optimizers_that_torch_lacks(optimizer: sambac.Optimizer) -> None:
    """Compiled with the numbers of a run or given them: the same steps."""
    terms = {name: 0.3 for name in ("momentum", "weight_decay") if hasattr(optimizer, name)}
    ready = type(optimizer)(lr=0.1, **terms)
    found = []
    for made, given in ((ready, None), (optimizer, terms)):
        with sambarun.load(compiled(made, "O3")) as executable:
            found.append([stepped(executable, step, given) for step in range(3)])
    assert found[0] == found[1]
    with sambarun.load(compiled(optimizer, "O3")) as executable:
        assert [stepped(executable, step, None) for step in range(3)] != found[0]


def test_half_precision_has_terms_too() -> None:
    given = schedule(OPTIMIZERS["sgd"])
    optimizer = OPTIMIZERS["sgd"]
    losses, _ = on_the_host(optimizer, given, torch.float32)
    with sambarun.load(compiled(optimizer, "O3", torch.float16)) as executable:
        name = executable.program.graphs[0].inputs[0].name
        found = [
            float(executable.step({name: rows(step).half().numpy()}, settings)["output"])
            for step, settings in enumerate(given)
        ]
    np.testing.assert_allclose(found, losses, rtol=3e-2)


def operators(program: sambarun.Executable, zeros: set[str]) -> list[str]:
    """The operators of the update that runs while exactly the argins `zeros` are zero."""
    import onnx

    file = program.program
    numbers = {argin.symbol for argin in file.argins if argin.name in zeros}
    (update,) = (section for section in file.sections if section.type.name == "OPT")
    for variant in update.variants:
        if numbers.issuperset(variant.zeros) and numbers.isdisjoint(variant.nonzeros):
            stored = file.programs[variant.program]
            graph = onnx.ModelProto.FromString(
                file.segments[stored.graph.segment].content(stored.graph)
            ).graph
            return [node.op_type for node in graph.node]
    raise AssertionError


def test_what_is_zero_costs_no_operator() -> None:
    with sambarun.load(compiled(OPTIMIZERS["sgd"], "O3")) as executable:
        plain = operators(executable, {"sgd.momentum", "sgd.weight_decay"})
        assert plain == ["Neg", "Cast", "Reshape", "GatedAdd"]
        assert operators(executable, {"sgd.weight_decay"}).count("GatedAdd") == 2
        assert operators(executable, {"sgd.momentum"}).count("GatedAdd") == 2
        assert operators(executable, set()).count("GatedAdd") == 3


@pytest.mark.parametrize("zero", [True, False])
def test_groups_of_one_section_may_differ(zero: bool) -> None:
    """As compiled there is a program for them; otherwise the one for all is right."""
    decayed = sambac.SGD(lr=0.1, momentum=0.9, weight_decay=0.1, params=("*.weight",))
    plain = sambac.SGD(lr=0.1, params=("*.bias",))
    given = {} if zero else {"sgd.1.momentum": 0.5, "sgd.0.momentum": 0.0}
    model = Trainee(torch.float32)
    groups = [
        {"params": [p for n, p in model.named_parameters() if n.endswith(end)], **numbers}
        for end, numbers in (
            ("weight", {"momentum": given.get("sgd.0.momentum", 0.9), "weight_decay": 0.1}),
            ("bias", {"momentum": given.get("sgd.1.momentum", 0.0)}),
        )
    ]
    host = torch.optim.SGD(groups, lr=0.1)
    options = sambac.CompileOptions(train=True, optimizers=(decayed, plain))
    program = sambac.compile(Trainee(torch.float32), options, inputs=(rows(0),))
    with sambarun.load(program) as executable:
        for step in range(3):
            host.zero_grad()
            loss = model(rows(step))
            loss.backward()
            host.step()
            assert stepped(executable, step, given) == pytest.approx(loss.item(), rel=1e-4)


def test_a_checkpoint_and_a_clone_go_on_with_what_was_set(tmp_path) -> None:
    program = compiled(OPTIMIZERS["sgd"], "O3")
    given = {"momentum": 0.9, "weight_decay": 0.1}
    with sambarun.load(program) as executable, sambarun.load(program) as other:
        stepped(executable, 0, given)
        executable.save(tmp_path / "state.safetensors")
        other.load(tmp_path / "state.safetensors")
        with executable.clone() as twin:
            wanted = [stepped(executable, step, None) for step in (1, 2, 3)]
            assert [stepped(other, step, None) for step in (1, 2, 3)] == wanted
            assert [stepped(twin, step, None) for step in (1, 2, 3)] == wanted
        assert wanted != pytest.approx([stepped(other, step, {"lr": 0.0}) for step in (1, 2, 3)])
