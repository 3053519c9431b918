"""Random numbers are equal for equal seeds, and distributed as they should be."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sambaflow.samba.lazy import rng
from sambaflow.samba.lazy.rng import (
    BLOCK,
    MultithreadedRNG,
    RandomOptions,
    RandomSource,
    RNGProviderFactory,
)

_SHAPE = (5, BLOCK)  # several blocks, so that threads have something to share


def _rng(**options: object) -> MultithreadedRNG:
    return MultithreadedRNG(RandomOptions(seed=3, **options), "w")  # type: ignore[arg-type]


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_values_do_not_depend_on_the_number_of_threads(dtype: torch.dtype, inverse: bool) -> None:
    one, many = (
        _rng(threads=threads, inverse_transform_sampling=inverse).normal(0, 1, _SHAPE, dtype)
        for threads in (1, 7)
    )
    assert one.dtype == dtype
    assert torch.equal(one, many)


@pytest.mark.parametrize("inverse", [False, True])
def test_normal_values_are_normally_distributed(inverse: bool) -> None:
    values = _rng(inverse_transform_sampling=inverse).normal(2.0, 0.5, (500_000,))
    assert values.mean().item() == pytest.approx(2.0, abs=4e-3)
    assert values.std().item() == pytest.approx(0.5, abs=4e-3)
    standard = (values - 2.0) / 0.5
    for limit in (-2.0, -1.0, 0.0, 1.0, 2.0):
        share = (standard < limit).double().mean().item()
        assert share == pytest.approx(0.5 * (1 + math.erf(limit / math.sqrt(2))), abs=4e-3)


def test_uniform_values_fill_their_range_evenly() -> None:
    values = _rng().uniform(-1.0, 3.0, (400_000,))
    assert values.min() >= -1.0
    assert values.max() <= 3.0
    counts = torch.histc(values, bins=8, min=-1.0, max=3.0)
    assert torch.allclose(counts, torch.full((8,), 50_000.0), rtol=0.03)


def test_streams_draws_blocks_and_seeds_give_different_values() -> None:
    generator = _rng()
    first, second = (generator.normal(0, 1, (2 * BLOCK,)) for _ in range(2))
    other_stream = MultithreadedRNG(RandomOptions(seed=3), "v").normal(0, 1, (2 * BLOCK,))
    other_seed = MultithreadedRNG(RandomOptions(seed=4), "w").normal(0, 1, (2 * BLOCK,))
    samples = [first[:BLOCK], first[BLOCK:], second[:BLOCK], other_stream[:BLOCK]]
    for index, sample in enumerate([*samples, other_seed[:BLOCK]]):
        for other in samples[:index]:
            assert abs(torch.corrcoef(torch.stack((sample, other)))[0, 1]) < 0.02


def test_bfloat16_is_rounded_to_the_nearest_or_towards_zero() -> None:
    exact = _rng().normal(0, 1, _SHAPE)
    nearest = _rng().normal(0, 1, _SHAPE, torch.bfloat16)
    truncated = _rng(rounding="truncation").normal(0, 1, _SHAPE, torch.bfloat16)
    assert torch.equal(nearest, exact.bfloat16())
    bits = exact.view(torch.int32) & ~0xFFFF
    assert torch.equal(truncated.float(), bits.view(torch.float32))
    assert not torch.equal(nearest, truncated)


def test_without_a_seed_torchs_seed_counts() -> None:
    drawn = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        drawn.append(MultithreadedRNG(stream="w").normal(0, 1, (4,)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_provider_starts_anew_and_every_tensor_has_its_own() -> None:
    factory = RNGProviderFactory(RandomSource(RandomOptions(seed=1)))
    one, two = factory.build_provider(), factory.build_provider()
    assert torch.equal(one().normal(0, 1, (4,)), one().normal(0, 1, (4,)))
    assert not torch.equal(one().normal(0, 1, (4,)), two().normal(0, 1, (4,)))


def test_a_reset_source_repeats_its_streams() -> None:
    source = RandomSource(RandomOptions(seed=1))
    first = source.generator().uniform(0, 1, (4,))
    assert not torch.equal(source.generator().uniform(0, 1, (4,)), first)
    source.reset()
    assert torch.equal(source.generator().uniform(0, 1, (4,)), first)


def test_other_distributions_are_seeded_too() -> None:
    draws = [torch.empty(4).exponential_(generator=_rng().torch_generator()) for _ in range(2)]
    assert torch.equal(*draws)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_tiny_shapes(shape: tuple[int, ...]) -> None:
    assert _rng().normal(0, 1, shape).shape == torch.Size(shape)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"threads": 0}, "init_threads is 0"), ({"rounding": "up"}, "'nearest_even' or 'truncation'")],
)
def test_senseless_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RandomOptions(**options)  # type: ignore[arg-type]


def test_random_integers_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.int64.*floating"):
        _rng().normal(0, 1, (2,), torch.int64)


def test_as_many_threads_draw_as_were_asked_for() -> None:
    together = threading.Barrier(3)
    rng._for_each(lambda _: together.wait(60), 6, 3)  # raises if fewer come at a time


def test_a_uniform_value_of_zero_has_an_inverse() -> None:
    values = np.ones(4)
    rng._inverse_normal(SimpleNamespace(random=np.zeros), values)  # type: ignore[arg-type]
    assert np.isfinite(values).all()
