"""Networks of the kinds that programs run, small and with random weights, beside torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from near import assert_near, exactly
from pybuda_networks import (
    WORDS,
    Decoder,
    Detector,
    Encoder,
    EncoderClassifier,
    Layers,
    Recurrent,
    Residual,
    convolutions,
)
from pybuda_runs import later
from pybuda_training import WAIT, device_with, near, peer_of, push, taken
from torch import nn
from torch.nn import functional

import pybuda
from pybuda import optimizers

Inputs = tuple[torch.Tensor, ...]


def words(size: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (size, 8))


def masked(size: int) -> Inputs:
    mask = torch.ones(size, 8, dtype=torch.int64)
    mask[-1, 5:] = 0
    return words(size), mask


@pytest.mark.parametrize(
    ("make", "drawn"),
    [
        (Encoder, masked),
        (Decoder, lambda size: (words(size),)),
        (Residual, lambda size: (torch.randn(size, 3, 16, 16),)),
        (Detector, lambda size: (torch.randn(size, 3, 16, 16),)),
        (Recurrent, lambda size: (torch.randn(size, 5, 6),)),
    ],
)
def test_a_network_evaluates_as_in_torch(
    make: Callable[[], nn.Module], drawn: Callable[[int], Inputs]
) -> None:
    torch.manual_seed(0)
    module = make().eval()
    batches = [drawn(3), drawn(2)]
    results = pybuda.run_inference(later(module, "network"), inputs=batches)
    for batch in batches:
        with torch.no_grad():
            expected = exactly(module)(*exactly(batch))
        expected = [expected] if isinstance(expected, torch.Tensor) else [*expected]
        found = results.get(timeout=WAIT)
        assert isinstance(found, list)
        for tensor, wanted in zip(found, expected, strict=True):
            assert_near(tensor.value(), wanted)


def test_a_transformer_takes_inputs_by_name() -> None:
    """As the tokenizers of transformers give them, in whatever order."""
    torch.manual_seed(0)
    module, (ids, mask) = Encoder().eval(), masked(2)
    batch = {"attention_mask": mask, "input_ids": ids}
    found = pybuda.run_inference(later(module, "encoder"), inputs=[batch]).get(timeout=WAIT)
    with torch.no_grad():
        rows, pooled = exactly(module)(ids, mask)
    assert isinstance(found, list)
    assert_near(found[0].value(), rows)
    assert_near(found[1].value(), pooled)


def test_a_perceptron_in_operators() -> None:
    torch.manual_seed(0)
    module, x = Layers(), torch.randn(5, 8)
    assert_near(module.run(x)[0].value(), module.expected(x.double()))


@pytest.mark.parametrize(
    ("make", "drawn"),
    [
        (EncoderClassifier, words),
        (convolutions, lambda size: torch.randn(size, 1, 8, 8)),
        (Recurrent, lambda size: torch.randn(size, 5, 6)),
    ],
)
def test_fifty_steps_of_a_network_are_those_of_torch(
    make: Callable[[], nn.Module], drawn: Callable[[int], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    module = make()
    twin = peer_of(module, functional.cross_entropy, lambda p: torch.optim.AdamW(p, 0.002))
    optimizer = optimizers.AdamW(0.002, weight_decay=0.01, device_params=True)
    device = device_with(module, later(nn.CrossEntropyLoss(), "loss"), optimizer)
    pairs = [(drawn(2), torch.randint(0, 4, (2,))) for _ in range(50)]
    push(pairs, device)
    pybuda.run_training(steps=50)
    losses = pybuda.get_loss_queue()
    for pair in pairs:
        (expected,) = twin.step([pair])
        near(taken(losses), expected, 1e-4)
