"""Published architectures infer and train as in PyTorch, at a size at which that takes seconds."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from small_architectures import ARCHITECTURES, Squares
from torch import Tensor, nn

import sambac
import sambarun


def _quickly(*quick: str) -> list[object]:
    """Return all models, of which all but a few are left to the long run."""
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.long)
        for name in ARCHITECTURES
    ]


_OPTIONS = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.05),))


def _tensors(result: object) -> Iterator[Tensor]:
    """Yield the tensors in what a model returns; caches of keys and values are objects."""
    if isinstance(result, Tensor):
        yield result
    elif type(result).__module__ == "transformers.cache_utils":
        yield from _tensors(vars(result))
    elif isinstance(result, dict):
        for item in result.values():
            yield from _tensors(item)
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from _tensors(item)


def _arrays(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def _without_drops(module: nn.Module) -> nn.Module:
    """Set all rates at which modules drop to zero, so that numbers can be compared."""
    for part in module.modules():
        settings = [part, getattr(part, "config", None)]
        for owner in filter(None, settings):
            for name, value in list(vars(owner).items()):
                if ("drop" in name or (name == "p" and "Drop" in type(part).__name__)) and (
                    isinstance(value, float)
                ):
                    setattr(owner, name, 0.0)
    return module


@pytest.mark.parametrize("name", _quickly("t5"))
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    module, inputs, _ = ARCHITECTURES[name].make()
    program = sambac.compile(module.eval(), inputs=inputs)
    with torch.no_grad():
        expected = list(_tensors(dict(module(**inputs))))
    with sambarun.load(program) as executable:
        names = {port.name for port in program.graphs[0].inputs}
        feeds = {key: value for key, value in _arrays(inputs).items() if key in names}
        found = list(executable.run(feeds).values())
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=1e-5 * (1 + want.abs().max().item()))


@pytest.mark.parametrize("name", _quickly("poolformer"))
def test_training(name: str) -> None:
    """Two steps, without dropout: what drops is compiled too, and compared nowhere."""
    torch.manual_seed(0)
    module, plain, labelled = ARCHITECTURES[name].make()
    inputs = plain if labelled is None else labelled
    module = _without_drops(Squares(module) if labelled is None else module).train()
    reference = copy.deepcopy(module)
    program = sambac.compile(module, _OPTIONS, inputs=inputs)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    with sambarun.load(program) as executable:
        for _ in range(2):
            optimizer.zero_grad()
            loss = reference(**inputs)["loss"]
            loss.backward()
            optimizer.step()
            found = executable.step(_arrays(inputs))["loss"]
            np.testing.assert_allclose(found, loss.item(), rtol=1e-4, atol=1e-6)
        state = executable.state()
    for key, parameter in reference.named_parameters():
        if key in state:
            want = parameter.detach().numpy()
            np.testing.assert_allclose(
                state[key], want, atol=1e-4 * (0.1 + abs(want).max()), err_msg=key
            )


@pytest.mark.parametrize(
    "name",
    [
        "swin",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("convnext", "segformer")),
    ],
)
def test_paths_drop(name: str) -> None:
    """What drop path draws comes of the seed, which the first of enough steps names."""
    torch.manual_seed(0)
    module, _, inputs = ARCHITECTURES[name].make()
    assert inputs is not None
    program = sambac.compile(module.train(), _OPTIONS, inputs=inputs)
    runs = []
    for seed in (1, 1, 2):
        with sambarun.load(program) as executable:
            named = [{"seed": seed}] + [{}] * 9
            losses = [executable.step(_arrays(inputs), argins)["loss"] for argins in named]
        runs.append(np.stack(losses))
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()
