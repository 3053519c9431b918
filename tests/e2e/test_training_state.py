"""States of compiled programs: resumed runs, PyTorch's files, the planned memory they live in."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import pef
import sambac
import sambarun
from pef.states import states_of

ROWS = 8


class Digits(nn.Module):
    """A convolution with batch statistics, dropout, and a head whose weight is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(64, 64)
        self.again = nn.Linear(64, 64)
        self.again.weight = self.head.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.norm(self.conv(x)))
        hidden = self.drop(nn.functional.max_pool2d(hidden, 2).flatten(1))
        logits = self.again(torch.relu(self.head(hidden)))
        return nn.functional.cross_entropy(logits, y), logits


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(ROWS, 1, 8, 8, generator=generator),
        torch.randint(0, 64, (ROWS,), generator=generator),
    )


@pytest.fixture(scope="module")
def module() -> Digits:
    torch.manual_seed(0)
    return Digits()


@pytest.fixture(scope="module")
def program(module: Digits) -> pef.Program:
    options = sambac.CompileOptions(
        train=True, optimizers=(sambac.AdamW(lr=1e-2),), max_grad_norm=1.0
    )
    return sambac.compile(module, options, inputs=batch(0))


def feeds(program: pef.Program, seed: int) -> dict[str, np.ndarray]:
    names = [port.name for port in program.graphs[0].inputs if not port.name.endswith("__grad")]
    return dict(zip(names, (item.numpy() for item in batch(seed)), strict=True))


@pytest.mark.parametrize("link", [True, False], ids=["linked", "unlinked"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(program, tmp_path, link):
    path = tmp_path / "state.safetensors"
    options = {"link": link, "threads": 2}
    with sambarun.load(program, **options) as whole:
        expected = [whole.step(feeds(program, seed)) for seed in range(8)]
        with sambarun.load(program, **options) as first:
            for seed in range(4):
                first.step(feeds(program, seed))
            first.save(path, sambarun.Cursor(step=4))
        with sambarun.load(program, **options) as second:
            assert second.load(path).step == 4
            for seed in range(4, 8):
                losses = second.step(feeds(program, seed))
                assert [a.tobytes() for a in losses.values()] == [
                    a.tobytes() for a in expected[seed].values()
                ]
            ours, theirs = second.state(), whole.state()
            assert {n: a.tobytes() for n, a in ours.items()} == {
                n: a.tobytes() for n, a in theirs.items()
            }


def test_linked_and_single_sections_train_alike(program):
    with sambarun.load(program) as linked, sambarun.load(program, link=False) as single:
        for seed in range(5):
            one, two = (e.step(feeds(program, seed)) for e in (linked, single))
            for name, loss in one.items():
                np.testing.assert_allclose(loss, two[name], rtol=1e-5)


def test_a_checkpoint_and_a_state_dict_are_the_same_thing(program, module, tmp_path):
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    with sambarun.load(program) as executable:
        for seed in range(3):
            executable.step(feeds(program, seed))
        executable.save(ours)
        with safe_open(ours, framework="numpy") as file:
            names = json.loads(file.metadata()["model"])
        entries = load_file(ours)
        other = Digits()
        other.load_state_dict({name: entries[name] for name in names}, strict=True)
        expected = other.eval()(*batch(9))
        found = list(executable.run(feeds(program, 9), section_types="FWD").values())
        for ours_, theirs_ in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours_, theirs_.detach().numpy(), rtol=1e-4, atol=1e-5)

        save_file({n: t.clone() for n, t in module.state_dict().items()}, theirs)
        executable.load(theirs)
        state = executable.state()
        for name, tensor in module.state_dict().items():
            if name in state:
                np.testing.assert_array_equal(state[name], tensor.numpy())
        assert not state["conv.weight__exp_avg"].any()


def test_states_lie_in_planned_memory_that_is_as_large_as_planned(program):
    with sambarun.load(program) as executable:
        executable.step(feeds(program, 0))
        memory = executable._lock._workspace._memory
        persistent = sum(region.persistent for region in program.regions)
        states = {program.symbols[index].allocation for index in states_of(program).own}
        buffers = memory._buffers.items()
        held = [buffer.nbytes for (_, first, _), buffer in buffers if first < persistent]
        # The plan counts in grains of 64 bytes.
        planned = [-(-program.allocations[number].size // 64) * 64 for number in states]
        assert sorted(held) == sorted(planned)
        transient = sum(region.used - region.persistent for region in program.regions)
        assert sum(a.nbytes for a in memory._buffers.values()) - sum(held) == transient
