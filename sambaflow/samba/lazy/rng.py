"""Random numbers for parameters: equal for equal seeds, whatever the number of threads.

Values come from Philox, a counter-based generator: a block of values is a function of the seed, the
stream (one for each tensor), how many draws the stream has had, and the number of the block. So
threads may fill blocks in any order, and no tensor depends on what was drawn for others.

The random functions of torch are done with these numbers (`drawn`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.errors import SambaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Numbers: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    _Fill: TypeAlias = Callable[[np.random.Generator, _Numbers], None]

BLOCK = 1 << 16
"""Values that one thread draws in one go."""
ROUNDINGS = ("nearest_even", "truncation")
_WORD = 1 << 64


@dataclass(frozen=True)
class RandomOptions:
    """How random values are made.

    `seed`: None takes torch's, as `torch.manual_seed` has set it. `threads`: how many draw, 1 or
    more. `inverse_transform_sampling`: normal values as the inverse of the distribution function
    at uniform ones, else by the ziggurat method. `rounding`: from float32 to bfloat16,
    `nearest_even` or `truncation`. Raises ValueError for other values.
    """

    seed: int | None = None
    threads: int = 8
    inverse_transform_sampling: bool = False
    rounding: str = "nearest_even"

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"init_threads is {self.threads}, expected 1 or more")
        if self.rounding not in ROUNDINGS:
            raise ValueError(
                f"fp32_to_bf16_rounding is {self.rounding!r}, expected 'nearest_even' or "
                "'truncation'"
            )


@dataclass
class MultithreadedRNG:
    """The random numbers of one stream; every draw goes on where the one before ended.

    Two of the same seed and stream give the same values in the same order, for any number of
    threads.
    """

    options: RandomOptions = field(default_factory=RandomOptions)
    stream: str = ""
    _draws: count[int] = field(default_factory=count, init=False, repr=False)

    def __post_init__(self) -> None:
        self.options = _seeded(self.options)

    @checked()
    def normal(
        self,
        mean: float,
        std: float,
        shape: Iterable[int],
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Return a tensor of `shape` of normally distributed values."""
        draw = _inverse_normal if self.options.inverse_transform_sampling else _ziggurat

        def fill(generator: np.random.Generator, values: _Numbers) -> None:
            draw(generator, values)
            values *= std
            values += mean

        return self._filled(shape, dtype, fill)

    @checked()
    def uniform(
        self,
        low: float,
        high: float,
        shape: Iterable[int],
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Return a tensor of `shape` of values from `low` to below `high`, all equally likely."""

        def fill(generator: np.random.Generator, values: _Numbers) -> None:
            generator.random(out=values, dtype=values.dtype.type)  # type: ignore[arg-type]  # of one type
            values *= high - low
            values += low

        return self._filled(shape, dtype, fill)

    def torch_generator(self) -> torch.Generator:
        """Return a generator of torch's, seeded by the next draw, for all other distributions."""
        bits = self._bit_generator(next(self._draws), 0)
        return torch.Generator().manual_seed(int(bits.random_raw()) >> 1)

    def _filled(self, shape: Iterable[int], dtype: torch.dtype, fill: _Fill) -> torch.Tensor:
        """Return a new tensor that `fill` has written, block by block."""
        if not dtype.is_floating_point:
            raise SambaError(f"random values of {dtype} were asked for; ask for a floating type")

        size = tuple(shape)
        flat = torch.empty(prod(size), dtype=dtype)
        draw = next(self._draws)

        def block(number: int) -> None:
            part = flat[number * BLOCK : (number + 1) * BLOCK]
            generator = np.random.Generator(self._bit_generator(draw, number))
            if dtype in (torch.float32, torch.float64):
                fill(generator, part.numpy())
                return
            values = np.empty(part.numel(), np.float32)
            fill(generator, values)
            self._store(part, values)

        _for_each(block, -(-flat.numel() // BLOCK), self.options.threads)
        return flat.reshape(size)

    def _store(self, part: torch.Tensor, values: _Numbers) -> None:
        """Write float32 `values` into `part`, which has a narrower type."""
        if part.dtype == torch.bfloat16 and self.options.rounding == "truncation":
            # The upper half of a float32 is the bfloat16 next to it towards zero.
            part.view(torch.int16).numpy().view(np.uint16)[:] = values.view(np.uint32) >> 16
        else:
            part.copy_(torch.from_numpy(values))

    def _bit_generator(self, draw: int, block: int) -> np.random.Philox:
        digest = hashlib.sha256(self.stream.encode()).digest()[:8]
        seed = (self.options.seed or 0) % _WORD
        key = np.array([seed, int.from_bytes(digest, "little")], np.uint64)
        return np.random.Philox(key=key, counter=np.array([0, 0, block, draw], np.uint64))


@dataclass(frozen=True)
class RNGProvider:
    """Gives the random numbers of one tensor: each call gives them from their start again."""

    source: RandomSource
    stream: str

    def __call__(self) -> MultithreadedRNG:
        """Return the generator."""
        return self.source.generator(self.stream)


class RNGProviderFactory:
    """Makes a provider for each tensor, in order; they draw from `source`, the session's if None.

    Providers made in the same order from equal seeds give equal values.
    """

    def __init__(self, source: RandomSource | None = None) -> None:
        self._source = source

    def build_provider(self) -> RNGProvider:
        """Return the provider for one more tensor."""
        source = self._source or provider()
        return RNGProvider(source, source.next_stream())


class RandomSource:
    """Generators by name or by order, all of the same options; the seed is fixed at once."""

    def __init__(self, options: RandomOptions | None = None) -> None:
        self._wish = options or RandomOptions()
        self.reset()

    def generator(self, stream: str = "") -> MultithreadedRNG:
        """Return the generator of a stream, from its start; without a name, of the next one."""
        return MultithreadedRNG(self.options, stream or self.next_stream())

    def next_stream(self) -> str:
        """Return the name of one more stream; no tensor is called so."""
        return f"#{next(self._order)}"

    def reset(self) -> None:
        """Number streams from the start again, from the seed that holds now."""
        self.options = _seeded(self._wish)
        self._order = count()


class _Sources:
    """Which source the session draws from; torch too has one generator for all."""

    current: RandomSource | None = None


def provider() -> RandomSource:
    """Return the source that the session draws from; it is made when first asked for."""
    if _Sources.current is None:
        _Sources.current = RandomSource()
    return _Sources.current


def configure(options: RandomOptions) -> RandomSource:
    """Let the session draw from a new source with `options`, and return it."""
    _Sources.current = RandomSource(options)
    return _Sources.current


def _seeded(options: RandomOptions) -> RandomOptions:
    """Return `options` with a seed."""
    return replace(options, seed=torch.initial_seed()) if options.seed is None else options


def _ziggurat(generator: np.random.Generator, values: _Numbers) -> None:
    generator.standard_normal(out=values, dtype=values.dtype.type)  # type: ignore[arg-type]  # of one type


def _inverse_normal(generator: np.random.Generator, values: _Numbers) -> None:
    # Half a step up keeps 0, where the inverse is infinite, out.
    uniform = generator.random(values.size) + 2.0**-54
    values[:] = torch.special.ndtri(torch.from_numpy(uniform)).numpy()


def _for_each(work: Callable[[int], None], blocks: int, threads: int) -> None:
    """Call `work` for every number below `blocks`, in up to `threads` threads."""
    workers = min(threads, blocks)
    if workers < 2:
        for number in range(blocks):
            work(number)
        return
    with ThreadPoolExecutor(workers) as pool:
        # Asking for every result raises what a thread raised.
        for _ in pool.map(work, range(blocks)):
            pass


TRUNCATED = "_no_grad_trunc_normal_"

NAMES = frozenset(
    {
        *("uniform_", "normal_", "rand", "randn", "rand_like", "randn_like", TRUNCATED),
        *("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "random_"),
        *("randint", "randperm", "normal", "bernoulli", "multinomial", "orthogonal_", "sparse_"),
    }
)
"""The names of torch's functions that draw random numbers, and take a generator."""


def drawn(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    rng: MultithreadedRNG,
) -> object:
    """Return the result of a function of `NAMES` whose random numbers come from `rng`.

    Of the usual ones threads make the values; others run in torch, with a generator seeded by
    `rng`.
    """
    given = {key: value for key, value in kwargs.items() if key != "generator"}
    name = function.__name__
    if name in _FILLS:
        target = args[0] if args else given.pop("tensor")
        assert isinstance(target, torch.Tensor)
        return _FILLS[name](rng, target, *args[1:], **given)
    if name in _FACTORIES:
        like = function(*args, **{**given, "device": "meta"})
        assert isinstance(like, torch.Tensor)
        return _FACTORIES[name](rng, like)
    generator = rng.torch_generator()
    # sparse_ of torch.nn.init draws from torch's own generator too.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        return function(*args, **given, generator=generator)


def _uniform(rng: MultithreadedRNG, target: torch.Tensor, *args: float, **kwargs: float) -> object:
    # One of torch's keywords is a word of Python.
    low, high = (*args, *(0.0, 1.0)[len(args) :])
    values = rng.uniform(
        kwargs.get("from", low), kwargs.get("to", high), target.shape, target.dtype
    )
    return target.copy_(values)


def _normal(
    rng: MultithreadedRNG, target: torch.Tensor, mean: float = 0.0, std: float = 1.0
) -> object:
    return target.copy_(rng.normal(mean, std, target.shape, target.dtype))


def _truncated_normal(rng: MultithreadedRNG, target: torch.Tensor, **given: float) -> object:
    """Fill `target` from the normal distribution cut off at `a` and `b`, by its inverse.

    `mean`, `std`, `a` and `b` are given.
    """
    mean, std, edges = given["mean"], given["std"], (given["a"], given["b"])
    low, high = (0.5 * math.erfc((mean - edge) / (std * math.sqrt(2.0))) for edge in edges)
    shares = rng.uniform(low, high, target.shape, torch.float64)
    values = torch.special.ndtri(shares).mul_(std).add_(mean).clamp_(*edges)
    return target.copy_(values)


_FILLS: dict[str, Callable[..., object]] = {
    "uniform_": _uniform,
    "normal_": _normal,
    TRUNCATED: _truncated_normal,
}

_FACTORIES: dict[str, Callable[[MultithreadedRNG, torch.Tensor], torch.Tensor]] = {
    "rand": lambda rng, like: rng.uniform(0.0, 1.0, like.shape, like.dtype),
    "rand_like": lambda rng, like: rng.uniform(0.0, 1.0, like.shape, like.dtype),
    "randn": lambda rng, like: rng.normal(0.0, 1.0, like.shape, like.dtype),
    "randn_like": lambda rng, like: rng.normal(0.0, 1.0, like.shape, like.dtype),
}
